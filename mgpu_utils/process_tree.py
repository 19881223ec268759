"""End a process together with everything it started."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def kill_tree(pid: int, seconds: float = 5.0) -> None:
    """Kill process `pid` and all its descendants, those in sessions of their own included, and wait for their end.

    Called with the own process number it does not return. `seconds` bounds the waiting, not the killing.
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
    psutil.wait_procs(family, timeout=seconds)
