"""When each rank worked: spans noted on the ranks, brought onto one clock, and the share of time spent idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

import torch

from mgpu_utils.timing import synchronize

P = ParamSpec("P")
R = TypeVar("R")


class Span(NamedTuple):
    """One piece of work of one rank: its kind, its micro-batch, and its start and end in seconds."""

    kind: str
    micro_batch: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class Timeline:
    """Notes when this rank works. Times are those of the machine's own clock, which all its ranks share.

    Args:
        device: waited for before each look at the clock.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self.device = device
        self.spans: list[Span] = []

    def clear(self) -> None:
        """Forget everything noted so far."""
        self.spans.clear()

    def note(self, kind: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` and return what it returned; its span's micro-batch is the count of its kind before."""
        synchronize(self.device)
        start = time.perf_counter()
        result = function(*args, **kwargs)
        synchronize(self.device)
        number = sum(span.kind == kind for span in self.spans)
        self.spans.append(Span(kind, number, start, time.perf_counter()))
        return result


def on_one_clock(spans: Sequence[Sequence[Span]]) -> list[list[Span]]:
    """The spans of each rank, counted from the start of the first of them all; the ranks share one machine.

    Raises: ValueError when no rank has noted anything.
    """
    if not any(spans):
        raise ValueError("no rank noted any work, so there is no timeline.")
    first = min(span.start for rank in spans for span in rank)
    return [[span._replace(start=span.start - first, end=span.end - first) for span in rank] for rank in spans]


def duration(spans: Sequence[Sequence[Span]]) -> float:
    """Seconds from the first start to the last end on any rank. Raises: ValueError when no rank noted anything."""
    return max(span.end for rank in on_one_clock(spans) for span in rank)


def idle_share(spans: Sequence[Sequence[Span]]) -> float:
    """Share of the ranks' time, from the first start to the last end of all, in which they did no noted work.

    Raises: ValueError when no rank has noted anything.
    """
    busy = sum(span.seconds for rank in spans for span in rank)
    return 1 - busy / (len(spans) * duration(spans))
