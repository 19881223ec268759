"""Plain-text progress with the time left, on a terminal, in a notebook and in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TextIO, TypeVar

T = TypeVar("T")
SWITCH = "MGPU_PROGRESS"
_LINE_EVERY_SECONDS = 30.0


class Progress:
    """Counts finished runs on ``stream``: a bar on a terminal, now and then a whole line in a log."""

    def __init__(self, total: int, *, stream: TextIO | None = None, bar: bool | None = None) -> None:
        from tqdm import tqdm

        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty() and not os.environ.get("CI") if bar is None else bar
        self._started = self._said_at = time.monotonic()
        self.total, self.done = total, 0
        # Never tqdm.auto: no widget, so the same text everywhere and no warning without ipywidgets.
        self._tqdm = tqdm(
            total=total, unit="run", file=self._stream, ascii=True, dynamic_ncols=True, disable=not self._bar
        )

    def update(self, done: int, what: str = "") -> None:
        """Show that ``done`` runs are finished, the last of them being ``what``."""
        if done <= self.done:
            self._tqdm.refresh()
            return
        self._tqdm.set_postfix_str(what, refresh=False)
        self._tqdm.update(done - self.done)
        self.done = done
        now = time.monotonic()
        if not self._bar and (done == self.total or now - self._said_at >= _LINE_EVERY_SECONDS):
            self._said_at = now
            left = (now - self._started) / done * (self.total - done)
            print(
                f"{done} of {self.total} runs measured, about {_words(left)} left",
                file=self._stream,
                flush=True,
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tqdm.close()


def follow(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, showing progress where somebody is watching: not under CI, not when switched off."""
    todo = list(items)
    if os.environ.get(SWITCH) == "off" or os.environ.get("CI"):
        yield from todo
        return
    with Progress(len(todo), bar=True) as progress:
        for done, item in enumerate(todo, start=1):
            yield item
            progress.update(done)


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
