"""All-reduces beside backward, bucket by bucket: which of them hide, and what stays exposed.

A bucket can go when the last of its gradients is computed. Collectives run in that order, one after another.
Source: Li et al. 2020, "PyTorch Distributed", https://arxiv.org/abs/2006.15704, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Span = tuple[float, float]


@dataclass(frozen=True)
class Overlap:
    """One backward with its collectives; spans are (start, end) in seconds since backward began.

    Attributes:
        collectives: when each bucket's all-reduce runs.
        ready: when each bucket's last gradient was computed.
        backward_end: when the last gradient is computed; later than without collectives, if they interfere.
        backward: seconds that backward takes alone.
    """

    collectives: tuple[Span, ...]
    ready: tuple[float, ...]
    backward_end: float
    backward: float

    @property
    def end(self) -> float:
        """Seconds until every gradient is computed and summed."""
        return max([self.backward_end, *(end for _, end in self.collectives)])

    @property
    def exposed(self) -> float:
        """Seconds of communication after the last gradient is computed."""
        return self.end - self.backward_end

    @property
    def hidden(self) -> float:
        """Seconds of communication while gradients are still being computed."""
        return sum(max(0.0, min(end, self.backward_end) - start) for start, end in self.collectives)

    @property
    def slowed(self) -> float:
        """Seconds by which the collectives delayed backward's own work."""
        return self.backward_end - self.backward


def simulate(
    backward: float, ready: Sequence[float], collectives: Sequence[float], interference: float = 0.0
) -> Overlap:
    """Run collectives beside one backward.

    Args:
        backward: seconds of backward alone.
        ready: for each bucket the share of backward's work, from 0 to 1, after which it can go, never falling.
        collectives: seconds of each bucket's all-reduce alone.
        interference: what a collective takes from backward while both run: the share by which backward goes
            slower. 0 is two engines that share nothing; 1 is one engine for both (backward stands still), which is
            near the truth for ranks on CPU cores, where the same core computes, copies and sums.

    Raises: ValueError for numbers outside these ranges.
    """
    _check(backward, ready, collectives, interference)
    speed = 1.0 - interference
    now = done = 0.0
    finished: float | None = None
    spans: list[Span] = []
    moments: list[float] = []
    # The moments at which backward had done how much, to find when a bucket became ready.
    path: list[Span] = [(0.0, 0.0)]
    for share, seconds in zip(ready, collectives, strict=True):
        needed = min(1.0, share) * backward
        if done < needed:
            now, done = now + (needed - done), needed
            path.append((now, done))
        moments.append(_when(path, needed))
        start, end = now, now + seconds
        if done < backward and speed > 0 and done + seconds * speed >= backward:
            finished = now + (backward - done) / speed
            path.append((finished, backward))
        done = min(backward, done + seconds * speed)
        now = end
        spans.append((start, end))
        path.append((now, done))
    if finished is None:
        finished = _when(path, backward) if done >= backward else now + (backward - done)
    return Overlap(tuple(spans), tuple(moments), finished, backward)


def _when(path: Sequence[Span], work: float) -> float:
    """When ``work`` seconds of backward were first done, on a path of (moment, work done)."""
    for (t0, w0), (t1, w1) in pairwise(path):
        if w1 >= work:
            return t0 if w0 >= work else t0 + (work - w0) / (w1 - w0) * (t1 - t0)
    return path[-1][0]


def _check(backward: float, ready: Sequence[float], collectives: Sequence[float], interference: float) -> None:
    if not 0 <= interference <= 1:
        raise ValueError(f"interference must be between 0 and 1, not {interference}.")
    if not backward >= 0 or not all(seconds >= 0 for seconds in collectives):
        raise ValueError("backward and every collective must take at least 0 seconds.")
    if len(ready) != len(collectives):
        raise ValueError(f"There are {len(ready)} buckets that become ready, but {len(collectives)} collectives.")
    in_order = all(a <= b for a, b in pairwise(ready))
    if not in_order or not all(0 <= share <= 1 + 1e-9 for share in ready):
        raise ValueError("ready must hold shares of backward from 0 to 1 in rising order.")
