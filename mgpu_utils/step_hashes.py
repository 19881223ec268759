"""One fingerprint of all parameters a step, side by side for several ranks or runs: when did they part?"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from torch import nn

from mgpu_utils.parameter_hashes import parameter_hashes

_DIGITS = 8


def model_hash(module: nn.Module) -> str:
    """Eight hexadecimal digits from every bit of all parameters and buffers; a wrapper does not change them.

    No collective; call it on every rank.
    """
    text = "\n".join(f"{name} {digits}" for name, digits in parameter_hashes(module).items())
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


class StepHashes:
    """The fingerprint of each row (a rank or a run) after each step; draws itself in a notebook.

    Args:
        hashes: one sequence a row, as `ranks.run(...)` gives it, or a mapping from the row's name to it.
        first: the number of the first step.

    Raises:
        ValueError: no row, no step, or rows of different lengths.
    """

    def __init__(self, hashes: Sequence[Sequence[str]] | Mapping[str, Sequence[str]], first: int = 1) -> None:
        if not isinstance(hashes, Mapping):
            hashes = {f"rank {rank}": row for rank, row in enumerate(hashes)}
        self.rows = {name: tuple(row) for name, row in hashes.items()}
        lengths = {len(row) for row in self.rows.values()}
        if not self.rows or 0 in lengths:
            raise ValueError("a table of hashes needs at least one row with at least one step.")
        if len(lengths) > 1:
            told = ", ".join(f"{name}: {len(row)}" for name, row in self.rows.items())
            raise ValueError(f"every row needs the same number of steps, but there are {told}.")
        self.first = first
        self.steps = lengths.pop()

    def usual(self, column: int) -> str:
        """The hash that most rows have in a column, counted from 0; of several, the one in the highest row."""
        return Counter(row[column] for row in self.rows.values()).most_common(1)[0][0]

    @property
    def agree(self) -> bool:
        """Whether all rows are the same after every step."""
        return self.parted is None

    @property
    def parted(self) -> int | None:
        """The first step after which the rows are not all the same; None if they always are."""
        for column in range(self.steps):
            if len({row[column] for row in self.rows.values()}) > 1:
                return self.first + column
        return None

    def __repr__(self) -> str:
        width = max([4, *map(len, self.rows)])
        numbers = range(self.first, self.first + self.steps)
        lines = ["step".ljust(width) + "".join(f"  {number:<{_DIGITS}}" for number in numbers)]
        lines += [name.ljust(width) + "".join(f"  {digits}" for digits in row) for name, row in self.rows.items()]
        lines.append(
            f"the same after each of {self.steps} steps" if self.agree else f"different from step {self.parted}"
        )
        return "\n".join(line.rstrip() for line in lines)

    def _ipython_display_(self) -> None:
        from mgpu_utils.figures.proof import step_hashes
        from mgpu_utils.figures.showing import show_object

        show_object(self, step_hashes(self))
