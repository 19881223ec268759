"""Writes docs/robustness.md from the faults that the tests make, and from what was measured of them.

`python tests/faults/fault_table.py` writes it from the figures that are kept; with `--measure`, or with some of
`--measure faults peers soak`, the figures are measured before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fault_cases import ON_RANKS, SIZES, filled
from measured import FAULTS, PEERS, SOAK, VARIABLE, keep, kept, machine
from notebook_ends import seconds_until_gone
from other_faults import ENDS, MACHINES, MUCH, VALUES, Proven
from peer_table import peer_lines
from peers import as_data, try_all
from soak import soak

PAGE = Path(__file__).parents[2] / "docs" / "robustness.md"
PARTS = ("faults", "peers", "soak")
_OPENING = """# Robustness: what can go wrong on the ranks, and what you see then

Each fault below is made on purpose by the tests, those on ranks with two and with three of them. Every time the cell
ends, and the message names the ranks and the line. *Works again* is counted from the fault until all ranks have
answered an `all_reduce` again; *needs* is what it takes. Only what "did not finish within" a time has waited for the
group's `timeout`, which is {timeout:g} s there; all else is noticed at once. *Left* counts processes; the tests also
look for sockets, shared memory, files and descriptors. Causes and cures: [troubleshooting](troubleshooting.md).

{measured}"""
_HEAD = ("| fault | the message begins | needs | works again after, 2 / 3 ranks | left |", "|---|---|---|---|---|")
_CLOSING = """
## What is not caught

- What a cell detaches from its rank (`setsid`, `nohup`) lives on when the rank ends. Shared memory that a cell made
  under a name, and temporary folders of `multiprocessing`, stay as well.
- The timeout is counted by the notebook's own clock, while it waits for messages. An argument or a result whose
  pickling never ends is not timed; the stop button ends it.
- A result too large to be sent within the timeout is told as too much work.
- `send` and `recv` with different shapes are not compared. gloo fills a part of the larger tensor, and says nothing.

## How this page is made

