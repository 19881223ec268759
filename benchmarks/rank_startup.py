"""How long two ranks take from cold to their first finished all_reduce beside other launchers, and a later cell.

    python benchmarks/rank_startup.py --rounds 5

The ways are measured in turn within each round, from one process which has PyTorch imported already, as a notebook's
kernel has. mp.spawn and torchrun have no later cell: the same work again is another start. ipyparallel, which has
engines that stay, is measured as well where it is installed (`pip install ipyparallel`).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import mgpu_utils as mgpu
from mgpu_utils import torchrun
from mgpu_utils.rendezvous import loopback_interface
from mgpu_utils.timing import median_interval

WORLD_SIZE = 2
CELLS = 20


def first_all_reduce() -> float:
    """Sum one number over all ranks. Collective: one all_reduce."""
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()


def spawned(rank: int, port: int, results: mp.SimpleQueue) -> None:
    """What each process of mp.spawn does."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, WORLD_SIZE, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    results.put(first_all_reduce())
    torchrun.leave()


def time_start_ranks() -> tuple[float, float]:
    """Return seconds to the first finished all_reduce, and the median seconds of a trivial cell afterwards."""
    started = time.perf_counter()
    with mgpu.start_ranks(WORLD_SIZE, device="cpu") as ranks:
        answers = ranks.run(first_all_reduce)
        seconds = time.perf_counter() - started
        assert answers == [WORLD_SIZE] * WORLD_SIZE, answers
        cells = []
        for _ in range(CELLS):
            started = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                ranks.execute("1")
            cells.append(time.perf_counter() - started)
    return seconds, statistics.median(cells)


def time_spawn() -> float:
    """Return seconds to the first finished all_reduce with torch.multiprocessing.spawn."""
    started = time.perf_counter()
    store = dist.TCPStore("127.0.0.1", 0, WORLD_SIZE, is_master=True, wait_for_workers=False)
    results = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(spawned, (store.port, results), nprocs=WORLD_SIZE, join=False)
    answers = [results.get() for _ in range(WORLD_SIZE)]
    seconds = time.perf_counter() - started
    assert answers == [WORLD_SIZE] * WORLD_SIZE, answers
    while not context.join():
        pass
    return seconds


def time_torchrun() -> float:
    """Return seconds to the first finished all_reduce with torch.distributed.run."""
    started = time.time()
    result = torchrun.run(__file__, ["--as-rank"], nproc_per_node=WORLD_SIZE, timeout=120)
    assert result.ok, result.reason
    return max(result.delivered) - started


def on_engine(rank: int, port: int) -> float:
    """What each engine of ipyparallel does first: join a group, then sum one number."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()


def time_ipyparallel() -> tuple[float, float]:
    """Return seconds to the first finished all_reduce with ipyparallel's engines, and those of a trivial cell."""
    import ipyparallel

    started = time.perf_counter()
    store = dist.TCPStore("127.0.0.1", 0, WORLD_SIZE, is_master=True, wait_for_workers=False)
    with ipyparallel.Cluster(n=WORLD_SIZE, log_level=40) as engines:
        view = engines[:]
        view.use_cloudpickle()
        pending = [engines[rank].apply_async(on_engine, rank, store.port) for rank in range(WORLD_SIZE)]
        answers = [one.get(timeout=120) for one in pending]
        seconds = time.perf_counter() - started
        assert answers == [WORLD_SIZE] * WORLD_SIZE, answers
        cells = []
        for _ in range(CELLS):
            started = time.perf_counter()
            view.execute("1", block=True)
            cells.append(time.perf_counter() - started)
    return seconds, statistics.median(cells)


def as_rank() -> None:
    """What each process of torchrun does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    assert first_all_reduce() == WORLD_SIZE
    torchrun.deliver(time.time())
    torchrun.leave()


def measure(rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return seconds to the first all_reduce and seconds of a later cell, by launcher, one value a round."""
    launchers = ["start_ranks", "mp.spawn", "torchrun"]
    if importlib.util.find_spec("ipyparallel"):
        launchers.append("ipyparallel")
    starts: dict[str, list[float]] = {name: [] for name in launchers}
    cells: dict[str, list[float]] = {name: [] for name in launchers if name in STAYING}
    for number in range(rounds):
        for name in random.Random(number).sample(launchers, len(launchers)):
            if name in STAYING:
                start, cell = STAYING[name]()
                starts[name].append(start)
                cells[name].append(cell)
            else:
                starts[name].append(time_spawn() if name == "mp.spawn" else time_torchrun())
        print(f"round {number + 1} of {rounds} measured", file=sys.stderr, flush=True)
    return starts, cells


STAYING = {"start_ranks": time_start_ranks, "ipyparallel": time_ipyparallel}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        as_rank()
    interface = loopback_interface()
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    starts, cells = measure(options.rounds)
    print(f"{WORLD_SIZE} ranks, cold to first finished all_reduce; median of {options.rounds} rounds, 95 % interval")
    for name, seconds in starts.items():
        median, low, high = median_interval(seconds)
        ratios = [mine / base for mine, base in zip(seconds, starts["start_ranks"], strict=True)]
        times, times_low, times_high = median_interval(ratios)
        beside = "" if name == "start_ranks" else f"   {times:.2f} x start_ranks [{times_low:.2f}, {times_high:.2f}]"
        print(f"{name:12} {median:6.2f} s   [{low:.2f}, {high:.2f}]{beside}")
    print("the same ranks again, a trivial cell (mp.spawn and torchrun have to start again):")
    for name, seconds in cells.items():
        median, low, high = median_interval(seconds)
        print(f"{name:12} {median * 1e3:6.1f} ms  [{low * 1e3:.1f}, {high * 1e3:.1f}]")


if __name__ == "__main__":
    main()
