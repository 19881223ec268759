"""One group of ranks for each world size, and what a fault must not leave behind."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_utils.devices import plan
from mgpu_utils.ranks import RankGroup

_SHARED = Path("/dev/shm")


@pytest.fixture(scope="package")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for temporary files of this process and of the ranks it starts, theirs alone."""
    folder = tmp_path_factory.mktemp("temporary")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    variable, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), str(folder)
    yield folder
    tempfile.tempdir = before
    os.environ.pop("TMPDIR")
    if variable is not None:
        os.environ["TMPDIR"] = variable


@pytest.fixture(scope="package")
def groups(temporary: Path) -> Iterator[Callable[[int], RankGroup]]:
    """Gives the group of a world size, whole and with its usual patience."""
    made: dict[int, RankGroup] = {}

    def give(world_size: int) -> RankGroup:
        if world_size not in made:
            made[world_size] = RankGroup(plan(world_size, "cpu"), 60.0, 1)
        group = made[world_size]
        if group.needs_restart:
            group.restart()
        group.timeout = 60.0
        return group

    yield give
    for group in made.values():
        group.shutdown()


@pytest.fixture
def left_behind(temporary: Path) -> Callable[[RankGroup], Callable[[], list[str]]]:
    """Called with a group before a fault, gives a function that tells after it what is there and was not before."""
    me = psutil.Process()

    def begin(group: RankGroup) -> Callable[[], list[str]]:
        started = {child.pid for child in me.children(recursive=True)}
        files, listening = _files(temporary), _listening(me)
        descriptors = me.num_fds() if hasattr(me, "num_fds") else 0

        def look() -> list[str]:
            kept = {kernel.process.pid for kernel in group._kernels}
            children = {child.pid for child in me.children(recursive=True)}
            strays = [psutil.Process(pid) for pid in children - started if pid not in kept and not _expected(pid)]
            gone, alive = psutil.wait_procs(strays, timeout=5)
            found = [f"process {process.pid}: {process.cmdline()}" for process in alive]
            found += [f"file {name}" for name in sorted(_files(temporary) - files)]
            found += [f"socket {name}" for name in sorted(_listening(me) - listening)]
            found += [
                f"shared memory {name}" for name in _shared_by({process.pid for process in gone} | started - children)
            ]
            more = (me.num_fds() if hasattr(me, "num_fds") else 0) - descriptors
            return found + ([f"{more} descriptors more"] if more > 2 else [])

        return look

    return begin


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
