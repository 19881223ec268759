"""Every fault ends its cell in bounded time with an explanation, and leaves a group that one restart mends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest
from fault_cases import ON_RANKS, Fault, filled

import mgpu_utils as mgpu
from mgpu_utils.rank_errors import RankInterrupt
from mgpu_utils.ranks import RankGroup
from mgpu_utils.troubleshooting_links import PAGE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these faults are made with POSIX signals")
_ENDS = {"RankError": mgpu.RankError, "RankTimeout": mgpu.RankTimeout, "RankInterrupt": RankInterrupt}


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("fault", ON_RANKS, ids=lambda fault: fault.name)
def test_a_fault_ends_with_an_explanation_and_one_restart_mends_the_group(
    fault: Fault,
    world_size: int,
    groups: Callable[[int], RankGroup],
    left_behind: Callable[[RankGroup], Callable[[], list[str]]],
    note: Callable[[str], None],
) -> None:
    group = groups(world_size)
    look = left_behind(group)
    # What is noticed at once must not need the timeout: a long one would show it.
    group.timeout = fault.patience if fault.waits else 60.0
    if fault.stop:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(_ENDS[fault.error]) as caught:
        group.execute(f"odd = rank == {world_size - 1}\n{fault.code}")
    seconds = time.monotonic() - began
    assert seconds < (3 * group.timeout if fault.waits else group.timeout / 2)
    text = str(caught.value)
    assert text.splitlines()[0].startswith(filled(fault.sees, world_size)), text
    for part in fault.says:
        assert filled(part, world_size) in text
    if fault.error != "RankInterrupt" and fault.explained:
        assert PAGE in text.splitlines()[-1]
    assert ("ranks.restart()" in text) == fault.restart
    assert group.needs_restart == fault.restart
    group.timeout = 60.0
    if fault.restart:
        group.restart()
    code = "x = torch.ones(1)\ndist.all_reduce(x)\nprint(int(x))"
    assert [result.text for result in group.execute(code)] == [str(world_size)] * world_size
    assert look() == []
    note(f"{fault.name}, {world_size} ranks: ended after {seconds:.1f} s")
