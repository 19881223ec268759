"""CPU cores this process may really use: affinity and control-group quota, not the number on the box."""

from __future__ import annotations

import os
from pathlib import Path

_CONTROL_GROUPS = Path("sys/fs/cgroup")


def usable_cores(root: Path = Path("/")) -> int:
    """Number of cores this process may keep busy at once, at least 1.

    The smaller of the process's CPU affinity and its control-group quota (version 1 or 2); a quota of 1.5
    cores counts as 1. `root` is the directory that holds `proc` and `sys`.
    """
    cores = _affinity()
    quota = cgroup_quota(root)
    if quota is not None:
        cores = min(cores, int(quota))
    return max(1, cores)


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """CPU quota in cores from control groups version 1 and 2, None where there is no limit."""
    quotas = []
    for controllers, group in memberships(root):
        if controllers == "":
            mounts, read = [root / _CONTROL_GROUPS, root / _CONTROL_GROUPS / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read = [root / _CONTROL_GROUPS / name for name in ("cpu", "cpu,cpuacct")], _quota_v1
        else:
            continue
        for mount in mounts:
            # A limit on a parent group binds its children, so the tightest one on the way up counts. Inside
            # a container the group's own path is often absent below the mount; the mount itself is then it.
            quotas += [read(folder) for folder in upwards(mount, group)]
    found = [quota for quota in quotas if quota is not None]
    return min(found) if found else None


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memberships(root: Path) -> list[tuple[str, str]]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    fields = (line.split(":", 2) for line in lines)
    return [(parts[1], parts[2]) for parts in fields if len(parts) == 3]


def upwards(mount: Path, group: str) -> list[Path]:
    parts = [part for part in group.split("/") if part and part != ".."]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
