"""When one backward pass computed and when its collectives ran, read from PyTorch's profiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from mgpu_utils.step_profile import MARK, Event, Interval, computes_gradients, is_collective, length, merge
from mgpu_utils.timing import synchronize

_MARK = MARK + "backward"


@dataclass(frozen=True)
class BackwardTimeline:
    """One backward pass of one rank; intervals are (start, end) in seconds since it began.

    Attributes:
        compute: when gradients were computed.
        communication: when collectives ran, from the moment one starts moving data to its end.
        seconds: from the start to the moment at which every gradient is final.
    """

    compute: tuple[Interval, ...]
    communication: tuple[Interval, ...]
    seconds: float

    @property
    def communicating(self) -> float:
        """Seconds in which at least one collective ran."""
        return length(merge(self.communication))

    @property
    def hidden(self) -> float:
        """Seconds in which a collective ran while gradients were still being computed."""
        both = ((max(a, c), min(b, d)) for a, b in merge(self.compute) for c, d in merge(self.communication))
        return sum(end - start for start, end in both if end > start)


def record_backward(step: Callable[[], object], device: torch.device | str = "cpu") -> BackwardTimeline:
    """Run `step`, which calls `backward` and all that makes the gradients final, and return when what ran.

    Every rank has to call this at the same time: one barrier goes before, so that the timelines of all ranks start
    together. Source: https://docs.pytorch.org/docs/stable/profiler.html
    """
    device = torch.device(device)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    recorder = profile(activities=activities)
    synchronize(device)
    with _silent():
        recorder.__enter__()
    try:
        dist.barrier()
        with record_function(_MARK):
            step()
            synchronize(device)
    finally:
        with _silent():
            recorder.__exit__(None, None, None)
    cpu = torch.autograd.DeviceType.CPU
    events = [Event(e.name, e.device_type != cpu, e.time_range.start, e.time_range.end) for e in recorder.events()]
    return timeline_of(events)


def timeline_of(events: Sequence[Event]) -> BackwardTimeline:
    """Sort the events of a profile into computing and communicating. Raises ValueError when no pass was marked."""
    marks = [event for event in events if event.name == _MARK and not event.on_accelerator]
    if not marks:
        raise ValueError("this profile holds no backward pass: record it with record_backward.")
    first, last = marks[0].start, marks[0].end
    inside = [event for event in events if event.end > first and event.start < last and event.name != _MARK]
    if any(event.on_accelerator for event in inside):
        kernels = [event for event in inside if event.on_accelerator and not event.name.startswith("nccl:")]
        compute = [event for event in kernels if not is_collective(event)]
    else:
        compute = [event for event in inside if computes_gradients(event)]
    communication = [event for event in inside if is_collective(event)]
    # A worker thread may note the end of the last collective a moment after the caller has gone on.
    end = max([last, *(event.end for event in communication)])
    return BackwardTimeline(_intervals(compute, first), _intervals(communication, first), (end - first) / 1e6)


def _intervals(events: Iterable[Event], first: float) -> tuple[Interval, ...]:
    return tuple(sorted(((max(e.start, first) - first) / 1e6, (e.end - first) / 1e6) for e in events))


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what C++ code writes to stderr out of a learner's cell: the profiler announces its start and stop."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
