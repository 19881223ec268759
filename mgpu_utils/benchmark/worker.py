"""One measured run: what every process of it does, from building the model to delivering its seconds.

Started by `mgpu_utils.torchrun`, one process a rank (one in all for strategies that live in one process).
Inputs lie ready in memory: a run measures compute and communication, not loading.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

from mgpu_utils import torchrun
from mgpu_utils.data import synthetic_images
from mgpu_utils.models import MODELS, build
from mgpu_utils.strategies import DataParallel, DistributedDataParallel, SingleDevice, Strategy
from mgpu_utils.timing import Stopwatch
from mgpu_utils.torchrun_agent import end_with

LEARNING_RATE = 1e-3
MOMENTUM = 0.9
_DIFFERENT_BATCHES = 4


def make_batches(model: str, batch: int, seed: int, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a few synthetic batches on ``device``: images (batch, C, H, W) float32 and labels (batch,) int64."""
    _, shape, classes = MODELS[model]
    images, labels = synthetic_images(batch * _DIFFERENT_BATCHES, shape, classes, seed).tensors
    return [
        (some_images.to(device), some_labels.to(device))
        for some_images, some_labels in zip(images.split(batch), labels.split(batch), strict=True)
    ]


def make_step(strategy: Strategy, model: str, local_batch: int, global_batch: int, seed: int) -> Callable[[int], None]:
    """Return one whole training step (forward, backward, update) as a function of the step's number."""
    module = strategy.wrap(build(model, seed=seed))
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    batches = make_batches(model, local_batch, seed + strategy.rank, strategy.device)

    def step(number: int) -> None:
        images, labels = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss_sum = F.cross_entropy(module(images), labels, reduction="sum")
        strategy.scale_loss(loss_sum, global_batch).backward()
        optimizer.step()

    return step


def run_steps(
    step: Callable[[int], None],
    *,
    warmup: int,
    steps: int,
    device: torch.device,
    start_together: Callable[[], None],
) -> dict[str, float]:
    """Do ``warmup`` steps, wait for the others, do ``steps`` steps; return both durations in seconds."""
    watch = Stopwatch(device).start()
    for number in range(warmup):
        step(number)
    warmup_seconds = watch.stop()
    start_together()
    watch.start()
    for number in range(steps):
        step(number)
    return {"warmup_seconds": warmup_seconds, "seconds": watch.stop()}


def build_strategy(name: str, world_size: int, device: torch.device) -> Strategy:
    """Return the strategy which this process runs under. `independent` is a single-device job in every rank."""
    if name == "ddp":
        return DistributedDataParallel(device=device)
    if name == "data_parallel":
        return DataParallel(devices=world_size)
    return SingleDevice(device=device)


@record
def main() -> None:
    """Run the job given as JSON in the first argument and deliver what this rank measured."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    end_with(os.getppid())
    torch.set_num_threads(job["threads_per_process"])
    rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_cpu = job["device_type"] == "cpu"
    device = torch.device("cpu") if on_cpu else torch.device(job["device_type"], rank)
    if not on_cpu:
        torch.accelerator.set_device_index(rank)

    if job["strategy"] == "ddp":
        dist.init_process_group(job["backend"], device_id=None if on_cpu else device)
    elif processes > 1:
        # Only to start at the same moment; nothing is sent while the steps are measured.
        dist.init_process_group("gloo")
    # The whole comparison runs on one kind of device, also where the course would choose another for a
    # strategy.
    os.environ["MGPU_DEVICE"] = job["device_type"]
    strategy = build_strategy(job["strategy"], job["world_size"], device)
    splits = job["strategy"] in ("ddp", "independent")
    local_batch = job["per_device_batch"] if splits else job["global_batch"]
    step_batch = job["global_batch"] if job["strategy"] != "independent" else local_batch
    step = make_step(strategy, job["model"], local_batch, step_batch, job["seed"])

    def start_together() -> None:
        if dist.is_initialized():
            dist.barrier()

    start_together()
    ready_at = time.time()
    measured = run_steps(step, warmup=job["warmup"], steps=job["steps"], device=device, start_together=start_together)
    torchrun.deliver(
        measured
        | {
            "ready_at": ready_at,
            "samples": job["steps"] * local_batch,
            "threads": torch.get_num_threads(),
        }
    )
    torchrun.leave()


if __name__ == "__main__":
    main()