`python tests/faults/fault_table.py` writes it from the figures in `tests/faults/measured/`, and the tests fail when it
says anything else. `python tests/faults/fault_table.py --measure` measures everything again, in about an hour;
`--measure faults` (or `peers`, or `soak`) one part of it. ipyparallel is no part of the course: it is tried where it is
installed. A shorter soak is one of the tests; `python tests/faults/soak.py --cells 1000 --seed 2` runs another one.
"""


def page() -> str:
    """docs/robustness.md: every fault, what the learner sees of it, and how the group is afterwards."""
    faults, peers, thousand = kept(FAULTS), kept(PEERS), kept(SOAK)
    found: dict[str, Any] = faults["found"]
    patience = {fault.patience for fault in ON_RANKS if fault.waits}
    lines = [_OPENING.format(timeout=max(patience), measured=_measured_on(faults["machine"]))]
    for about in dict.fromkeys(fault.about for fault in ON_RANKS):
        lines += ["", f"## {about}", "", *_HEAD]
        for fault in (fault for fault in ON_RANKS if fault.about == about):
            needs = "`ranks.restart()`" if fault.restart else "nothing"
            lines.append(_row(fault.name, _shown(fault.sees), needs, *_again(found[fault.name])))
    lines += ["", "## Values that cannot travel", "", *_HEAD]
    lines += [_row(value.name, _shown(value.sees), "nothing", *_again(found[value.name])) for value in VALUES]
    lines += _told(MUCH, "works again after", [_again(found[proven.name]) for proven in MUCH])
    lines += _told(
        ENDS, "gone after", [(f"{_seconds(found[p.name]['gone'])} s", str(found[p.name]["left"])) for p in ENDS]
    )
    lines += _told(MACHINES, "", [() for _ in MACHINES])
    lines += ["", *peer_lines(peers["found"]), "", _measured_on(peers["machine"]), "", *_soak_lines(thousand), _CLOSING]
    return "\n".join(lines)


def _measured_on(about: dict[str, Any]) -> str:
    other = "other work as well" if about["load"] > about["cores"] else "little else to do"
    busy = f"that had {other} (load {about['load']:g} at the end)"
    versions = f"Python {about['python']} and PyTorch {about['torch']}"
    return f"*Measured on {about['cores']} cores without a GPU {busy}, with {versions}.*"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(text: str) -> str:
    text = filled(text.replace("{killed}", "..."), 2)
    if text.endswith(" "):
        text += "..."
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _again(sizes: dict[str, dict[str, float]]) -> tuple[str, str]:
    """Seconds for each number of ranks, and the processes that were left."""
    seconds = " / ".join(_seconds(sizes[str(size)]["recovered"]) for size in SIZES if str(size) in sizes)
    return f"{seconds} s", f"{max(one['left'] for one in sizes.values()):g}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 0.1 else "under 0.1"


def _told(proven: Iterable[Proven], seconds: str, measured: list[tuple[str, ...]]) -> list[str]:
    """A section whose faults have tests of their own."""
    head = ["fault", "what happens", *([seconds, "left"] if seconds else [])]
    cases = list(proven)
    lines = ["", f"## {cases[0].about}", "", _row(*head), "|" + "---|" * len(head)]
    return lines + [_row(one.name, one.sees, *more) for one, more in zip(cases, measured, strict=True)]


def _soak_lines(thousand: dict[str, Any]) -> list[str]:
    early = min(thousand["sizes"], key=lambda size: abs(size["cells"] - 200))
    last = thousand["sizes"][-1]
    faults, kinds = sum(thousand["faults"].values()), len(thousand["faults"])
    seed, cells = thousand["seed"], thousand["cells"]
    minutes, restarts, wrong = thousand["seconds"] / 60, thousand["restarts"], len(thousand["wrong"])
    rows = [
        ("memory of the notebook's kernel", "memory", " MiB"),
        ("its open descriptors", "descriptors", ""),
        ("processes besides it, which are the two ranks", "processes", ""),
        ("temporary files", "files", ""),
    ]
    return [
        "## A thousand cells with random faults",
        "",
        f"One notebook, two ranks, {cells:,} cells in {minutes:.0f} minutes. {faults} were faults of {kinds} kinds,",
        f"drawn at random (seed {seed}) from those on ranks above; `ranks.restart()` was needed {restarts} times. What",
        f"each cell showed was compared with what it must show: {wrong} were different.",
        "",
        _row("", f"after {early['cells']} cells", f"after {last['cells']:,} cells"),
        "|---|---|---|",
        *(_row(name, f"{early[key]}{unit}", f"{last[key]}{unit}") for name, key, unit in rows),
    ]


def measure(parts: Iterable[str]) -> None:
    """Measure these parts and keep the figures.

    Raises:
        SystemExit: a test of the faults failed.
    """
    wanted = set(parts)
    if "faults" in wanted:
        _measure_faults()
    if "peers" in wanted:
        keep(PEERS, {"machine": machine(), "found": as_data(try_all())})
    if "soak" in wanted:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            keep(SOAK, asdict(soak(1000, 1, Path(folder), tell=True)))


def _measure_faults() -> None:
    root = PAGE.parents[1]
    # Without what looks at the figures themselves, for there may be none yet.
    without = Path(__file__).with_name("test_fault_table.py").relative_to(root)
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-q", "--deselect", str(without)]
    # The faults of the matrix are made one after the other then, before the first test.
    command.append("--timeout=1800")
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / FAULTS.name
        if subprocess.run(command, env={**os.environ, VARIABLE: str(figures)}, cwd=root).returncode:
            raise SystemExit("a test of the faults failed, so its figures are as they were.")
        found = kept(figures)
    for name, (seconds, left) in seconds_until_gone().items():
        found["found"][name] = {"gone": round(seconds, 1), "left": left}
    keep(FAULTS, found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write docs/robustness.md.")
    parser.add_argument("--measure", nargs="*", choices=PARTS, help="measure before; all parts when none is named")
    chosen = parser.parse_args().measure
    if chosen is not None:
        measure(chosen or PARTS)
    PAGE.write_text(page(), encoding="utf-8")
