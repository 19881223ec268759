"""End a process together with everything it started."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_LOOK_SECONDS = 0.005


def kill_tree(pid: int, seconds: float = 5.0) -> None:
    """Kill process `pid` and all its descendants, those in sessions of their own included, and wait for their end.

    Called with the own process number it does not return. `seconds` bounds the waiting, not the killing. The exit
    status of a child is left to whoever started it.
    """
    import psutil

    try:
        root = psutil.Process(pid)
        # Stopped first: a launcher that sees a child die would report it or start another one meanwhile.
        if pid != os.getpid() and hasattr(signal, "SIGSTOP"):
            root.suspend()
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        if process.pid != os.getpid():
            with suppress(psutil.NoSuchProcess):
                process.kill()
    if pid == os.getpid():
        os._exit(1)
    # Not psutil's wait: that takes the exit status, and the Popen of a killed child would report 0.
    deadline = time.monotonic() + seconds
    while any(map(_is_there, family)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _is_there(process: psutil.Process) -> bool:
    """Whether the process is still listed; a child of this process that has ended waits for this one to take note."""
    import psutil

    try:
        ended = process.status() == psutil.STATUS_ZOMBIE and process.ppid() == os.getpid()
        return not ended and process.is_running()
    except psutil.NoSuchProcess:
        return False
