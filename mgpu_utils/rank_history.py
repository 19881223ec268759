"""What the ranks of one cell did until it ended, as data for a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .collective_match import CollectiveMatch

# A long loop would make bars too thin to see: the last calls are those that tell.
_LAST = 40


@dataclass(frozen=True)
class CollectiveSpan:
    """One collective of one rank, in seconds since the cell began; `end` is None where it never ended."""

    operation: str
    start: float
    end: float | None


@dataclass(frozen=True)
class RankHistory:
    """One rank until its cell ended.

    Attributes:
        rank: its number.
        state: `finished`, `failed`, `died`, `waits` (in a collective) or `at work`.
        end: seconds from the beginning of the cell until the rank was in this state for good.
        spans: its last collectives, oldest first.
    """

    rank: int
    state: str
    end: float
    spans: tuple[CollectiveSpan, ...]


def histories(
    match: CollectiveMatch, states: Mapping[int, str], ends: Mapping[int, float], began: float
) -> tuple[RankHistory, ...]:
    """The history of each rank in `states`; `ends` and `began` are times of the machine's monotonic clock."""
    found = []
    for rank, state in states.items():
        spans = []
        for call in list(match.calls.get(rank, ()))[-_LAST:]:
            end = match.readers[rank].end_of(call)
            if end is None or end == end:  # NaN: refused, nothing was sent
                spans.append(
                    CollectiveSpan(call.what.operation, call.start - began, None if end is None else end - began)
                )
        found.append(RankHistory(rank, state, ends[rank] - began, tuple(spans)))
    return tuple(found)
