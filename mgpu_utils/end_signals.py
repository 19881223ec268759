"""SIGTERM and a closed terminal end a command the way Ctrl-C does, so that it ends what it started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


@contextmanager
def ending_as_at_ctrl_c() -> Iterator[None]:
    """While this is entered, SIGTERM and SIGHUP raise KeyboardInterrupt; what is ignored (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}
    kept = {number: handler for number, handler in previous.items() if handler not in (signal.SIG_IGN, None)}

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Once is enough: a second one would cut the tidying up short.
        for other in kept:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in kept:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
