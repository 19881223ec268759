"""One measured run of the breakdown: blocks of plain steps and blocks of profiled steps, one after the other.

Started by `mgpu_utils.torchrun` like `mgpu_utils.benchmark.worker`, whose training it does. Batches come through a
DataLoader without workers, so that fetching one is a part of the step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.distributed.elastic.multiprocessing.errors import record
from torch.profiler import ProfilerActivity, profile, record_function

from mgpu_utils import torchrun
from mgpu_utils.benchmark.warmup import MOST
from mgpu_utils.benchmark.worker import Training, enter, start_together, warm_up
from mgpu_utils.benchmark.workload import loss_sum
from mgpu_utils.step_lanes import lanes_of
from mgpu_utils.step_profile import BLOCK, MARK, Event, StepProfile, events_of, step_profiles
from mgpu_utils.timing import synchronize

_PHASES_OF_DATA_PARALLEL = ("scatter", "replicate", "parallel_apply", "gather")


class MarkedStep:
    """A whole training step whose parts carry marks while `marking` is set.

    Clearing the gradients belongs to the optimizer's part. Under DataParallel its four phases are marked as well.
    """

    def __init__(self, training: Training) -> None:
        self.marking = False
        self._training = training
        if all(hasattr(training.module, name) for name in _PHASES_OF_DATA_PARALLEL):
            for name in _PHASES_OF_DATA_PARALLEL:
                # On this one object only: the algorithm stays what it is.
                setattr(training.module, name, self._marked(name, getattr(training.module, name)))

    def __call__(self) -> None:
        """Do one step."""
        training = self._training
        with self._mark("step"):
            with self._mark("data"):
                inputs, targets = training.next_batch()
            with self._mark("forward"):
                total = loss_sum(training.module(inputs), targets)
                loss = training.strategy.scale_loss(total, training.global_batch)
            with self._mark("backward"):
                loss.backward()
            with self._mark("optimizer"):
                training.optimizer.step()
                training.optimizer.zero_grad(set_to_none=True)

    def _mark(self, name: str) -> AbstractContextManager[Any]:
        return record_function(MARK + name) if self.marking else nullcontext()

    def _marked(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self._mark(name):
                return method(*args, **kwargs)

        return marked


def timed(step: Callable[[], None], steps: int, device: torch.device) -> list[float]:
    """Do `steps` steps and return the seconds of each; on an accelerator, which works ahead, their mean each."""
    synchronize(device)
    moments = [time.perf_counter()]
    for _ in range(steps):
        step()
        moments.append(time.perf_counter())
    synchronize(device)
    if device.type != "cpu":
        return [(time.perf_counter() - moments[0]) / steps] * steps
    return [after - before for before, after in pairwise(moments)]


def profiled(step: MarkedStep, steps: int, device: torch.device) -> tuple[list[float], list[Event], int]:
    """Do `steps` steps under the profiler; return their seconds, the events, and when they began (Unix ns).

    Source: https://docs.pytorch.org/docs/stable/profiler.html
    """
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    # On a CPU the threads in which DataParallel runs its replicas would not be seen; a device sees all its kernels.
    threads = _ExperimentalConfig(profile_all_threads=device.type == "cpu")
    recorder = profile(activities=activities, experimental_config=threads)
    with recorder:
        start_together()
        began = time.time_ns()
        step.marking = True
        with record_function(BLOCK):
            seconds = timed(step, steps, device)
        step.marking = False
    assert recorder.profiler is not None
    # PyTorch's own list of events takes ten times as long to make, while the other ranks wait.
    found: Any = recorder.profiler.kineto_results
    return seconds, events_of(found.events(), began), began


def measure(step: MarkedStep, job: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Do the job's blocks in turn, plain and profiled; return what this rank measured, times in seconds."""
    plain: list[float] = []
    slowed: list[float] = []
    parts: list[StepProfile] = []
    # The first profile of a process sets the profiler up.
    profiled(step, 1, device)
    for _ in range(job["blocks"]):
        start_together()
        plain += timed(step, job["steps"], device)
        seconds, events, began = profiled(step, job["steps"], device)
        slowed += seconds
        parts += step_profiles(events)
    result: dict[str, Any] = {
        "plain_seconds": plain,
        "profiled_seconds": slowed,
        "parts": {name: [step.parts[name] for step in parts] for name in parts[0].parts},
    }
    if job["traced_steps"]:
        last = parts[-job["steps"] :][-job["traced_steps"] :]
        result["timeline"] = {
            "origin_ns": began,
            "machine": int(os.environ.get("GROUP_RANK", "0")),
            "steps": [[round(step.start, 7), round(step.end, 7)] for step in last],
            "lanes": {
                lane: [[piece.name, round(piece.start, 7), round(piece.end, 7)] for piece in held]
                for lane, held in lanes_of(events, last).items()
            },
        }
    return result


@record
def main() -> None:
    """Run the job given as JSON in the first argument and deliver what this rank measured."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    device = enter(job)
    warmup = job["warmup"] if isinstance(job["warmup"], int) else MOST
    steps = 1 + 2 * job["blocks"] * job["steps"]
    loading = {"num_workers": 0, "load_ms": 0.0, "warmup": warmup, "steps": steps}
    step = MarkedStep(Training(job | loading, device))
    start_together()
    warmed = warm_up(step, job["warmup"], device)
    torchrun.deliver(warmed | measure(step, job, device))
    torchrun.leave()


if __name__ == "__main__":
    main()
