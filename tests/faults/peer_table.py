"""The part of docs/robustness.md that sets this course's ranks beside other ways to run ranks from a notebook."""

from __future__ import annotations

import re
from typing import Any

from launchers import LAUNCHERS, PATIENCE
from peers import COMPARED, KILLED, LIMIT

_LONGEST = 110
_TEXT = """## The same faults with other ways to run ranks

Each fault was made in a notebook of its own, as a learner would type it, with two ranks on gloo and loopback. Each
tool has its usual good settings, and the same timeout for collectives: {patience:g} s, or an hour where a person ends
the cell. `mp.spawn` and `torchrun` get their code in a file, since they cannot run what stands in a cell. They start
new processes at each call, so the next call imports PyTorch again, as `ranks.restart()` and a new cluster of
ipyparallel do. What their ranks held is gone after each call; the ranks of this course and ipyparallel's engines keep
it.

In each place: when the cell ended / when a sum over both ranks was there again / how many processes were left. Seconds
count from the fault. A cell not ended after {limit:g} s was stopped with the stop button; so was the sum, before
`ranks.restart()` or a new cluster was tried. A dash is never: then the kernel had to be killed."""


def peer_lines(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """A table of seconds, and below it what each tool says."""
    names = [launcher.name for launcher in LAUNCHERS]
    lines = [_TEXT.format(patience=PATIENCE, limit=LIMIT), "", f"| fault | {' | '.join(names)} |", "|---" * 5 + "|"]
    for fault in COMPARED:
        cells = [_cell(found[fault][name], fault) if name in found[fault] else _MISSING for name in names]
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    lines += ["", "What they say: of this course the first line, of the others the last one that names an error."]
    for fault in COMPARED:
        if fault != KILLED:
            lines += ["", f"- {fault}"]
            lines += [f"  - {name}: {_says(seen)}" for name, seen in found[fault].items()]
    return lines


_MISSING = "not installed when this was measured"


def _cell(seen: dict[str, Any], fault: str) -> str:
    if fault == KILLED:
        gone = f"all gone after {seen['ended']:.1f} s" if seen["ended"] is not None else "not all gone after 10 s"
        return f"{gone} / {seen['left']}"
    ended = "\N{EN DASH}" if seen["ended"] is None else f"{seen['ended']:.1f}"
    if seen["stopped"] and seen["ended"] is not None:
        ended += " (stop button)"
    usable = "\N{EN DASH}" if seen["usable"] is None else f"{seen['usable']:.1f}"
    return f"{ended} / {usable} / {seen['left']}"


def _says(seen: dict[str, Any]) -> str:
    text = str(seen["says"]).partition(". This is typically")[0].replace("`", "'").strip(" :")
    # Ports and numbers of processes say nothing to a reader.
    text = re.sub(r"\b\d{4,}\b", "...", text)
    if not text:
        return "nothing"
    return f"`{text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}`"
