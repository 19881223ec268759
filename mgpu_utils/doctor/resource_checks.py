"""What this process may use: cores, memory, shared memory, open files, and the threads that variables ask for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.control_groups import folders
from mgpu_utils.cores import cgroup_quota, usable_cores
from mgpu_utils.doctor.findings import Finding

_GIB = 2**30
_MIB = 2**20
_UNLIMITED = 2**60
_ENOUGH_FILES = 1024
# By version of control groups.
_MEMORY_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}


@dataclass(frozen=True)
class Resources:
    """Sizes in bytes; None where this system does not tell."""

    cores: int
    cores_in_machine: int
    quota: float | None = None
    memory_available: int | None = None
    memory_in_machine: int | None = None
    memory_limit: int | None = None
    shm_size: int | None = None
    shm_free: int | None = None
    files_soft: int | None = None
    files_hard: int | None = None


def look(root: Path = Path("/")) -> Resources:
    """Measure this process; `root` is the directory that holds `proc`, `sys` and `dev`."""
    available = total = shm_size = shm_free = soft = hard = None
    try:
        import psutil

        memory = psutil.virtual_memory()
        available, total = memory.available, memory.total
    except ImportError:
        pass
    if sys.platform == "linux":
        try:
            shm = os.statvfs(root / "dev/shm")
            shm_size, shm_free = shm.f_frsize * shm.f_blocks, shm.f_frsize * shm.f_bavail
            if not os.access(root / "dev/shm", os.W_OK):
                shm_free = 0
        except OSError:
            shm_size = shm_free = 0
    if sys.platform != "win32":
        import resource

        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft, hard = (value if value != resource.RLIM_INFINITY else _UNLIMITED for value in limits)
    return Resources(
        cores=usable_cores(root),
        cores_in_machine=os.cpu_count() or 1,
        quota=cgroup_quota(root),
        memory_available=available,
        memory_in_machine=total,
        memory_limit=memory_limit(root),
        shm_size=shm_size,
        shm_free=shm_free,
        files_soft=soft,
        files_hard=hard,
    )


def memory_limit(root: Path = Path("/")) -> int | None:
    """The tightest memory limit of this process's control groups (version 1 and 2) in bytes, None without one."""
    limits = []
    for version, folder in folders(root, "memory"):
        try:
            value = int((folder / _MEMORY_FILES[version]).read_text())
        except (OSError, ValueError):
            continue
        if value < _UNLIMITED:
            limits.append(value)
    return min(limits, default=None)


def judge(found: Resources, environ: Mapping[str, str], *, container: bool) -> list[Finding]:
    """One line for each resource."""
    return [
        judge_cores(found),
        *judge_memory(found),
        *judge_shared_memory(found, container=container),
        *judge_files(found, container=container),
        *judge_threads(environ, found.cores),
    ]


def judge_cores(found: Resources) -> Finding:
    """How many ranks can compute at the same time."""
    name = "CPU cores"
    have = f"{found.cores} of {found.cores_in_machine} can be used"
    if found.cores < 2:
        cure = "results stay right; for a speed-up take a machine, or give the container, two cores or more."
        return Finding(name, "warning", f"{have}: two ranks share one core, so more ranks are never faster.", cure)
    if found.quota is not None and found.quota < found.cores_in_machine:
        sentence = f"{have}: a quota of {found.quota:g} cores holds (control group), which most libraries do not see."
        cure = f"in a terminal of your own, before Python starts: export OMP_NUM_THREADS={found.cores}."
        return Finding(name, "note", sentence, cure)
    if found.cores < found.cores_in_machine:
        return Finding(
            name, "note", f"{have}: this process is bound to them (taskset, a job scheduler or a container)."
        )
    return Finding(name, "ok", f"{have}.")


