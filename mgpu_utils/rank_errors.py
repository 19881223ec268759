"""What went wrong on the ranks, as exceptions a learner can read.

In a notebook each is shown as its own text, without the frames of this package.
"""

from __future__ import annotations

import re
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .rank_history import RankHistory


@dataclass(frozen=True)
class Place:
    """One line of the learner's own code.

    Attributes:
        label: where the code stands, such as `Cell In[4]` or `train.py`.
        line: line number in that cell or file, from 1.
        function: name of the function, `<module>` for code outside functions.
        text: the line itself, without indentation; empty if it is not known.
    """

    label: str
    line: int
    function: str = "<module>"
    text: str = ""

    def __str__(self) -> str:
        where = f"{self.label}, line {self.line}"
        if self.function != "<module>":
            where += f", in {self.function}"
        return f"{where}: {self.text}" if self.text else where


@dataclass(frozen=True)
class RankFailure:
    """Why one rank did not do its work.

    Attributes:
        rank: its number.
        kind: `raised`, `died` (the process is gone) or `mismatched` (its collective is not that of the others).
        summary: one sentence without the rank's number, such as `raised ValueError: bad shape`.
        places: the learner's frames, outermost first.
        name: class name of the exception, if one was raised.
        message: text of the exception, if one was raised.
        full: the complete traceback as text, library frames included.
    """

    rank: int
    kind: str
    summary: str
    places: tuple[Place, ...] = ()
    name: str = ""
    message: str = ""
    full: str = field(default="", repr=False)


class _ShownAsText(Exception):
    history: tuple[RankHistory, ...] = ()
    _pictured = False

    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for this before it formats a traceback.
        if self.history and not self._pictured:
            self._pictured = True
            _show_after_the_text(self)
        return [wrapped(f"{type(self).__name__}: {self}")]

    def timeline(self, ax: Axes | None = None) -> Axes:
        """Draw what each rank did until the cell ended; returns the Axes.

        Raises:
            ValueError: nothing is known of it, as for a call that never reached the ranks.
        """
        from .figures.fault_timeline import fault_timeline

        return fault_timeline(self.history, ax)


class BadArgument(ValueError):
    """An argument that makes no sense; a notebook shows the sentence alone, without library frames."""

    def _render_traceback_(self) -> list[str]:
        return [wrapped(f"ValueError: {self}")]


class CannotSend(TypeError):
    """Something that cannot travel to a rank; a notebook shows the sentence alone, without library frames."""

    def _render_traceback_(self) -> list[str]:
        return [wrapped(f"TypeError: {self}")]


class RankError(_ShownAsText, RuntimeError):
    """One or more ranks failed.

    Attributes:
        failures: one `RankFailure` for each rank that failed, the most telling first.
        rank: number of the first of them, or None when the whole group is meant.
        history: what each rank did until then; empty where it does not help.
    """

    def __init__(
        self, message: str, failures: tuple[RankFailure, ...] = (), history: tuple[RankHistory, ...] = ()
    ) -> None:
        super().__init__(message)
        self.history = history
        self.failures = failures
        self.rank = failures[0].rank if failures else None


class RankTimeout(_ShownAsText, TimeoutError):
    """The ranks did not finish in the time the group allows.

    Attributes:
        states: one `hangs.RankState` a rank that took part, in rank order.
        history: what each rank did until then.
    """

    def __init__(self, message: str, states: tuple[Any, ...] = (), history: tuple[RankHistory, ...] = ()) -> None:
        super().__init__(message)
        self.history = history
        self.states = states


class RankInterrupt(KeyboardInterrupt):
    """The cell was stopped; says which ranks could not be stopped without ending them."""

    def _render_traceback_(self) -> list[str]:
        return [wrapped(f"KeyboardInterrupt: {self}")]


def _show_after_the_text(error: _ShownAsText) -> None:
    """In a notebook, show the error's picture once the running cell has shown its text."""
    if "ipykernel" not in sys.modules:
        return
    from IPython import get_ipython

    shell = get_ipython()
    if getattr(shell, "kernel", None) is None:
        return

    def show(*_: Any) -> None:
        shell.events.unregister("post_run_cell", show)
        # An error is explained by its text; a picture that cannot be drawn must not replace it.
        with suppress(Exception):
            from .figures.fault_timeline import as_png, in_words
            from .figures.showing import publish

            publish(as_png(error.history), in_words(error.history), about={"width": 738})

    shell.events.register("post_run_cell", show)


def wrapped(text: str, width: int = 96) -> str:
    """The text with long lines broken between words, as a notebook would break them anywhere."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent + "  ", replace_whitespace=False, break_long_words=False
        ) or [""]
    return "\n".join(lines)


def number_ranks(ranks: list[int]) -> str:
    """`rank 1`, `ranks 0 and 2`, `ranks 0, 1 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def notebook_only(message: str) -> str | None:
    """A hint for a name that the notebook knows and the ranks do not."""
    found = re.search(r"name '(\w+)' is not defined", message)
    if found is None or "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    name = found[1]
    if name not in getattr(get_ipython(), "user_ns", {}):
        return None
    return (
        f"`{name}` exists in the notebook, not on the ranks: each rank is a process with names of its own. "
        f"Define it in a `%%ranks` cell, or pass it: `ranks.run(fn, {name})`."
    )


def shown_places(places: tuple[Place, ...]) -> list[str]:
    """The learner's frames, with a recursion's many equal ones told as a number."""
    lines: list[str] = []
    for place, run in groupby(places):
        count = len(list(run))
        lines += [f"  at {place}"] * min(count, 2)
        if count > 2:
            lines.append(f"  ... and {count - 2} times more in the same line")
    return lines
