"""Every fault ends its cell in bounded time with an explanation, and leaves a group that one restart mends."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from fault_cases import ON_RANKS, SIZES, Fault, filled
from measured import Recorder
from runner_process import Runner

from mgpu_utils.troubleshooting_links import PAGE

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="these faults are made with POSIX signals"),
    # The first of them may have to wait for most of the others.
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("world_size", SIZES)
@pytest.mark.parametrize("fault", ON_RANKS, ids=lambda fault: fault.name)
def test_a_fault_ends_with_an_explanation_and_one_restart_mends_the_group(
    fault: Fault, world_size: int, runners: dict[int, Runner], recorder: Recorder, note: Callable[[str], None]
) -> None:
    came = runners[world_size].outcome(fault.name)
    text = came.text
    assert came.error == fault.error, text
    assert came.seconds < (3 * fault.patience if fault.waits else 30.0)
    assert text.splitlines()[0].startswith(filled(fault.sees, world_size)), text
    for part in fault.says:
        assert filled(part, world_size) in text
    if fault.error != "RankInterrupt" and fault.explained:
        assert PAGE in text.splitlines()[-1]
    assert ("ranks.restart()" in text) == fault.restart
    assert came.needs_restart == fault.restart
    assert came.sums == [f"{world_size}"] * world_size
    assert came.left == []
    recorder.fault(fault.name, world_size, came.recovered, came.left)
    note(f"{fault.name}, {world_size} ranks: ended after {came.seconds:.1f} s, usable after {came.recovered:.1f} s")
