"""Show what the ranks print: live while they run, in rank order when they have finished."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from typing import Any

# A learner's loop can print more than a notebook can hold: the first and last characters of each rank are kept.
HEAD = TAIL = 20_000
_MOST_FIGURES = 100
_CUT = re.compile("\x00cut (\\d+)\x00")
_LIVE_AFTER_SECONDS = 0.4
_REDRAW_SECONDS = 0.15


def cut_mark(characters: int) -> str:
    """What stands in the output of a rank for characters that were dropped before they were sent."""
    return f"\x00cut {characters}\x00"


def cut_middle(text: str, most: int) -> str:
    """The text, or its beginning and end with a mark between where it is longer than `most`."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-(most // 2) :]
    middle = text[most // 2 : -(most // 2)]
    # Marks in the middle stand for characters as well.
    dropped = len(_CUT.sub("", middle)) + sum(int(number) for number in _CUT.findall(middle))
    return head + cut_mark(dropped) + tail


class RankText:
    """The lines one rank printed, with the middle cut out when there are too many."""

    def __init__(self) -> None:
        self._head: list[tuple[str, str]] = []
        self._tail: deque[tuple[str, str]] = deque()
        self._open: dict[str, str] = {"stdout": "", "stderr": ""}
        self._head_size = self._tail_size = self._cut = 0

    def write(self, text: str, stream: str = "stdout") -> None:
        """Add printed text; a carriage return starts the line again, as in a terminal."""
        pieces = _CUT.split(text)
        self._write(pieces[0], stream)
        for dropped, piece in zip(pieces[1::2], pieces[2::2], strict=True):
            self._cut += int(dropped)
            self._write(("\n" if self._open[stream] else "") + piece, stream)

    def _write(self, text: str, stream: str) -> None:
        *complete, rest = (self._open[stream] + text).split("\n")
        for line in complete:
            self._add(line.rstrip("\r").rpartition("\r")[2], stream)
        # A progress bar writes no newline for minutes: keep only what it shows last.
        rest = rest[:-1].rpartition("\r")[2] + rest[-1:] if rest else ""
        if len(rest) > HEAD + TAIL:
            if self._head_size < HEAD:
                self._add(rest[:HEAD], stream)
                rest = rest[HEAD:]
            self._cut += max(0, len(rest) - TAIL)
            rest = rest[-TAIL:]
        self._open[stream] = rest

    def _add(self, line: str, stream: str) -> None:
        if self._head_size < HEAD:
            self._head.append((line[:HEAD], stream))
            self._head_size += len(line[:HEAD]) + 1
            line = line[HEAD:]
            if not line:
                return
        self._cut += max(0, len(line) - TAIL)
        self._tail.append((line[-TAIL:], stream))
        self._tail_size += min(len(line), TAIL) + 1
        while self._tail_size > TAIL and len(self._tail) > 1:
            dropped = len(self._tail.popleft()[0]) + 1
            self._tail_size -= dropped
            self._cut += dropped

    def lines(self) -> list[tuple[str, str]]:
        """(line, stream) pairs in the order they were printed."""
        unfinished = [
            (text.rpartition("\r")[2] or text.rstrip("\r"), name) for name, text in self._open.items() if text
        ]
        gap = [(f"... {self._cut:,} characters not shown ...", "stdout")] if self._cut else []
        return [*self._head, *gap, *self._tail, *unfinished]

    @property
    def text(self) -> str:
        """All lines as one string."""
        return "\n".join(line for line, _ in self.lines())


class OutputView:
    """Collects the output of several ranks for one cell and draws it.

    A cell that runs for longer than 0.4 s shows its output while it runs. When it has finished, the output stands in
    rank order, so that it is the same each time. With `MGPU_LIVE=0` in the environment nothing is drawn
    before the end; tools that compare outputs need that.
    """

    def __init__(self, ranks: list[int]) -> None:
        self.texts = {rank: RankText() for rank in ranks}
        self.rich: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
        self._figures_left_out = 0
        self._start = time.monotonic()
        self._last_drawn = 0.0
        self._drawn = ""
        self._handle: Any = None
        self._printed: dict[int, int] = dict.fromkeys(ranks, 0)
        self._live = os.environ.get("MGPU_LIVE", "1") != "0"
        self._notebook = _in_notebook()

    def write(self, rank: int, text: str, stream: str = "stdout") -> None:
        """Take text that a rank printed."""
        self.texts[rank].write(text, stream)

    def show_value(self, rank: int, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Take something a rank displayed: a figure, a table, or the value of the cell's last line."""
        if any(kind in data for kind in ("image/png", "image/svg+xml", "image/jpeg", "text/html")):
            if len(self.rich) < _MOST_FIGURES * len(self.texts):
                self.rich.append((rank, data, metadata))
            else:
                self._figures_left_out += 1
        elif "text/plain" in data:
            self.texts[rank].write(str(data["text/plain"]) + "\n")

    def refresh(self) -> None:
        """Draw what is new, if the cell has run long enough to be worth it."""
        now = time.monotonic()
        if not self._live or now - self._start < _LIVE_AFTER_SECONDS or now - self._last_drawn < _REDRAW_SECONDS:
            return
        self._last_drawn = now
        if not self._notebook:
            self._print_new_lines()
            return
        text = self._in_rank_order(collapse=False)
        if text and text != self._drawn:
            self._draw(text)

    def finish(self) -> None:
        """Draw the final state: rank order, lines that every rank wrote to stderr only once."""
        if not self._notebook and self._live:
            self._print_new_lines(last=True)
        else:
            text = self._in_rank_order(collapse=True)
            if self._handle is not None:
                self._draw(text)
            elif text:
                sys.stdout.write(text + "\n")
                sys.stdout.flush()
        for rank, data, metadata in sorted(self.rich, key=lambda item: item[0]):
            self._show_rich(rank, data, metadata)
        if self._figures_left_out:
            print(f"... {self._figures_left_out:,} figures and tables more are not shown ...", flush=True)

    def _in_rank_order(self, collapse: bool) -> str:
        lines = {rank: text.lines() for rank, text in self.texts.items()}
        shared = _shared_warnings(lines) if collapse and len(lines) > 1 else {}
        shown = [f"[all ranks] {line}" for line in shared.values()]
        for rank, entries in lines.items():
            shown += [
                f"[rank {rank}] {line}"
                for line, stream in entries
                if not (stream == "stderr" and _without_pid(line) in shared)
            ]
        return "\n".join(shown)

    def _print_new_lines(self, last: bool = False) -> None:
        for rank, text in self.texts.items():
            lines = text.lines()
            complete = len(lines) if last else len(lines) - sum(1 for part in text._open.values() if part)
            for line, _ in lines[self._printed[rank] : complete]:
                print(f"[rank {rank}] {line}", flush=True)
            self._printed[rank] = max(complete, self._printed[rank])

    def _draw(self, text: str) -> None:
        from IPython.display import display

        self._drawn = text
        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def _show_rich(self, rank: int, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        if not self._notebook:
            print(f"[rank {rank}] {data.get('text/plain', 'a figure')}", flush=True)
            return
        from IPython.display import display

        print(f"[rank {rank}]", flush=True)
        display(data, metadata=metadata, raw=True)


def _shared_warnings(lines: dict[int, list[tuple[str, str]]]) -> dict[str, str]:
    """Lines that every rank wrote to stderr, by their text without process numbers, in the first rank's order."""
    seen = [{_without_pid(line) for line, stream in entries if stream == "stderr"} for entries in lines.values()]
    common = set.intersection(*seen)
    first = next(iter(lines.values()))
    return {
        _without_pid(line): line
        for line, stream in first
        if stream == "stderr" and line and _without_pid(line) in common
    }


def _without_pid(line: str) -> str:
    return re.sub(r"ipykernel_\d+", "ipykernel", line)


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
