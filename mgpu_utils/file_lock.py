"""One writer at a time: a lock between processes which the system gives back when its holder ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EVERY = 0.01


@contextmanager
def locked(path: Path, patience: float = 3.0) -> Iterator[None]:
    """Hold the lock file `path` while this is entered; the file itself stays, empty.

    Raises TimeoutError after `patience` seconds, and OSError where the file cannot be made. A holder that is killed
    gives the lock back, for the lock is the system's and not the file's presence.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + patience
        while not _try_lock(handle):
            if time.monotonic() > end:
                raise TimeoutError(f"{path.name} was held by another process for {patience:g} s")
            time.sleep(_EVERY)
        try:
            yield
        finally:
            _unlock(handle)
    finally:
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
