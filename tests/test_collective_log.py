"""What ranks call is noted, compared, and named when it does not fit; what does fit never raises an alarm."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import psutil
import pytest

import mgpu_utils as mgpu
from mgpu_utils.collective_log import SLOTS, LogReader, LogWriter, What, mapped, shared_memory
from mgpu_utils.collective_match import CollectiveMatch, ordinal
from mgpu_utils.ranks import RankGroup

ALL = "0/0/0,1"


def log() -> tuple[LogWriter, LogReader]:
    descriptor = shared_memory()
    if descriptor is None:
        pytest.skip("two processes cannot share memory here")
    memory = mapped(descriptor)
    return LogWriter(memory), LogReader(memory)


def called(operation: str = "all_reduce", group: str = ALL, **details: str) -> What:
    return What(group, operation, **details)  # type: ignore[arg-type]


# The log itself


def test_calls_are_read_in_order_with_all_that_was_noted() -> None:
    writer, reader = log()
    what = What(ALL, "broadcast", "(2, 3)", "float32", "", "1", "/tmp/ünï.py", 7, "step")
    at = writer.begin(1, what.packed())
    writer.begin(2, called("barrier").packed())
    first, second = reader.new()
    assert (first.what, first.sequence, first.what.ranks) == (what, 1, (0, 1))
    assert str(first.what) == "broadcast (shape (2, 3), float32, root rank 1)"
    assert (second.number, str(second.what)) == (2, "barrier")
    assert reader.new() == []
    assert reader.end_of(first) is None
    writer.end(at)
    assert (reader.end_of(first) or 0) >= first.start


def test_a_reader_that_is_too_slow_misses_old_calls_and_keeps_the_right_numbers() -> None:
    writer, reader = log()
    for number in range(1, 3 * SLOTS + 8):
        writer.begin(number, called().packed())
    calls = reader.new()
    assert [call.sequence for call in calls] == list(range(2 * SLOTS + 8, 3 * SLOTS + 8))
    assert reader.made() == {ALL: 3 * SLOTS + 7}


def test_a_call_that_was_refused_does_not_count() -> None:
    writer, reader = log()
    writer.begin(1, called().packed())
    writer.refuse(writer.begin(2, called().packed()))
    reader.new()
    assert reader.made() == {ALL: 1}


def test_text_that_is_too_long_loses_its_line_and_not_the_call() -> None:
    writer, reader = log()
    writer.begin(1, called(file="/" + "x" * 900, shape="(2,)").packed())
    (call,) = reader.new()
    assert (call.what.file, call.what.shape) == ("", "(2,)")


# What is compared


def test_the_first_calls_that_differ_are_found_and_equal_ones_are_not() -> None:
    logs = [log(), log()]
    match = CollectiveMatch({rank: reader for rank, (_, reader) in enumerate(logs)})
    for writer, _ in logs:
        writer.begin(1, called(shape="(2,)").packed())
    assert match.look() is None
    logs[0][0].begin(2, called("barrier").packed())
    assert match.look() is None
    logs[1][0].begin(2, called("broadcast", root="0").packed())
    found = match.look()
    assert found is not None
    assert found.sequence == 2
    assert found.lines(lambda what: None)[:3] == [
        "ranks 0 and 1 do not match in their 2nd collective of this cell: operations differ.",
        "  rank 0 called barrier",
        "  rank 1 called broadcast (root rank 0)",
    ]


def test_calls_of_different_groups_or_of_an_unknown_one_are_never_compared() -> None:
    logs = [log(), log()]
    match = CollectiveMatch({rank: reader for rank, (_, reader) in enumerate(logs)})
    for rank, (writer, _) in enumerate(logs):
        writer.begin(1, called(("all_reduce", "barrier")[rank], group=f"0/{rank}/0,1").packed())
        writer.begin(1, called(("all_reduce", "barrier")[rank], group="").packed())
    assert match.look() is None


def test_a_cell_counts_from_its_own_beginning() -> None:
    logs = [log(), log()]
    logs[0][0].begin(1, called("broadcast").packed())  # a cell on rank 0 alone
    match = CollectiveMatch({rank: reader for rank, (_, reader) in enumerate(logs)})
    for rank, (writer, _) in enumerate(logs):
        writer.begin(2 - rank, called().packed())
        writer.begin(3 - rank, called("barrier").packed())
    assert match.look() is None
    assert match.uneven() is None
    logs[1][0].begin(3, called().packed())
    match.look()
    assert match.uneven() == {0: 2, 1: 3}


def test_ordinals() -> None:
    assert " ".join(map(ordinal, (1, 2, 3, 4, 11, 12, 21, 113))) == "1st 2nd 3rd 4th 11th 12th 21st 113th"


# On ranks


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (
            "every public collective",
            """
            x, many = torch.ones(2), [torch.zeros(2) for _ in range(world_size)]
            dist.all_reduce(x, op=dist.ReduceOp.MAX); dist.broadcast(x, src=0); dist.reduce(x, 0)
            dist.all_gather(many, x); dist.all_gather_into_tensor(torch.zeros(2 * world_size), x)
            dist.gather(x, many if rank == 0 else None, dst=0); dist.scatter(x, many if rank == 0 else None, src=0)
            dist.reduce_scatter_tensor(torch.zeros(1), torch.ones(world_size))
            dist.all_to_all_single(torch.zeros(world_size), torch.ones(world_size)); dist.barrier()
            dist.all_gather_object([None] * world_size, {"rank": "x" * rank}); dist.broadcast_object_list([rank], src=0)
            dist.all_reduce(x, async_op=True).wait()
            from torch.distributed import all_reduce
            all_reduce(x)
            """,
        ),
        (
            "groups of some ranks, with other calls in each",
            """
            single = [dist.new_group([r]) for r in range(world_size)]
            everyone = dist.new_group()
            for _ in range(3 + rank):
                dist.all_reduce(torch.ones(rank + 1), group=single[rank])
            dist.broadcast(torch.ones(1), group_src=0, group=everyone); dist.barrier(everyone); dist.barrier()
            """,
        ),
        (
            "sizes that may differ",
            """
            give = [rank + 1] * world_size; take = [r + 1 for r in range(world_size)]
            dist.all_to_all_single(torch.zeros(sum(take)), torch.ones(sum(give)), take, give)
            """,
        ),
        (
            "functional collectives, a compiled one, and a mesh",
            """
            import torch.distributed._functional_collectives as functional
            from torch.distributed.device_mesh import init_device_mesh
            functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD).wait()
            @torch.compile(backend="eager", fullgraph=True)
            def doubled(x):
                dist.all_reduce(x)
                return x * 2
            assert doubled(torch.ones(1)).item() == 2 * world_size
            init_device_mesh("cpu", (world_size,))
            """,
        ),
        (
            "FSDP",
            """
            from torch.distributed.fsdp import fully_shard
            model = fully_shard(torch.nn.Linear(4, 4))
            model(torch.ones(2, 4)).sum().backward()
            """,
        ),
        (
            "an argument that is refused on one rank",
            """
            if rank == 1:
                try:
                    dist.all_reduce("no tensor")
                except TypeError:
                    pass
            dist.all_reduce(torch.ones(1))
            """,
        ),
        ("DDP", "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()"),
    ],
)
def test_calls_that_fit_raise_no_alarm(two_ranks: RankGroup, name: str, code: str) -> None:
    import textwrap

    two_ranks.execute(textwrap.dedent(code))
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_a_result_that_gloo_made_of_different_sizes_is_no_result(two_ranks: RankGroup) -> None:
    def broadcast() -> float:
        x = torch.full((4 if rank == 0 else 8,), float(rank))  # type: ignore[name-defined] # noqa: F821
        dist.broadcast(x, 0)  # type: ignore[name-defined] # noqa: F821
        return float(x.sum())

    with pytest.raises(
        mgpu.RankError, match="do not match in their 1st collective of this cell: shapes differ"
    ) as caught:
        two_ranks.run(broadcast)
    assert [failure.kind for failure in caught.value.failures][:2] == ["mismatched", "mismatched"]
    assert "rank 1 called broadcast (shape (8,), float32, root rank 0)   test_collective_log.py, line" in str(
        caught.value
    )
    assert two_ranks.needs_restart


def test_calls_that_pytorch_itself_compared_are_told_in_its_words_and_the_group_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    code = "import time\nif rank == 1:\n    time.sleep(1)\ndist.all_reduce(torch.ones(1 + rank))"
    with mgpu.start_ranks(2, device="cpu") as ranks:
        # Rank 0 has made its call and does not answer rank 1's for a while, as on a busy machine.
        process = psutil.Process(ranks._kernels[0].process.pid)
        timers = [threading.Timer(0.6, process.suspend), threading.Timer(3.0, process.resume)]
        for timer in timers:
            timer.start()
        with pytest.raises(mgpu.RankError, match="Detected mismatch between collectives"):
            ranks.execute(code)
        for timer in timers:
            timer.join()
        assert ranks.run(lambda: 1) == [1, 1]


def test_another_reduce_operation_is_told_and_the_ranks_stay_usable(two_ranks: RankGroup) -> None:
    with pytest.raises(mgpu.RankError, match="reduce operations differ") as caught:
        two_ranks.execute("dist.all_reduce(torch.ones(1), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)")
    assert "rank 1 called all_reduce (shape (1,), float32, MAX)" in str(caught.value)
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_a_call_too_many_is_told_although_nothing_hung(two_ranks: RankGroup) -> None:
    code = "x = torch.ones(1)\nwork = dist.all_reduce(x, async_op=True) if rank == 0 else None"
    with pytest.raises(mgpu.RankError, match="unequal numbers of collectives: rank 0 made 1, rank 1 made 0") as caught:
        two_ranks.execute(code)
    assert "the last of rank 0: all_reduce (shape (1,), float32, SUM)   cell, line 2" in str(caught.value)
    assert two_ranks.needs_restart


def test_the_odd_rank_of_three_is_the_one_that_is_named(three_ranks: RankGroup) -> None:
    with pytest.raises(mgpu.RankError) as caught:
        three_ranks.execute("dist.all_reduce(torch.ones(2 + (rank == 1)))")
    assert caught.value.rank == 1
    assert "  ranks 0 and 2 called all_reduce (shape (2,), float32, SUM)" in str(caught.value)


def test_an_error_carries_what_each_rank_did(two_ranks: RankGroup, close_figures: Callable[[], None]) -> None:
    two_ranks.timeout = 2.0
    with pytest.raises(mgpu.RankTimeout) as caught:
        two_ranks.execute("x = torch.ones(1)\ndist.all_reduce(x)\nif rank == 0:\n    dist.barrier()")
    first, second = caught.value.history
    assert [(span.operation, span.end is None) for span in first.spans] == [("all_reduce", False), ("barrier", True)]
    assert (first.state, second.state) == ("waits", "finished")
    assert 0 <= first.spans[0].start <= second.end < first.end
    ax = caught.value.timeline()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1"]


@pytest.fixture
def close_figures():  # type: ignore[no-untyped-def]
    import matplotlib

    matplotlib.use("agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_the_log_costs_little(two_ranks: RankGroup, note: Callable[[str], None]) -> None:
    code = """
    import statistics, time
    plain = dist.all_reduce.__wrapped__
    x = torch.ones(1)
    def median(call):
        seconds = []
        for _ in range(500):
            start = time.perf_counter()
            call(x)
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)
    pairs = [(median(plain), median(dist.all_reduce)) for _ in range(5)]
    print(statistics.median(noted / bare for bare, noted in pairs))
    """
    import textwrap

    ratio = float(two_ranks.execute(textwrap.dedent(code))[0].text.splitlines()[-1])
    note(f"all_reduce of one number with the log takes {ratio:.2f} times as long as without")
    assert ratio < 5


def test_ranks_work_without_a_log_where_memory_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgpu_utils.rank_kernel.shared_memory", lambda: None)
    with mgpu.start_ranks(1, device="cpu") as ranks:
        ranks.execute("dist.barrier()")
        assert ranks.run(lambda: 1) == [1]


def test_the_memory_of_the_log_has_no_name_and_is_given_back() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    _, reader = log()
    reader.close()
    assert (len(os.listdir("/proc/self/fd")) if before else 0) <= before
