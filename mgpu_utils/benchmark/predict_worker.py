"""What the predictions need, measured in one launch: parts of a step, collectives, and whole steps to compare with.

Everything is measured in turns, block after block, so that a busy moment of the machine meets all of it alike.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from mgpu_utils import torchrun
from mgpu_utils.benchmark.worker import LEARNING_RATE, MOMENTUM, enter
from mgpu_utils.benchmark.workload import Batch, BatchesInMemory, loss_sum
from mgpu_utils.models import build
from mgpu_utils.scaling.buckets import arrival_order, assign_module
from mgpu_utils.strategies import DataParallel
from mgpu_utils.timing import Stopwatch


def loss_of(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean loss of one batch."""
    inputs, targets = batch
    return loss_sum(module(inputs), targets) / len(targets)


class Trainer:
    """One model on one device with its optimizer and batches, which does steps and times them."""

    def __init__(self, module: nn.Module, next_batch: Callable[[], Batch], device: torch.device) -> None:
        self.module, self.next_batch, self.device = module.train(), next_batch, device
        self.optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def phases(self) -> dict[str, float]:
        """Do one step; return the seconds of each phase."""
        batch = self.next_batch()
        watch = Stopwatch(self.device)
        seconds = {}
        watch.start()
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self.module, batch)
        seconds["forward"] = watch.stop()
        watch.start()
        loss.backward()
        seconds["backward"] = watch.stop()
        watch.start()
        self.optimizer.step()
        seconds["optimizer"] = watch.stop()
        return seconds

    def step(self) -> float:
        """Do one step; return its seconds."""
        watch = Stopwatch(self.device).start()
        self.optimizer.zero_grad(set_to_none=True)
        loss_of(self.module, self.next_batch()).backward()
        self.optimizer.step()
        return watch.stop()


def gradient_arrival(module: nn.Module, batch: Batch, repeats: int = 3) -> list[float]:
    """Return for each parameter the share of backward after which its gradient is there, registration order.

    On a CPU from the clock; elsewhere launching runs ahead of computing, so each parameter counts by its size.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if parameters[0].device.type != "cpu":
        sizes = [parameter.numel() for parameter in parameters]
        return [sum(sizes[place:]) / sum(sizes) for place in range(len(sizes))]
    seen: list[list[float]] = [[] for _ in parameters]
    began = 0.0

    def note(place: int) -> Callable[[Any], None]:
        return lambda _: seen[place].append(time.perf_counter() - began)

    handles = [p.register_post_accumulate_grad_hook(note(i)) for i, p in enumerate(parameters)]
    totals = []
    for _ in range(repeats):
        loss = loss_of(module, batch)
        began = time.perf_counter()
        loss.backward()
        totals.append(time.perf_counter() - began)
    for handle in handles:
        handle.remove()
    module.zero_grad(set_to_none=True)
    return [min(1.0, statistics.median(t / total for t, total in zip(times, totals, strict=True))) for times in seen]


def measure_collectives(sizes: list[int], repeats: int, device: torch.device) -> dict[int, list[float]]:
    """Return the seconds of each all-reduce of float32 tensors, by bytes. Collective."""
    seconds: dict[int, list[float]] = {}
    for size in sizes:
        tensor = torch.ones(max(1, size // 4), device=device)
        for number in range(repeats + 2):
            dist.barrier()
            watch = Stopwatch(device).start()
            dist.all_reduce(tensor)
            taken = watch.stop()
            if number >= 2:
                seconds.setdefault(size, []).append(taken)
    return seconds


def copy_bandwidth(device: torch.device, other: torch.device, size: int = 8 * 1024**2) -> float:
    """Bytes a second of copying a tensor from ``device`` to ``other``, as DataParallel copies a model."""
    source, target = torch.ones(size // 4, device=device), torch.empty(size // 4, device=other)
    times = []
    for _ in range(6):
        watch = Stopwatch(device).start()
        target.copy_(source)
        times.append(watch.stop())
    return size / statistics.median(times[1:])


@record
def main() -> None:
    """Run the job given as JSON in the first argument and deliver what this rank measured."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    device = enter(job)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    # Waiting must cost no core, and no GPU.
    waiting = dist.new_group(backend="gloo")
    alone = [dist.new_group([other]) for other in range(world_size)][rank]
    together = _Turns(waiting, rank)
    torchrun.deliver(_measure(job, rank, world_size, device, alone, together))
    torchrun.leave()


