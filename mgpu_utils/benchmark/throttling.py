"""Counters of how long a machine held work back: CPU limits of control groups, heat, and a GPU's power limit.

Each function returns one growing number for each thing that can be held back, or None where there is no such
counter; the caller takes the difference of two readings.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mgpu_utils.control_groups import folders

Counters = list[float] | None

# By version of control groups: the counter in cpu.stat, and its unit in seconds.
_COUNTERS = {1: ("throttled_time", 1e-9), 2: ("throttled_usec", 1e-6)}
_HEAT_FILES = ("core_throttle_total_time_ms", "package_throttle_total_time_ms")
# NVML's numbers of the policies "power" and "thermal" (nvmlPerfPolicyType_t).
_POWER, _THERMAL = 0, 1


class GroupThrottle(NamedTuple):
    """For each control group of this process: seconds that its threads had to wait, and periods in which they did."""

    seconds: Counters
    periods: Counters


def quota_throttle(root: Path = Path("/")) -> GroupThrottle:
    """Return how much the CPU limits of control groups (version 1 and 2) held this process's groups back.

    ``root`` is the directory that holds `proc` and `sys`. Source:
    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    seconds, periods = [], []
    # A limit on a parent group holds its children back, and only the parent counts it.
    for version, folder in folders(root, "cpu"):
        field, unit = _COUNTERS[version]
        found = _statistics(folder / "cpu.stat")
        if field in found and "nr_throttled" in found:
            seconds.append(found[field] * unit)
            periods.append(float(found["nr_throttled"]))
    return GroupThrottle(seconds or None, periods or None)


def heat_throttle(root: Path = Path("/")) -> Counters:
    """Return the seconds that each core was slowed down by heat (Linux on Intel processors)."""
    values = []
    folders = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")
    for path in [folder / name for folder in sorted(folders) for name in _HEAT_FILES]:
        with suppress(OSError, ValueError):
            values.append(int(path.read_text()) / 1e3)
    return values or None


def gpu_throttle(nvml: Any = None) -> tuple[Counters, Counters]:
    """Return the seconds that each NVIDIA GPU was held below its clock rate by heat, and by its power limit.

    Both None without pynvml, a driver or a GPU. ``nvml`` can be given in place of pynvml. Source:
    nvmlDeviceGetViolationStatus in https://docs.nvidia.com/deploy/nvml-api/
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        # No pynvml, no driver, no right to ask: all mean that nothing is known, and none may stop a measurement.
        return None, None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        return _violations(nvml, handles, _THERMAL), _violations(nvml, handles, _POWER)
    except Exception:
        return None, None
    finally:
        with suppress(Exception):
            nvml.nvmlShutdown()


def growth(before: Counters, after: Counters) -> float | None:
    """Return by how much the counter that grew most did; None when either is missing, or they do not match."""
    if before is None or after is None or len(before) != len(after):
        return None
    return max(max(0.0, now - then) for then, now in zip(before, after, strict=True))


def _violations(nvml: Any, handles: Sequence[Any], policy: int) -> Counters:
    values = []
    for handle in handles:
        with suppress(Exception):
            values.append(nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime / 1e9)
    return values or None


def _statistics(path: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
    return {}
