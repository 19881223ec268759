"""When one backward pass computed and when its collectives ran, read from PyTorch's profiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from mgpu_utils.timing import synchronize

Span = tuple[float, float]
_MARK = "mgpu:backward"
_ENGINE = "autograd::engine::evaluate_function: "


class Event(NamedTuple):
    """One span of a profile: what ran, on an accelerator or not, from and to in microseconds."""

    name: str
    on_accelerator: bool
    start: float
    end: float


@dataclass(frozen=True)
class BackwardTimeline:
    """One backward pass of one rank; spans are (start, end) in seconds since it began.

    Attributes:
        compute: when gradients were computed.
        communication: when collectives ran, from the moment one starts moving data to its end.
        seconds: from the start to the moment at which every gradient is final.
    """

    compute: tuple[Span, ...]
    communication: tuple[Span, ...]
    seconds: float

    @property
    def communicating(self) -> float:
        """Seconds in which at least one collective ran."""
        return _length(_merge(self.communication))

    @property
    def hidden(self) -> float:
        """Seconds in which a collective ran while gradients were still being computed."""
        both = ((max(a, c), min(b, d)) for a, b in _merge(self.compute) for c, d in _merge(self.communication))
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
        communication = [event for event in kernels if "nccl" in event.name.lower()]
        compute = [event for event in kernels if "nccl" not in event.name.lower()]
    else:
        communication = [event for event in inside if event.name.startswith("gloo:") and "barrier" not in event.name]
        # Hooks run inside AccumulateGrad, and some of them wait for a collective.
        compute = [e for e in inside if e.name.startswith(_ENGINE) and "AccumulateGrad" not in e.name]
    # A worker thread may note the end of the last collective a moment after the caller has gone on.
    end = max([last, *(event.end for event in communication)])
    return BackwardTimeline(_spans(compute, first), _spans(communication, first), (end - first) / 1e6)


def _spans(events: Iterable[Event], first: float) -> tuple[Span, ...]:
    return tuple(sorted(((max(e.start, first) - first) / 1e6, (e.end - first) / 1e6) for e in events))


def _merge(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


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
