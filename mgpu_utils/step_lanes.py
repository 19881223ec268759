"""A few steps of one rank as lanes to draw: what its main thread, its autograd and its communication did when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mgpu_utils.step_profile import (
    COPIES,
    ENGINE,
    MARK,
    PARTS,
    Event,
    Interval,
    StepProfile,
    claims_on_device,
    clip,
    computes_gradients,
    exposed_on_host,
    intervals_of,
    is_collective,
    merge,
    reduces,
    subtract,
)

MAIN, AUTOGRAD, COMMUNICATION, DEVICE, REPLICA = "main thread", "autograd", "communication", "device", "replica thread"
GRADIENTS = "computes gradients"
# What is shorter than this share of the drawn time cannot be seen; holes of that size are closed.
_UNSEEN = 0.001


class Slice(NamedTuple):
    """One thing that was done, from and to in seconds since the profile's origin."""

    name: str
    start: float
    end: float


Lanes = dict[str, list[Slice]]


def lanes_of(events: Sequence[Event], steps: Sequence[StepProfile]) -> Lanes:
    """What ran during these steps, one list a lane; lanes in which nothing ran are left out.

    The main thread's lane holds the parts of the step, with what lies inside another part after it. Under
    DataParallel the communication lane holds the copies between devices. Raises: ValueError for no steps.
    """
    if not steps:
        raise ValueError("there is no step to draw.")
    first, last = steps[0].start * 1e6, steps[-1].end * 1e6
    near = [event for event in events if event.end > first and event.start < last]
    seen = (last - first) * _UNSEEN

    def slices(name: str, spans: Iterable[Interval]) -> list[Slice]:
        merged = merge(clip(spans, first, last), seen)
        return [Slice(name, start / 1e6, end / 1e6) for start, end in merged]

    host = [event for event in near if not event.on_accelerator]
    marked = {name: intervals_of(e for e in host if e.name == MARK + name) for name in PARTS}
    summing = reduces(near)
    on_device = any(event.on_accelerator for event in near)
    waits = [] if on_device else exposed_on_host(near)
    own = {event.thread for event in host if event.name.startswith(MARK)}
    # On an accelerator, autograd works in threads of its own; on a CPU, other threads are DataParallel's replicas.
    nodes = [e for e in host if computes_gradients(e) and (on_device or e.thread in own)]
    lanes: Lanes = {
        MAIN: [
            *(piece for name, spans in marked.items() for piece in slices(name, spans)),
            *slices("exposed_communication", waits),
        ],
        AUTOGRAD: [
            *slices(GRADIENTS, subtract(merge(intervals_of(nodes)), summing)),
            *slices("reduce_gradients", summing),
        ],
    }
    if not on_device:
        lanes |= _replicas(host, own, slices)
    moved = {name: spans for name, spans in (*marked.items(), ("reduce_gradients", summing)) if name in COPIES}
    if on_device:
        # Of all events: the host may have launched what runs now in a mark that ended long ago.
        by_part = claims_on_device(events)[:-1]
        lanes[DEVICE] = [s for name, spans in by_part if name != "exposed_communication" for s in slices(name, spans)]
        moved = {}
    lanes[COMMUNICATION] = [
        *(s for e in near if is_collective(e) for s in slices(_called(e), _within_call(e, host))),
        *(s for name, spans in moved.items() for s in slices(name, spans)),
    ]
    return {lane: sorted(held, key=lambda s: (s.start, -s.end)) for lane, held in lanes.items() if held}


def _called(event: Event) -> str:
    return event.name.removeprefix("gloo:").split("(")[0][:40]


def _within_call(event: Event, host: Sequence[Event]) -> list[Interval]:
    if event.on_accelerator:
        return [(event.start, event.end)]
    # gloo's thread may note its end a moment after the caller has gone on, even into the next step.
    phases = (e for e in host if e.name in (MARK + "forward", MARK + "backward"))
    return [(event.start, min(event.end, e.end)) for e in phases if e.start <= event.start <= e.end]


def _replicas(host: Sequence[Event], own: set[int], slices: Callable[[str, Iterable[Interval]], list[Slice]]) -> Lanes:
    """The threads that run DataParallel's replicas. Each pass starts new ones: their order tells them apart."""
    lanes: Lanes = {}
    for mark, wanted, name in (("parallel_apply", "aten::", "forward"), ("backward", ENGINE, GRADIENTS)):
        for phase in (e for e in host if e.name == MARK + mark):
            inside = [
                e
                for e in host
                if e.thread not in own and e.name.startswith(wanted) and phase.start <= e.start <= phase.end
            ]
            for number, thread in enumerate(sorted({e.thread for e in inside})):
                spans = intervals_of(e for e in inside if e.thread == thread)
                lanes.setdefault(f"{REPLICA} {number + 1}", []).extend(slices(name, spans))
    return lanes
