"""What training steps spent their time on, read from the events of a profile: parts which never overlap.

On a CPU the calling thread's own timeline is cut up. On an accelerator the host only hands out work, so there it is
the device's timeline: a kernel belongs to the part in which the host launched it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Interval = tuple[float, float]

MARK = "mgpu:"
STEP = MARK + "step"
BLOCK = MARK + "block"
# In the order of a step. The second to fifth and "reduce_gradients" exist under DataParallel only.
PARTS = (
    *("data", "scatter", "replicate", "parallel_apply", "gather", "forward"),
    *("backward", "reduce_gradients", "exposed_communication", "optimizer", "other"),
)
# What DataParallel's one process moves between devices.
COPIES = ("scatter", "replicate", "gather", "reduce_gradients")
ENGINE = "autograd::engine::evaluate_function: "
_LAUNCHES = ("cuda_runtime", "cuda_driver")


class Event(NamedTuple):
    """One span of a profile, from and to in microseconds.

    Attributes:
        thread: the profiler's number of the host thread.
        launched: for a kernel, when the host launched it; None where that is not known.
    """

    name: str
    on_accelerator: bool
    start: float
    end: float
    thread: int = 0
    launched: float | None = None


@dataclass(frozen=True)
class StepProfile:
    """One step: from when to when (seconds since the profile's origin), and the seconds of each part of `PARTS`."""

    start: float
    end: float
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """How long the step took; the parts add up to it."""
        return self.end - self.start


def events_of(kineto_events: Iterable[Any], origin_ns: int) -> list[Event]:
    """The events of `profile.profiler.kineto_results.events()`, in microseconds since `origin_ns` (Unix time).

    Annotations on the device are left out: they cover what their own thread launched, and autograd launches the
    kernels of backward from threads of its own. A kernel and its launch on the host share a correlation id instead.
    Source: https://docs.pytorch.org/docs/stable/profiler.html
    """
    found = list(kineto_events)
    launched = {e.correlation_id(): e.start_ns() for e in found if e.activity_type() in _LAUNCHES}
    events = []
    for e in found:
        kind = e.activity_type()
        if kind == "gpu_user_annotation":
            continue
        on_accelerator = not str(e.device_type()).endswith("CPU")
        launch = launched.get(e.correlation_id()) if on_accelerator else None
        start, end = (e.start_ns() - origin_ns) / 1e3, (e.end_ns() - origin_ns) / 1e3
        when = None if launch is None else (launch - origin_ns) / 1e3
        events.append(Event(e.name(), on_accelerator, start, end, int(e.start_thread_id()), when))
    return events


def is_collective(event: Event) -> bool:
    """Whether data moves between ranks while this runs: gloo's own events on the host, nccl's kernels on a device."""
    if event.on_accelerator:
        return "nccl" in event.name.lower() and not event.name.startswith("nccl:")
    return event.name.startswith("gloo:") and "barrier" not in event.name


def computes_gradients(event: Event) -> bool:
    """Whether this is a node of the backward graph, seen on the host."""
    # Hooks run inside AccumulateGrad, and some of them wait for a collective.
    return not event.on_accelerator and event.name.startswith(ENGINE) and "AccumulateGrad" not in event.name


def step_profiles(events: Sequence[Event]) -> list[StepProfile]:
    """Every step marked `STEP`, in order; the last one lasts to the end of the mark `BLOCK` around them, if any.

    Raises: ValueError for a profile without a step.
    """
    steps = sorted(intervals_of(e for e in events if e.name == STEP and not e.on_accelerator))
    if not steps:
        raise ValueError(f"this profile holds no step: mark each with record_function({STEP!r}).")
    kernels = [event for event in events if event.on_accelerator]
    if kernels:
        ends = _device_ends(steps, kernels)
        windows = list(zip([steps[0][0], *ends], ends, strict=False))
        claims = claims_on_device(events)
    else:
        # What lies between two steps is the earlier one's.
        last = max([steps[-1][1], *(e.end for e in events if e.name == BLOCK)])
        windows = list(zip([start for start, _ in steps], [*(start for start, _ in steps[1:]), last], strict=True))
        claims = claims_on_host(events)
    return [_profile(window, claims) for window in windows]


def claims_on_host(events: Sequence[Event]) -> list[tuple[str, list[Interval]]]:
    """What each part may claim of the calling thread's time, the strongest claim first."""
    marks = _marks(events)
    claims = [(name, marks[name]) for name in ("scatter", "replicate", "gather")]
    claims += [("reduce_gradients", reduces(events)), ("exposed_communication", exposed_on_host(events))]
    return claims + [(name, marks[name]) for name in ("data", "parallel_apply", "forward", "backward", "optimizer")]


def reduces(events: Sequence[Event]) -> list[Interval]:
    """When DataParallel sums its replicas' gradients, as the host sees it."""
    nodes = [e for e in events if e.name.startswith(ENGINE) and "BroadcastBackward" in e.name]
    if not any(event.on_accelerator for event in events):
        # The stand-in's replicas reach this node in their own threads, too, where nothing is summed.
        own = {event.thread for event in events if event.name.startswith(MARK)}
        nodes = [event for event in nodes if event.thread in own]
    return merge(intervals_of(nodes))


def exposed_on_host(events: Sequence[Event]) -> list[Interval]:
    """When a forward or backward had a collective under way and computed nothing: the caller waits for it."""
    waits: list[Interval] = []
    phases = [e for e in events if e.name in (MARK + "forward", MARK + "backward") and not e.on_accelerator]
    collectives = sorted(intervals_of(filter(is_collective, events)))
    starts = [start for start, _ in collectives]
    work = sorted((e for e in events if computes_gradients(e) or e.name.startswith("aten::")), key=lambda e: e.start)
    work_starts = [e.start for e in work]
    issued = [e for e in events if e.name.startswith("c10d::") and not e.on_accelerator]
    for phase in phases:
        first, last = bisect_right(starts, phase.start), bisect_right(starts, phase.end)
        # A collective is under way from its call on, though gloo's thread may take it up later.
        calls = [e.start for e in issued if phase.start <= e.start <= phase.end]
        queued = [(call, starts[i]) for call in calls if (i := bisect_right(starts, call)) < last]
        # gloo's thread may note its end a moment after the caller has gone on.
        pending = clip(merge([*collectives[first:last], *queued]), phase.start, phase.end)
        if pending:
            near = work[bisect_right(work_starts, phase.start) : bisect_right(work_starts, phase.end)]
            waits += subtract(pending, merge(intervals_of(e for e in near if e.thread == phase.thread)))
    return merge(waits)


def claims_on_device(events: Sequence[Event]) -> list[tuple[str, list[Interval]]]:
    """What each part may claim of the device's time, the strongest claim first: computing, moving data, waiting.

    With several devices in one process, one of them computing is enough. "other" is left with the time in which no
    device had work, unless the host was fetching data then.
    """
    marks = _marks(events)
    where: list[tuple[str, list[Interval]]] = [("reduce_gradients", reduces(events))]
    where += [(name, marks[name]) for name in ("scatter", "replicate", "gather", "parallel_apply")]
    where += [(name, marks[name]) for name in ("data", "forward", "backward", "optimizer")]
    by_part: dict[str, list[Interval]] = {name: [] for name in PARTS}
    for event in events:
        if event.on_accelerator:
            by_part[part_of(event, where)].append((event.start, event.end))
    order = ("parallel_apply", "forward", "backward", "optimizer", *COPIES, "exposed_communication", "data")
    return [*((name, merge(by_part[name])) for name in order), ("data", marks["data"])]


def part_of(kernel: Event, where: Sequence[tuple[str, Sequence[Interval]]]) -> str:
    """The part in which a kernel was launched; `where` holds the parts' spans on the host, the innermost first."""
    moment = kernel.launched
    name = "other" if moment is None else next((n for n, spans in where if _holds(spans, moment)), "other")
    return "exposed_communication" if is_collective(kernel) and name not in COPIES else name


def intervals_of(events: Iterable[Event]) -> list[Interval]:
    """From when to when each event lasted, in microseconds."""
    return [(event.start, event.end) for event in events]


def merge(spans: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """The same time in as few intervals as possible, sorted; holes of up to `gap` are closed."""
    merged: list[Interval] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def clip(spans: Iterable[Interval], first: float, last: float) -> list[Interval]:
    """What of the spans lies between two moments."""
    return [(max(a, first), min(b, last)) for a, b in spans if min(b, last) > max(a, first)]


def subtract(spans: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """What of the first spans lies in none of the second; both merged."""
    left: list[Interval] = []
    for start, end in spans:
        for a, b in taken:
            if b <= start or a >= end:
                continue
            if a > start:
                left.append((start, a))
            start = max(start, b)
        if start < end:
            left.append((start, end))
    return left


def length(spans: Iterable[Interval]) -> float:
    """How long the spans last together."""
    return sum(end - start for start, end in spans)


def _profile(window: Interval, claims: Sequence[tuple[str, list[Interval]]]) -> StepProfile:
    free, parts = [window], dict.fromkeys(PARTS, 0.0)
    for name, spans in claims:
        left = subtract(free, clip(spans, *window))
        parts[name] += (length(free) - length(left)) / 1e6
        free = left
    parts["other"] += length(free) / 1e6
    return StepProfile(window[0] / 1e6, window[1] / 1e6, parts)


def _marks(events: Sequence[Event]) -> dict[str, list[Interval]]:
    marks: dict[str, list[Interval]] = {name: [] for name in PARTS}
    for event in events:
        name = event.name.removeprefix(MARK)
        if name in marks and name != event.name and not event.on_accelerator:
            marks[name].append((event.start, event.end))
    return {name: merge(spans) for name, spans in marks.items()}


def _device_ends(steps: Sequence[Interval], kernels: Sequence[Event]) -> list[float]:
    """When the device had finished what each step launched; a step that launched nothing ends with the one before."""
    starts = [start for start, _ in steps]
    ends = [0.0] * len(steps)
    for kernel in kernels:
        if kernel.launched is not None and (number := bisect_right(starts, kernel.launched) - 1) >= 0:
            ends[number] = max(ends[number], kernel.end)
    for number in range(len(ends)):
        ends[number] = max(ends[number], ends[number - 1] if number else steps[0][0])
    return ends


def _holds(spans: Sequence[Interval], moment: float) -> bool:
    number = bisect_right(spans, (moment, float("inf"))) - 1
    return number >= 0 and moment <= spans[number][1]
