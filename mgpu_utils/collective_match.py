"""Compare what the ranks called: the first call that does not match, and who has made how many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .collective_log import SLOTS, CollectiveCall, LogReader, What
from .collective_notes import DDP_STEP
from .rank_errors import Place, number_ranks

# A rank that sends can be far ahead of those that receive; no more calls than this wait for their partners.
_WAITING = 20_000


@dataclass(frozen=True)
class Mismatch:
    """The first calls of ranks that do not belong together.

    Attributes:
        calls: the call of each rank that is known, by rank.
        sequence: of the calls of this group in this cell, from 1.
    """

    calls: dict[int, CollectiveCall]
    sequence: int

    @property
    def alike(self) -> dict[tuple[str, ...], list[int]]:
        """Ranks whose calls are the same, largest number of ranks first."""
        found: dict[tuple[str, ...], list[int]] = {}
        for rank, call in sorted(self.calls.items()):
            found.setdefault(call.signature, []).append(rank)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    @property
    def harmless(self) -> bool:
        """Whether the ranks are still in step: as many bytes went the same way, only the arithmetic differed."""
        return len({call.what._replace(reduce_op="")[1:6] for call in self.calls.values()}) == 1

    def lines(self, place: Callable[[What], Place | None]) -> list[str]:
        """What was called where, and what is usually wrong."""
        kinds = ("operations", "shapes", "dtypes", "reduce operations", "roots")
        columns = zip(*(call.signature for call in self.calls.values()), strict=True)
        differs = next(kind for kind, values in zip(kinds, columns, strict=True) if len(set(values)) > 1)
        who = number_ranks(sorted(self.calls))
        lines = [f"{who} do not match in their {ordinal(self.sequence)} collective of this cell: {differs} differ."]
        for ranks in self.alike.values():
            call = self.calls[ranks[0]].what
            where = place(call)
            lines.append(f"  {number_ranks(ranks)} called {call}" + (f"   {where}" if where else ""))
        why = "Every rank must call the same collectives in the same order, with one shape, dtype, operation and root."
        if differs == "operations":
            why += " Usually two calls are swapped, or one rank skips a call or makes one more."
        elif differs == "shapes":
            why += " Usually the last batch is shorter on one rank, or tensors are not padded to one length."
        lines.append(f"Why: {why}")
        return lines


class CollectiveMatch:
    """What the ranks of one request call, from its start.

    Args:
        readers: one for each rank that takes part and has a log.
    """

    def __init__(self, readers: Mapping[int, LogReader]) -> None:
        self.readers = dict(readers)
        self.calls: dict[int, deque[CollectiveCall]] = {rank: deque(maxlen=SLOTS) for rank in readers}
        self._steps: dict[int, int] = dict.fromkeys(readers, 0)
        self._open: dict[tuple[str, int], dict[int, CollectiveCall]] = {}
        self._before: dict[int, dict[str, int]] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        for rank, reader in self.readers.items():
            reader.new()
            self._before[rank] = reader.made()

    def look(self) -> Mismatch | None:
        """Take in what is new; returns the first calls that do not match, if any of those known do not."""
        for rank, reader in self.readers.items():
            for call in reader.new():
                self.calls[rank].append(call)
                if call.what.operation == DDP_STEP:
                    self._steps[rank] += 1
                elif call.what.group:
                    self._note(rank, call)
        for (_, sequence), calls in sorted(self._open.items(), key=lambda item: min(_starts(item[1]))):
            known = {rank: call for rank, call in calls.items() if not self.readers[rank].refused(call)}
            if len({call.signature for call in known.values()}) > 1:
                return Mismatch(dict(sorted(known.items())), sequence)
        return None

    def _note(self, rank: int, call: CollectiveCall) -> None:
        group = call.what.group
        key = (group, call.sequence - self._before[rank].get(group, 0))
        calls = self._open.setdefault(key, {})
        # A refused call gives its number back, so that the next one has it.
        calls[rank] = call
        partners = [other for other in self._ranks(call.what) if other in self.readers]
        if len(calls) == len(partners) and len({each.signature for each in calls.values()}) == 1:
            del self._open[key]
        elif len(self._open) > _WAITING:
            del self._open[next(iter(self._open))]

    def _ranks(self, what: What) -> tuple[int, ...]:
        if what.group not in self._members:
            self._members[what.group] = what.ranks
        return self._members[what.group]

    def made(self, rank: int, group: str) -> int:
        """How many collectives the rank has begun in a group in this cell."""
        return self.readers[rank].made().get(group, 0) - self._before[rank].get(group, 0)

    def newest(self, rank: int) -> CollectiveCall | None:
        """The last that the rank has begun in this cell, also of what cannot be compared."""
        return self.calls[rank][-1] if self.calls.get(rank) else None

    def last(self, rank: int) -> CollectiveCall | None:
        """The rank's last collective in this cell."""
        calls = [call for call in self.calls.get(rank, ()) if call.what.group]
        return calls[-1] if calls else None

    def waiting(self, rank: int) -> CollectiveCall | None:
        """The collective that the rank has begun and not ended."""
        call = self.last(rank)
        return call if call is not None and self.readers[rank].end_of(call) is None else None

    def uneven(self) -> dict[int, int] | None:
        """How many collectives each rank of the first group with unequal numbers has made in this cell."""
        groups = {c.what.group: c.what.ranks for calls in self.calls.values() for c in calls if c.what.group}
        for group, ranks in groups.items():
            if all(rank in self.readers for rank in ranks):
                counts = {rank: self.made(rank, group) for rank in ranks}
                if len(set(counts.values())) > 1:
                    return counts
        return None

    def uneven_steps(self) -> dict[int, int] | None:
        """How many training steps each rank has made with a DDP model in this cell, if not equally many."""
        return dict(self._steps) if len(set(self._steps.values())) > 1 else None

    def history(self) -> list[str]:
        """One line for each rank that waits: which call of which kind it is in, and how far the others are."""
        lines = []
        for rank in self.readers:
            call = self.waiting(rank)
            if call is None:
                continue
            what = call.what
            made = {other: self.made(other, what.group) for other in what.ranks if other in self.readers}
            sequence = made.pop(rank)
            behind = {other: count for other, count in made.items() if count < sequence}
            if behind:
                told = ", ".join(f"rank {other} has made {count}" for other, count in behind.items())
                lines.append(f"Rank {rank} is in its {ordinal(sequence)} collective of this cell, {what}; {told}.")
        if not lines and (steps := self.uneven_steps()):
            told = ", ".join(f"rank {rank} has begun {count}" for rank, count in steps.items())
            lines.append(f"The numbers of DDP training steps differ: {told}.")
        return lines


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _starts(calls: dict[int, CollectiveCall]) -> list[float]:
    return [call.start for call in calls.values()]
