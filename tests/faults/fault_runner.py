"""Makes faults on a group of ranks of its own: `python fault_runner.py WORLD_SIZE NAME...`, one line of JSON for each.

The groups of two and of three ranks are in two such processes, so that one works while the other waits for a timeout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from fault_cases import ON_RANKS, Fault
from leftovers import Leftovers

from mgpu_utils.devices import plan
from mgpu_utils.rank_errors import RankError, RankInterrupt, RankTimeout
from mgpu_utils.ranks import RankGroup

STOP_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """What one fault came to.

    Attributes:
        error: class of the exception that ended the cell, empty where there was none.
        text: its message.
        seconds: from the fault, or from the stop button, to the end of the cell.
        recovered: from the same to the answer of the next all_reduce, with `ranks.restart()` where it was needed.
        needs_restart: whether it was.
        sums: what each rank printed of that all_reduce, or why there was none.
        left: what is there and was not before.
    """

    fault: str
    world_size: int
    error: str
    text: str
    seconds: float
    recovered: float
    needs_restart: bool
    sums: list[str]
    left: list[str]


def make(fault: Fault, group: RankGroup, temporary: Path) -> Outcome:
    """Make one fault, and the group whole again."""
    group.timeout = 60.0
    if fault.before:
        group.execute(fault.before)
    leftovers = Leftovers(group, temporary)
    # What is noticed at once must not need the timeout: a long one would show it.
    group.timeout = fault.patience if fault.waits else 60.0
    began = time.monotonic()
    if fault.stop:
        threading.Timer(STOP_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()
        began += STOP_SECONDS
    error, text = "", ""
    try:
        group.execute(f"odd = rank == {group.world_size - 1}\n{fault.code}")
    except (RankError, RankTimeout, RankInterrupt) as caught:
        error, text = type(caught).__name__, str(caught)
    seconds = time.monotonic() - began
    needs_restart, group.timeout = group.needs_restart, 60.0
    try:
        if needs_restart:
            group.restart()
        results = group.execute("x = torch.ones(1)\ndist.all_reduce(x)\nprint(int(x))")
        sums = [result.text for result in results]
    except (RankError, RankTimeout) as broken:
        # This fault's test fails; the faults after it need a whole group.
        sums = [str(broken)]
        group.restart()
    recovered = time.monotonic() - began
    return Outcome(fault.name, group.world_size, error, text, seconds, recovered, needs_restart, sums, leftovers.look())


def main(world_size: int, names: list[str], out: TextIO) -> None:
    faults = {fault.name: fault for fault in ON_RANKS}
    with RankGroup(plan(world_size, "cpu"), 60.0, 1) as group:
        for name in names:
            outcome: dict[str, Any] = asdict(make(faults[name], group, Path(tempfile.gettempdir())))
            print(json.dumps(outcome), file=out, flush=True)


if __name__ == "__main__":
    # Started by a shell's background job it would ignore the stop button.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What the ranks print must not stand between the outcomes.
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(int(sys.argv[1]), sys.argv[2:], outcomes)