class _Turns:
    """Who measures when: all ranks at the same moment, or rank 0 while the others wait."""

    def __init__(self, waiting: Any, rank: int) -> None:
        self._waiting, self._rank = waiting, rank

    def all(self, work: Callable[[], None]) -> None:
        dist.barrier(self._waiting)
        work()
        dist.barrier(self._waiting)

    def first(self, work: Callable[[], None]) -> None:
        dist.barrier(self._waiting)
        if self._rank == 0:
            work()
        dist.barrier(self._waiting)


class _Bench:
    """Everything that is measured at one batch; ``seen`` holds the seconds of each step by what it was."""

    def __init__(self, trainers: dict[str, Trainer]) -> None:
        self._trainers = trainers
        self.seen: dict[str, list[float]] = {}

    def block(self, steps: int, turns: _Turns) -> None:
        """Do ``steps`` steps of each kind, one kind after another. Collective."""
        turns.first(lambda: self._phases(steps))
        for kind in ("single", "ddp_alone", "data_parallel"):
            turns.first(functools.partial(self._steps, kind, kind, steps))
        turns.all(lambda: self._steps("single", "independent", steps))
        turns.all(lambda: self._steps("ddp", "ddp", steps))

    def _steps(self, kind: str, name: str, steps: int) -> None:
        self.seen.setdefault(name, []).extend(self._trainers[kind].step() for _ in range(steps))

    def _phases(self, steps: int) -> None:
        for _ in range(steps):
            for phase, seconds in self._trainers["single"].phases().items():
                self.seen.setdefault(phase, []).append(seconds)


def _measure(
    job: dict[str, Any], rank: int, world_size: int, device: torch.device, alone: Any, turns: _Turns
) -> dict[str, Any]:
    model, seed = job["model"], job["seed"]

    def module() -> nn.Module:
        return build(model, seed=seed).to(device)

    def ddp(group: Any = None) -> nn.Module:
        ids = None if device.type == "cpu" else [device]
        return nn.parallel.DistributedDataParallel(module(), device_ids=ids, process_group=group)

    plain = module()
    probe = BatchesInMemory(model, max(job["batches"]), seed, device)()
    order = arrival_order(plain, lambda module: loss_of(module, probe))
    buckets = assign_module(plain, order=order)
    benches = []
    for batch in job["batches"]:
        mine = BatchesInMemory(model, batch, seed + rank, device)
        trainers = {"single": Trainer(module(), mine, device), "ddp_alone": Trainer(ddp(alone), mine, device)}
        trainers["ddp"] = Trainer(ddp(), mine, device)
        if rank == 0:
            everyone = BatchesInMemory(model, batch * world_size, seed, device)
            trainers["data_parallel"] = Trainer(DataParallel(world_size).wrap(module()), everyone, device)
        benches.append(_Bench(trainers))
    for block in range(job["blocks"] + 1):
        for bench in benches:
            bench.block(job["warmup"] if block == 0 else job["steps"], turns)
            if block == 0:
                bench.seen.clear()
    points = [{"batch": batch, "steps": bench.seen} for batch, bench in zip(job["batches"], benches, strict=True)]
    sizes = sorted({*job["sizes"], *(bucket.size for bucket in buckets)})
    collectives = {size: statistics.median(v) for size, v in measure_collectives(sizes, job["repeats"], device).items()}
    images, labels = BatchesInMemory(model, 1, seed, device)()
    return {
        "points": points,
        "collectives": [{"size": size, "seconds": seconds} for size, seconds in collectives.items()],
        "buckets": [{"parameters": list(bucket.parameters), "size": bucket.size} for bucket in buckets],
        "arrival": gradient_arrival(plain, probe),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in plain.parameters()),
        "modules": sum(1 for _ in plain.modules()),
        "sample_bytes": images.numel() * images.element_size() + labels.numel() * labels.element_size(),
        "output_bytes": _output_bytes(plain, images),
        "copy_bandwidth": copy_bandwidth(device, _neighbour(device, world_size)),
    }


def _neighbour(device: torch.device, world_size: int) -> torch.device:
    return device if device.type == "cpu" else torch.device(device.type, ((device.index or 0) + 1) % world_size)


def _output_bytes(module: nn.Module, images: torch.Tensor) -> int:
    with torch.no_grad():
        output = module(images)
    return output.numel() * output.element_size()


if __name__ == "__main__":
    main()
