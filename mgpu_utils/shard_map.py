"""Which sample went to which rank in which step; says what was repeated and what nobody saw, and draws itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Visit(NamedTuple):
    """One sample of one batch; `again` is true when an earlier place in the epoch held the same sample."""

    rank: int
    step: int
    place: int
    sample: int
    again: bool


class ShardMap:
    """One epoch of all ranks: `batches[rank][step]` holds the numbers of the samples of that batch.

    "Earlier" goes by step, then by place in the batch, then by rank.

    Raises ValueError for a sample that is not one of the numbers 0 to `samples` - 1, and when there is no rank.
    """

    def __init__(self, batches: Sequence[Sequence[Iterable[int]]], samples: int) -> None:
        self.batches = [[[int(sample) for sample in batch] for batch in steps] for steps in batches]
        self.samples = samples
        if not self.batches:
            raise ValueError("a shard map needs the batches of at least one rank.")
        strange = sorted({s for steps in self.batches for b in steps for s in b if not 0 <= s < samples})
        if strange:
            raise ValueError(f"sample {strange[0]} is not one of the {samples} samples 0 to {samples - 1}.")

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.batches)

    @property
    def steps(self) -> int:
        """Steps of the rank that takes the most."""
        return max(len(steps) for steps in self.batches)

    @property
    def visits(self) -> list[Visit]:
        """Every sample of every batch, in the order of the epoch."""
        places = sorted(
            (step, place, rank, sample)
            for rank, steps in enumerate(self.batches)
            for step, batch in enumerate(steps)
            for place, sample in enumerate(batch)
        )
        met: set[int] = set()
        visits = []
        for step, place, rank, sample in places:
            visits.append(Visit(rank, step, place, sample, sample in met))
            met.add(sample)
        return visits

    @property
    def repeated(self) -> list[int]:
        """Samples that were visited more than once, each named once."""
        return sorted(sample for sample, times in Counter(v.sample for v in self.visits).items() if times > 1)

    @property
    def missing(self) -> list[int]:
        """Samples that no rank visited."""
        return sorted(set(range(self.samples)) - {visit.sample for visit in self.visits})

    def __repr__(self) -> str:
        lines = [f"{self.samples} samples, {self.world_size} ranks, {len(self.visits)} visits"]
        for rank, steps in enumerate(self.batches):
            lines.append(f"rank {rank}: " + "  ".join(str(batch).replace(",", "") for batch in steps))
        lines.append(f"more than once: {_listed(self.repeated)}")
        lines.append(f"never:          {_listed(self.missing)}")
        return "\n".join(lines)

    def _ipython_display_(self) -> None:
        from mgpu_utils.figures.data import shard_map
        from mgpu_utils.figures.showing import show_object

        show_object(self, shard_map(self))


def _listed(numbers: Sequence[int], most: int = 12) -> str:
    if not numbers:
        return "none"
    shown = ", ".join(map(str, numbers[:most]))
    return shown if len(numbers) <= most else f"{shown}, ... ({len(numbers)} samples)"
