"""Writes docs/faults.md from the faults that the tests try: `python tests/faults/fault_table.py`."""

from __future__ import annotations

from pathlib import Path

from fault_cases import ON_RANKS, filled
from other_faults import PROVEN, VALUES

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
_COLUMNS = ("| fault | the message begins | the group afterwards |", "|---|---|---|")
_OPENING = """# What can go wrong on the ranks, and what you see then

Each fault below is made on purpose by the tests, most of them with two and with three ranks. Every time the cell ends,
the message names the ranks and the line, and no process, socket, shared memory or file is left. *As before*: the ranks
and the names on them stay. Only what "did not finish within" a time has waited for the group's `timeout`; all else is
noticed at once. The ranks are shown as in a group of two. More on causes and cures:
[troubleshooting](troubleshooting.md).

This page is written by `python tests/faults/fault_table.py`."""


def page() -> str:
    """docs/faults.md: every fault, what the learner sees of it, and how the group is afterwards."""
    lines = [_OPENING]
    about = ""
    for fault in ON_RANKS:
        if fault.about != about:
            about = fault.about
            lines += ["", f"## {about}", "", *_COLUMNS]
        after = "after `ranks.restart()`" if fault.restart else "as before"
        lines.append(f"| {fault.name} | {_shown(fault.sees)} | {after} |")
    lines += [
        "",
        "## Values that cannot travel",
        "",
        "| fault | the message begins | the group afterwards |",
        "|---|---|---|",
    ]
    lines += [f"| {value.name} | {_shown(value.sees)} | as before |" for value in VALUES]
    for proven in PROVEN:
        if proven.about != about:
            about = proven.about
            lines += ["", f"## {about}", "", "| fault | what happens |", "|---|---|"]
        lines.append(f"| {proven.name} | {proven.sees} |")
    return "\n".join(lines) + "\n"


def _shown(text: str) -> str:
    text = filled(text.replace("{killed}", "..."), 2)
    if text.endswith(" "):
        text += "..."
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
