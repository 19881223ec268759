"""What a fault must not leave behind: processes, files, sockets, shared memory, descriptors."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import psutil

from mgpu_utils.ranks import RankGroup

_SHARED = Path("/dev/shm")


class Leftovers:
    """Made before a fault; afterwards it tells what is there and was not before.

    Args:
        group: whose ranks may be there.
        temporary: the folder for temporary files of this process and of the ranks it starts, theirs alone.
        apart: processes of this one that are none of the group's business, with all that they start.
    """

    def __init__(self, group: RankGroup, temporary: Path, apart: Collection[int] = ()) -> None:
        self._group, self._temporary, self._apart = group, temporary, set(apart)
        self._me = psutil.Process()
        self._children = self._all_children()
        self._files, self._listening = _files(temporary), _listening(self._me)
        self._descriptors = self._me.num_fds() if hasattr(self._me, "num_fds") else 0

    def look(self) -> list[str]:
        """A line for each thing; one that begins with `process` is a process that is still there 5 s later."""
        kept = {kernel.process.pid for kernel in self._group._kernels}
        children = self._all_children()
        strays = [psutil.Process(pid) for pid in children - self._children if pid not in kept and not _expected(pid)]
        gone, alive = psutil.wait_procs(strays, timeout=5)
        ended = {process.pid for process in gone} | self._children - children
        more = (self._me.num_fds() if hasattr(self._me, "num_fds") else 0) - self._descriptors
        return [
            *(f"process {process.pid}: {process.cmdline()}" for process in alive),
            *(f"file {name}" for name in sorted(_files(self._temporary) - self._files)),
            *(f"socket {name}" for name in sorted(_listening(self._me) - self._listening)),
            *(f"shared memory {name}" for name in _shared_by(ended)),
            *([f"{more} descriptors more"] if more > 2 else []),
        ]

    def _all_children(self) -> set[int]:
        # First all, then those apart: one that these start meanwhile would else look like one of all.
        children = {child.pid for child in self._me.children(recursive=True)}
        apart = set(self._apart)
        for pid in self._apart:
            if psutil.pid_exists(pid):
                apart |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return children - apart


def _expected(pid: int) -> bool:
    """Whether a process has ended, or is the one with which Python's multiprocessing tidies up for a living rank."""
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE or "resource_tracker" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True


def _files(folder: Path) -> set[str]:
    # PyTorch keeps its own cache there, by the name of the user.
    return {path.name for path in folder.iterdir() if not path.name.startswith("torchinductor_")}


def _listening(process: psutil.Process) -> set[str]:
    return {str(c.laddr) for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}


def _shared_by(pids: set[int]) -> list[str]:
    names = [path.name for path in _SHARED.iterdir()] if _SHARED.is_dir() else []
    return [name for name in names if {int(number) for number in re.findall(r"\d+", name)} & pids]
