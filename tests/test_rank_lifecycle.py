"""Groups that are stopped while they start or end, restarted in any order, or started by two threads."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

import mgpu_utils as mgpu
from mgpu_utils.rank_errors import RankInterrupt
from mgpu_utils.ranks import RankGroup, current_group

posix = pytest.mark.skipif(sys.platform == "win32", reason="os.kill cannot send SIGINT to this process alone")
# Does not end by itself, nor when it is asked to.
BUSY = """
import asyncio, time
async def for_ever():
    while True:
        time.sleep(0.05)
task = asyncio.get_event_loop().create_task(for_ever())
"""


@pytest.fixture
def started() -> Iterator[Callable[[], int]]:
    """Gives the number of rank processes that the test has started and that still run."""
    before = _ranks()
    yield lambda: len(_ranks() - before)
    for process in _ranks() - before:
        process.kill()


def _ranks() -> set[psutil.Process]:
    found = set()
    for child in psutil.Process().children():
        try:
            if "mgpu_utils.rank_process" in child.cmdline():
                found.add(child)
        except psutil.Error:
            continue
    return found


def stopped_in(seconds: float, call: Callable[[], object]) -> KeyboardInterrupt:
    """Call it, and press the stop button after `seconds`."""

    def call_and_wait() -> None:
        call()
        # Where it was quicker than the button.
        time.sleep(30)

    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        call_and_wait()
    timer.join()
    return caught.value


def test_a_group_that_was_shut_down_and_restarted_takes_cells_and_is_replaced_by_the_next(
    started: Callable[[], int],
) -> None:
    ranks = mgpu.start_ranks(2, device="cpu")
    ranks.shutdown()
    ranks.restart()
    assert current_group() is ranks
    with mgpu.start_ranks(1, device="cpu"):
        assert started() == 1
        ranks.restart()
        assert started() == 3
    with mgpu.start_ranks(1, device="cpu"):
        assert started() == 1
    assert started() == 0


@posix
def test_a_stop_while_ranks_start_leaves_none_and_says_so(started: Callable[[], int]) -> None:
    with mgpu.start_ranks(2, device="cpu") as ranks:
        for seconds in (0.1, 0.8, 1.1):
            error = stopped_in(seconds, ranks.restart)
            if isinstance(error, RankInterrupt):
                assert "stopped while the ranks were starting, so none runs now" in str(error)
                assert started() == 0
        ranks.restart()
        assert ranks.run(lambda: 1) == [1, 1]
        assert started() == 2
    assert started() == 0


@posix
@pytest.mark.parametrize("end", [RankGroup.restart, RankGroup.shutdown], ids=["restart", "shutdown"])
def test_a_stop_while_slow_ranks_end_leaves_none_of_them(
    started: Callable[[], int], end: Callable[[RankGroup], None]
) -> None:
    with mgpu.start_ranks(2, device="cpu") as ranks:
        ranks.execute(BUSY)
        old = [psutil.Process(kernel.process.pid) for kernel in ranks._kernels]
        stopped_in(0.2, lambda: end(ranks))
        assert not any(process.is_running() for process in old)
    assert started() == 0


def test_two_threads_that_start_ranks_leave_one_group(started: Callable[[], int]) -> None:
    threads = [threading.Thread(target=mgpu.start_ranks, args=(1,), kwargs={"device": "cpu"}) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert started() == 1
    current_group().shutdown()
    assert started() == 0


def test_work_that_is_waited_for_is_told_like_any_collective(two_ranks: RankGroup) -> None:
    two_ranks.timeout = 2.0
    code = "if rank == 0:\n    work = dist.all_reduce(torch.ones(2), async_op=True)\n    work.wait()"
    began = time.monotonic()
    with pytest.raises(mgpu.RankTimeout) as caught:
        two_ranks.execute(code)
    assert time.monotonic() - began < 3 * two_ranks.timeout
    assert "rank 0 waits inside all_reduce   cell, line 3: work.wait()" in str(caught.value)
    assert "for rank 1, which has already finished and will never join" in str(caught.value)


def test_waiting_for_something_else_is_no_collective(two_ranks: RankGroup) -> None:
    two_ranks.timeout = 1.0
    with pytest.raises(mgpu.RankTimeout, match="had more work than the time allows"):
        two_ranks.execute("import threading\nthreading.Event().wait()")


def test_a_message_of_megabytes_is_cut(two_ranks: RankGroup) -> None:
    two_ranks.timeout = 20.0
    with pytest.raises(mgpu.RankError, match="raised ValueError: a b") as caught:
        two_ranks.execute("raise ValueError('a b\\n' * 2_500_000)")
    assert len(str(caught.value)) < 10_000
    assert "9,996,000 characters are not shown" in str(caught.value)


def test_a_second_process_group_is_explained(two_ranks: RankGroup) -> None:
    with pytest.raises(mgpu.RankError, match="These ranks have a process group already"):
        two_ranks.execute("dist.init_process_group('gloo')")


def test_what_is_no_code_and_no_time_is_refused_in_one_sentence(two_ranks: RankGroup) -> None:
    with pytest.raises(ValueError, match="execute takes source code as text, not int"):
        two_ranks.execute(123)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        two_ranks.timeout = 10**400
