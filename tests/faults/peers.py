"""Tries some faults with other ways to run ranks from a notebook, and measures what a learner has of each.

`fault_table.py` keeps what it finds. ipyparallel is no dependency of the course: it is tried where it can be imported.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from fault_cases import ON_RANKS
from launchers import LAUNCHERS, PATIENCE, Ipyparallel, Launcher, Trial
from notebook_kernel import Cell, NotebookKernel

LIMIT = 60.0
KILLED = "the notebook's kernel is killed while a rank waits"
_LOCK = "a result that cannot be sent"
# Of the matrix, those which all the tools have in common.
COMPARED = [
    "a collective that one rank never joins",
    "different shapes",
    "an exception on one rank, the others wait in a collective",
    "a rank killed (SIGKILL)",
    "a rank stopped (SIGSTOP)",
    "pressed in a Python loop",
    "pressed in a collective",
    _LOCK,
    KILLED,
]
_CODE = {fault.name: fault.code for fault in ON_RANKS}
# A rank with nothing more to do may end with its process, and the collective with it, before anybody can stop it.
_CODE["pressed in a collective"] = "if odd:\n    import time\n    time.sleep(3600)\ndist.barrier()"
_STOPS = {fault.name for fault in ON_RANKS if fault.stop}
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# A line that names an error, one that names a signal, and what only passes one on.
_NAMES = re.compile(r"\b\w*(Error|Interrupt|Exception|Timeout|Stopped)\b: ")
_SIGNALS = re.compile(r"Signal \d+ \(|signal SIG")
# What PyTorch's launcher logs about its own doing.
_LOGGED = re.compile(r"[WIE]\d{4} ")
_WRAPS = re.compile(r"ChildFailedError|ProcessRaisedException|ProcessExitedException|AlreadyDisplayedError")
# Numbers of processes, ranks before a line, and places in the source of PyTorch.
_NUMBERS = re.compile(r"(?i)\b(pid:?) \d+")
_NOISE = re.compile(r"^\[\S+\]: ?|\[/\S+:\d+\] ")


@dataclass
class Seen:
    """What a learner has of one fault with one tool.

    Attributes:
        ended: seconds from the fault to the end of the cell; None where only killing the kernel ended it.
        stopped: whether it took the stop button, after `LIMIT` seconds.
        says: the line of what is shown that says most.
        usable: seconds from the fault to the next sum over all ranks; None where there was none.
        anew: whether that took more than the next call.
        left: processes more than before the fault.
    """

    ended: float | None = None
    stopped: bool = False
    says: str = ""
    usable: float | None = None
    anew: bool = False
    left: int = 0


def try_all(names: list[str] = COMPARED, launchers: list[Launcher] = LAUNCHERS) -> dict[str, dict[str, Seen]]:
    """By fault and by tool: what was seen. Tools that are not installed are left out."""
    found: dict[str, dict[str, Seen]] = {}
    for name in names:
        for launcher in launchers:
            if isinstance(launcher, Ipyparallel) and importlib.util.find_spec("ipyparallel") is None:
                continue
            with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
                found.setdefault(name, {})[launcher.name] = _try(name, launcher, Path(folder))
            print(f"{name}, {launcher.name}: {found[name][launcher.name]}", flush=True)
    return found


def _try(name: str, launcher: Launcher, folder: Path) -> Seen:
    # The engines of ipyparallel find it where this process does.
    variables = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    with NotebookKernel(folder, variables) as kernel:
        # What a person ends must not be ended by the timeout.
        patience = 3600.0 if name in {KILLED, *_STOPS} else PATIENCE
        trial = Trial(_CODE.get(name, _CODE[COMPARED[0]]), name == _LOCK, patience)
        ready = kernel.execute(launcher.begin(trial.patience))
        first = _sum(kernel, launcher)
        if not ready.ended or ready.error or not _works(first):
            raise RuntimeError(f"{launcher.name} does not work here: {ready} {first}")
        before = len(kernel.processes())
        if name == KILLED:
            return _killed(kernel, launcher, trial)
        return _ended(kernel, launcher, trial, before, name in _STOPS)


def _ended(kernel: NotebookKernel, launcher: Launcher, trial: Trial, before: int, stop: bool) -> Seen:
    seen, sent = Seen(), time.time()
    code = launcher.cell(kernel.folder, trial)
    cell = kernel.execute(code, LIMIT, stop_when=lambda _: stop and time.time() > _came(kernel, sent) + 1.0)
    came = _came(kernel, sent)
    fault = (came if came < time.time() else sent) + (1.0 if stop else 0.0)
    if not cell.ended:
        seen.stopped = True
        kernel.stop()
        cell = kernel.wait(15.0)
    if not cell.ended:
        seen.left = len(kernel.processes()) - before
        return seen
    seen.ended, seen.says = time.time() - fault, _telling(cell, launcher)
    again = _sum(kernel, launcher)
    if not _works(again) and launcher.again():
        seen.anew = True
        kernel.execute(launcher.again())
        again = _sum(kernel, launcher)
    seen.usable = time.time() - fault if _works(again) else None
    seen.left = _left(kernel, before)
    return seen


def _killed(kernel: NotebookKernel, launcher: Launcher, trial: Trial) -> Seen:
    sent = time.time()
    kernel.client.execute(launcher.cell(kernel.folder, trial))
    while time.time() < min(_came(kernel, sent), sent + LIMIT) + 1.0:
        time.sleep(0.05)
    kernel.kill()
    killed = time.monotonic()
    while (left := kernel.processes()) and time.monotonic() < killed + 10.0:
        time.sleep(0.05)
    return Seen(ended=None if left else time.monotonic() - killed, left=len(left))


def _came(kernel: NotebookKernel, sent: float) -> float:
    """When the last rank came to what the trial has for it; the far future while it has not."""
    files = [kernel.folder / f"here-{rank}" for rank in (0, 1)]
    times = [file.stat().st_mtime for file in files if file.exists()]
    new = [at for at in times if at >= sent - 0.02]
    return max(new) if len(new) == len(files) else float("inf")


def _sum(kernel: NotebookKernel, launcher: Launcher) -> Cell:
    cell = kernel.execute(launcher.cell(kernel.folder, Trial()), LIMIT)
    if not cell.ended:
        # Or what is typed next would wait behind it.
        kernel.stop()
        kernel.wait(15.0)
    return cell


def _works(cell: Cell) -> bool:
    return cell.ended and not cell.error and cell.text.count("the sum is 2") >= 2


def _left(kernel: NotebookKernel, before: int) -> int:
    end = time.monotonic() + 5.0
    while (more := len(kernel.processes()) - before) > 0 and time.monotonic() < end:
        time.sleep(0.1)
    return max(0, more)


def _telling(cell: Cell, launcher: Launcher) -> str:
    """The line that says most: of this course's messages the first one, of others the last that names an error."""
    text = _ESCAPES.sub("", f"{cell.text}\n{cell.error}: {cell.message}" if cell.error else cell.text)
    if launcher.tells == 0:
        text = f"{cell.error}: {cell.message}"
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    naming = [line for line in lines if _NAMES.search(line) and not _WRAPS.search(line)]
    naming = naming or [line for line in lines if _SIGNALS.search(line) and not _LOGGED.match(line)] or lines or [""]
    return _NOISE.sub("", _NUMBERS.sub(r"\1 ...", naming[launcher.tells]))


def as_data(found: dict[str, dict[str, Seen]]) -> dict[str, dict[str, dict[str, object]]]:
    """What was seen, for a file. Seconds with one decimal place."""
    return {
        fault: {
            tool: {key: round(value, 1) if isinstance(value, float) else value for key, value in asdict(seen).items()}
            for tool, seen in tools.items()
        }
        for fault, tools in found.items()
    }


if __name__ == "__main__":
    # Single faults by their number in the list, to look at.
    print(json.dumps(as_data(try_all([COMPARED[int(number)] for number in sys.argv[1:]])), indent=1))
