"""What the predictions need, measured in one launch: parts of a step, collectives, and whole steps to compare with.

Everything is measured in turns, block after block, so that a busy moment of the machine meets all of it alike.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from mgpu_utils import torchrun
from mgpu_utils.models import MODELS, build
from mgpu_utils.scaling.buckets import arrival_order, assign_module
from mgpu_utils.strategies import DataParallel
from mgpu_utils.timing import Stopwatch
from mgpu_utils.torchrun_agent import end_with

_LEARNING_RATE, _MOMENTUM = 1e-3, 0.9
_DIFFERENT_BATCHES = 4
Batch = tuple[torch.Tensor, torch.Tensor]


def make_batches(model: str, batch: int, seed: int, device: torch.device) -> list[Batch]:
    """Return a few batches of random inputs and targets for a model of the course, on ``device``."""
    spec = MODELS[model]
    generator = torch.Generator().manual_seed(seed)
    shape = (_DIFFERENT_BATCHES * batch, *spec.sample_shape)
    if spec.takes == "tokens":
        inputs = torch.randint(spec.classes, shape, generator=generator)
        targets = torch.randint(spec.classes, shape, generator=generator)
    else:
        inputs = torch.randn(shape, generator=generator)
        targets = torch.randint(spec.classes, shape[:1], generator=generator)
    return list(zip(inputs.to(device).split(batch), targets.to(device).split(batch), strict=True))


def loss_of(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of one batch, of every class or token."""
    logits = module(batch[0])
    return F.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


class Trainer:
    """One model on one device with its optimizer and batches, which does steps and times them."""

    def __init__(self, module: nn.Module, batches: list[Batch], device: torch.device) -> None:
        self.module, self.batches, self.device = module.train(), batches, device
        self.optimizer = torch.optim.SGD(module.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)
        self.number = 0

    def phases(self) -> dict[str, float]:
        """Do one step; return the seconds of each phase."""
        batch = self._next()
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
        loss_of(self.module, self._next()).backward()
        self.optimizer.step()
        return watch.stop()

    def _next(self) -> Batch:
        self.number += 1
        return self.batches[self.number % len(self.batches)]


def gradient_arrival(module: nn.Module, batch: Batch, repeats: int = 3) -> list[float]:
    """Return for each parameter the share of backward after which its gradient is there, registration order.

    On a CPU from the clock; elsewhere launching runs ahead of computing, so each parameter counts by its size.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if parameters[0].device.type != "cpu":
        sizes = [parameter.numel() for parameter in parameters]
        return [sum(sizes[place:]) / sum(sizes) for place in range(len(sizes))]
    watch = Stopwatch()
    seen: list[list[float]] = [[] for _ in parameters]
    clocks: list[Stopwatch] = []

    def note(place: int) -> Callable[[Any], None]:
        def hook(_: Any) -> None:
            seen[place].append(watch._clock() - clocks[0].seconds)

        return hook

    handles = [p.register_post_accumulate_grad_hook(note(i)) for i, p in enumerate(parameters)]
    totals = []
    for _ in range(repeats):
        loss = loss_of(module, batch)
        started = Stopwatch()
        started.seconds = watch._clock()
        clocks[:] = [started]
        loss.backward()
        totals.append(watch._clock() - started.seconds)
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
    end_with(os.getppid())
    torch.set_num_threads(job["threads_per_process"])
    os.environ["MGPU_DEVICE"] = job["device_type"]
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_cpu = job["device_type"] == "cpu"
    device = torch.device("cpu") if on_cpu else torch.device(job["device_type"], rank)
    if not on_cpu:
        torch.accelerator.set_device_index(rank)
    dist.init_process_group(job["backend"], device_id=None if on_cpu else device)
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
    probe = make_batches(model, max(job["batches"]), seed, device)[0]
    order = arrival_order(plain, lambda module: loss_of(module, probe))
    buckets = assign_module(plain, order=order)
    benches = []
    for batch in job["batches"]:
        mine = make_batches(model, batch, seed + rank, device)
        trainers = {"single": Trainer(module(), mine, device), "ddp_alone": Trainer(ddp(alone), mine, device)}
        trainers["ddp"] = Trainer(ddp(), mine, device)
        if rank == 0:
            everyone = make_batches(model, batch * world_size, seed, device)
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
    images, labels = make_batches(model, 1, seed, device)[0]
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
