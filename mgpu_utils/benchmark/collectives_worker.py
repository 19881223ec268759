"""One measured run of a collective: check that its result is right, then time it at every size.

Started by `mgpu_utils.torchrun`, one process a rank. The rules are those of nccl-tests: the result is checked before
anything is timed, and a rank that is late makes the collective late.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from mgpu_utils import torchrun
from mgpu_utils.benchmark.worker import enter
from mgpu_utils.timing import Stopwatch

# PyTorch's newest names; gloo and nccl have all of them, in place too.
CALLS = {
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "all_gather": "all_gather_single",
    "reduce_scatter": "reduce_scatter_single",
}
WARMUP = 2
MOST_REPEATS = 200
_PERIOD = 7


class Operation(NamedTuple):
    """A collective on buffers of one size.

    Attributes:
        run: does it once.
        result: the tensor that holds its result afterwards.
        expected: makes what `result` must hold after the first run.
        settle: clears the buffers that a repeated sum would make grow without end.
    """

    run: Callable[[], object]
    result: torch.Tensor
    expected: Callable[[], torch.Tensor]
    settle: Callable[[], object]


def pattern(rank: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`count` small whole numbers which tell rank from rank and element from element."""
    base = (torch.arange(_PERIOD) + rank) % _PERIOD + 1
    return _repeated(base, count).to(device, dtype)


def summed(world_size: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The sum of all ranks' patterns."""
    base = sum(((torch.arange(_PERIOD) + rank) % _PERIOD + 1 for rank in range(world_size)), torch.zeros(_PERIOD))
    return _repeated(base, count).to(device, dtype)


def prepare(name: str, size: int, *, in_place: bool, dtype: torch.dtype, device: torch.device) -> Operation:
    """The collective `name` on a message of `size` bytes, counted as nccl-tests does.

    For all_gather `size` is the whole result, for reduce_scatter the whole input. In place, a rank's shard lies inside
    the large buffer; else it has a buffer of its own. Source: https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    count = size // dtype.itemsize
    whole, call = pattern(rank, count, dtype, device), getattr(dist, CALLS[name])
    if name == "all_reduce":
        return Operation(lambda: call(whole), whole, lambda: summed(world_size, count, dtype, device), whole.zero_)
    if name == "broadcast":
        return Operation(lambda: call(whole, src=0), whole, lambda: pattern(0, count, dtype, device), lambda: None)
    share = count // world_size
    mine = slice(rank * share, (rank + 1) * share)
    shard = whole[mine] if in_place else torch.zeros(share, dtype=dtype, device=device)
    if name == "all_gather":
        whole.zero_()
        shard.copy_(pattern(rank, share, dtype, device))
        return Operation(
            lambda: call(whole, shard),
            whole,
            lambda: torch.cat([pattern(other, share, dtype, device) for other in range(world_size)]),
            lambda: None,
        )
    return Operation(
        lambda: call(shard, whole),
        shard,
        lambda: summed(world_size, count, dtype, device)[mine],
        whole.zero_,
    )


def check(operation: Operation) -> int:
    """Run it once and return how many elements of its result are wrong, over all ranks. Collective: one more."""
    operation.run()
    expected = operation.expected()
    # Whole numbers this small are exact but for long sums in bfloat16.
    allowed = torch.finfo(expected.dtype).eps * dist.get_world_size() * expected
    wrong = (~((operation.result - expected).abs() <= allowed)).sum().to(torch.int64)
    dist.all_reduce(wrong)
    return int(wrong)


def seconds_of(run: Callable[[], object], *, calls: int, budget_seconds: float, device: torch.device) -> list[float]:
    """Return this rank's seconds a call, at least 5 times, and as often as `budget_seconds` allows.

    Each time starts after a barrier and ends when the device has finished; `calls` calls in a row are timed together
    and divided. Rank 0 decides how often, so that all ranks call it equally often.
    """
    watch = Stopwatch(device)

    def once() -> float:
        dist.barrier()
        watch.start()
        for _ in range(calls):
            run()
        return watch.stop() / calls

    for _ in range(WARMUP):
        started = time.perf_counter()
        once()
        estimate = time.perf_counter() - started
    repeats = torch.tensor(max(5, min(MOST_REPEATS, round(budget_seconds / estimate))), device=device)
    dist.broadcast(repeats, src=0)
    warmup = int(repeats) // 10
    return [once() for _ in range(warmup + int(repeats))][warmup:]


def slowest(times: list[list[float]], device: torch.device) -> list[list[float]]:
    """Return for every time that of the slowest rank. Collective: one all-reduce for all of them."""
    together = torch.tensor([value for series in times for value in series], dtype=torch.float64, device=device)
    dist.all_reduce(together, op=dist.ReduceOp.MAX)
    return [part.tolist() for part in together.split([len(series) for series in times])]


def _repeated(base: torch.Tensor, count: int) -> torch.Tensor:
    return base.to(torch.float32).repeat(-(-count // _PERIOD))[:count]


@record
def main() -> None:
    """Run the job given as JSON in the first argument; rank 0 delivers the seconds of the slowest rank."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    device = enter(job)
    dtype: torch.dtype = getattr(torch, job["dtype"])
    timing: Any = {"budget_seconds": job["seconds_per_point"], "device": device}
    times = [seconds_of(dist.barrier, calls=1, **timing)]
    for size in job["sizes"]:
        operation = prepare(job["collective"], size, in_place=job["in_place"], dtype=dtype, device=device)
        wrong = check(operation)
        if wrong:
            raise RuntimeError(
                f"{job['collective']} of {size:,} bytes gave {wrong:,} wrong elements; nothing was timed"
            )
        operation.settle()
        times.append(seconds_of(operation.run, calls=job["calls"], **timing))
    barrier, *points = slowest(times, device)
    measured = {"call": f"torch.distributed.{CALLS[job['collective']]}", "barrier": barrier, "points": points}
    torchrun.deliver(measured if dist.get_rank() == 0 else None)
    torchrun.leave()


if __name__ == "__main__":
    main()
