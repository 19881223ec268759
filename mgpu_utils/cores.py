"""CPU cores this process may really use: affinity and control-group quota, not the number on the box."""

from __future__ import annotations

import os
from pathlib import Path

from mgpu_utils.control_groups import folders


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
    quotas = [_quota_v2(folder) if version == 2 else _quota_v1(folder) for version, folder in folders(root, "cpu")]
    found = [quota for quota in quotas if quota is not None]
    return min(found) if found else None


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