def judge_memory(found: Resources) -> list[Finding]:
    """Main memory that is free now, and a limit below what the machine has."""
    if found.memory_available is None or found.memory_in_machine is None:
        return []
    name = "Memory"
    free, limit = found.memory_available, found.memory_limit
    capped = limit is not None and limit < found.memory_in_machine
    size = limit if limit is not None and capped else found.memory_in_machine
    have = f"{min(free, size) / _GIB:.1f} GiB free of {size / _GIB:.1f} GiB"
    if min(free, size) < 2 * _GIB:
        cure = "close other programs, or give the container more; use two ranks. Too little ends a rank by signal 9."
        return [Finding(name, "warning", f"{have}: each rank is a process with PyTorch of its own.", cure)]
    if capped:
        sentence = f"{have}: a control group sets this limit, and a process above it is ended by signal 9."
        return [Finding(name, "note", sentence)]
    return [Finding(name, "ok", f"{have}.")]


def judge_shared_memory(found: Resources, *, container: bool) -> list[Finding]:
    """Room for tensors on their way between processes; only Linux has /dev/shm."""
    if found.shm_size is None or found.shm_free is None:
        return []
    name = "/dev/shm"
    cure = "sudo mount -o remount,size=1g /dev/shm; or DataLoader(num_workers=0)."
    if container:
        cure = "start the container with --shm-size=1g or --ipc=host (Kubernetes: an emptyDir in memory)."
    if found.shm_free < _MIB:
        sentence = "there is no room: DataLoader workers and NCCL exchange data there, and fail (Bus error)."
        if found.shm_size >= _GIB:
            cure = "delete what killed programs left there (ls -l /dev/shm), then run the doctor again."
        return [Finding(name, "broken", sentence, cure)]
    if found.shm_size < _GIB:
        sentence = (
            f"{found.shm_size / _MIB:.0f} MiB: enough for the lessons' small batches; large ones from DataLoader "
            "workers end in a Bus error."
        )
        return [Finding(name, "warning", sentence, cure)]
    if found.shm_free < found.shm_size / 10:
        cure = "delete what killed programs left there (ls -l /dev/shm)."
        return [Finding(name, "warning", f"only {found.shm_free / _GIB:.1f} GiB of it are free.", cure)]
    return [Finding(name, "ok", f"{found.shm_free / _GIB:.1f} GiB free of {found.shm_size / _GIB:.1f} GiB.")]


def judge_files(found: Resources, *, container: bool) -> list[Finding]:
    """Ranks, kernels and workers all take open files; Windows has no such limit."""
    soft, hard = found.files_soft, found.files_hard
    if soft is None or hard is None:
        return []
    name = "Open files"
    if soft >= _ENOUGH_FILES:
        text = "no limit" if soft >= _UNLIMITED else f"a process may open {soft}"
        return [Finding(name, "ok", f"{text}.")]
    cure = "ulimit -n 4096 in the terminal that starts the course."
    if hard < _ENOUGH_FILES:
        cure = "docker run --ulimit nofile=4096:4096." if container else "ask the administrator to raise the limit."
    sentence = f"a process may open only {soft}: many ranks or DataLoader workers end in 'Too many open files'."
    return [Finding(name, "warning", sentence, cure)]


def judge_threads(environ: Mapping[str, str], cores: int) -> list[Finding]:
    """What OMP_NUM_THREADS and its like mean beside the threads that the course sets itself."""
    name = "OMP_NUM_THREADS"
    value = environ.get(name)
    if value is None:
        return [Finding(name, "ok", "not set: the course sets the threads of ranks and benchmarks itself.")]
    first = value.split(",")[0].strip()
    if not first.isascii() or not first.isdigit() or int(first) < 1:
        cure = f"unset {name}, or export {name}={cores}."
        return [Finding(name, "warning", "it is set, but not to a whole number from 1, so it is ignored.", cure)]
    sentence = (
        f"{first}, for work in the notebook itself; ranks and benchmarks set their own, so this does not reach them."
    )
    if int(first) > cores:
        cure = f"unset {name}."
        return [Finding(name, "warning", f"{sentence} It is more than the {cores} cores: slower, not faster.", cure)]
    return [Finding(name, "note", sentence, f"unset {name} to compare one device on all cores.")]
