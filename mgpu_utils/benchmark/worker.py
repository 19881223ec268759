"""One measured run: what every process of it does, from building the model to delivering its seconds.

Started by `mgpu_utils.torchrun`, one process a rank (one in all for strategies that live in one process).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from mgpu_utils import torchrun
from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.warmup import MOST, WarmUp, agreed
from mgpu_utils.benchmark.workload import BatchesFromLoader, BatchesInMemory, loss_sum
from mgpu_utils.models import build
from mgpu_utils.peak_memory import PeakMemory
from mgpu_utils.strategies import Strategy
from mgpu_utils.timing import Stopwatch
from mgpu_utils.torchrun_agent import end_with

LEARNING_RATE = 1e-3
MOMENTUM = 0.9


class Training:
    """One model under one strategy, ready to do whole steps.

    Args:
        job: the fields of a `Configuration`, and a seed.
        device: where this process works.
    """

    def __init__(self, job: dict[str, Any], device: torch.device) -> None:
        contender = CONTENDERS[job["strategy"]]
        options = {} if job.get("bucket_cap_mb") is None else {"bucket_cap_mb": job["bucket_cap_mb"]}
        self.strategy: Strategy = contender.build(job["world_size"], device, options)
        self.module: nn.Module = contender.wrap(self.strategy, build(job["model"], seed=job["seed"])).train()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self.micro_batches: int = job.get("accumulation", 1)
        self.precision: str = job.get("precision", "float32")
        # A process that drives all devices takes the whole micro-batch, a rank takes one device's share of it.
        self.local_batch: int = job["per_device_batch"] * (job["world_size"] if contender.processes == "one" else 1)
        ranks = self.strategy.world_size if contender.communicates else 1
        self.global_batch = self.local_batch * self.micro_batches * ranks
        seed = job["seed"] + int(os.environ.get("RANK", "0"))
        if job.get("num_workers") is None:
            self.next_batch: Callable[[], Any] = BatchesInMemory(job["model"], self.local_batch, seed, device)
        else:
            warmup = job["warmup"] if isinstance(job["warmup"], int) else MOST
            self.next_batch = BatchesFromLoader(
                job["model"],
                self.local_batch,
                seed,
                device,
                workers=job["num_workers"],
                load_ms=job.get("load_ms", 0.0),
                batches=(warmup + job["steps"]) * self.micro_batches,
            )

    def step(self) -> None:
        """One whole step: forward and backward of each micro-batch, one update."""
        self.optimizer.zero_grad(set_to_none=True)
        for number in range(self.micro_batches):
            inputs, targets = self.next_batch()
            with self._without_sync(number < self.micro_batches - 1):
                with self._autocast():
                    outputs = self.module(inputs)
                    loss = self.strategy.scale_loss(loss_sum(outputs, targets), self.global_batch)
                loss.backward()
        self.optimizer.step()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.strategy.device.type, dtype=getattr(torch, self.precision))

    def _without_sync(self, wanted: bool) -> AbstractContextManager[Any]:
        no_sync = getattr(self.module, "no_sync", None)
        return no_sync() if wanted and no_sync is not None else nullcontext()


def enter(job: dict[str, Any]) -> torch.device:
    """Make this process ready for a job: threads, device, process group. Return its device.

    Ranks of a job without a backend never talk; several of them have a group all the same, to start at one moment.
    """
    end_with(os.getppid())
    torch.set_num_threads(job["threads_per_process"])
    on_cpu = job["device_type"] == "cpu"
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu") if on_cpu else torch.device(job["device_type"], local_rank)
    if not on_cpu:
        torch.accelerator.set_device_index(local_rank)
    if job["backend"] is not None:
        dist.init_process_group(job["backend"], device_id=None if on_cpu else device)
    elif int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
    # The whole comparison runs on one kind of device, also where the course would choose another for a strategy.
    os.environ["MGPU_DEVICE"] = job["device_type"]
    return device


def start_together() -> None:
    """Wait until all processes of the run are here."""
    if dist.is_initialized():
        dist.barrier()


def warm_up(step: Callable[[], None], wanted: int | str, device: torch.device) -> dict[str, Any]:
    """Do `wanted` steps that do not count, or with "auto" as many as it takes until all ranks' steps are steady.

    Returns what a record holds of it (see `WarmUp.to_dict`), and the seconds it took.
    """
    watch = Stopwatch(device)
    vote_on = device if dist.is_initialized() and "nccl" in str(dist.get_backend()) else torch.device("cpu")
    if wanted == "auto":
        warmup = WarmUp(agree=lambda steady: agreed(steady, vote_on))
    else:
        warmup = WarmUp(least=int(wanted), most=int(wanted))
    for _ in warmup:
        watch.start()
        step()
        warmup.add(watch.stop())
    found = warmup.to_dict()
    if wanted != "auto":
        # So few steps were asked for, not found: whether they were enough is not known.
        found["warmup_steady"] = None
    return found | {"warmup_seconds": sum(warmup.seconds)}


def run_steps(step: Callable[[], None], *, steps: int, device: torch.device) -> dict[str, Any]:
    """Do `steps` steps and return what they took, in seconds; each step's own seconds on a CPU only."""
    step_seconds: list[float] = []
    watch = Stopwatch(device).start()
    last = time.perf_counter()
    for _ in range(steps):
        step()
        # An accelerator works on while the host goes ahead: a look at the clock after each step would say nothing.
        if device.type == "cpu":
            now = time.perf_counter()
            step_seconds.append(now - last)
            last = now
    return {"seconds": watch.stop(), "step_seconds": step_seconds}


@record
def main() -> None:
    """Run the job given as JSON in the first argument and deliver what this rank measured."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    device = enter(job)
    training = Training(job, device)
    start_together()
    ready_at = time.time()
    # DataParallel drives several devices from one process; each has its own peak.
    with PeakMemory(getattr(training.strategy, "devices", [device])) as peak:
        warmed = warm_up(training.step, job["warmup"], device)
        start_together()
        measured = run_steps(training.step, steps=job["steps"], device=device)
    torchrun.deliver(
        warmed
        | measured
        | {
            "ready_at": ready_at,
            "samples": job["steps"] * training.local_batch * training.micro_batches,
            "threads": torch.get_num_threads(),
            "peak_memory": peak.bytes,
        }
    )
    torchrun.leave()


if __name__ == "__main__":
    main()
