"""What else went on in the machine while something was measured: other work, stolen time, throttling.

Counters are read once before and once after, so that watching costs the measured work nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mgpu_utils.benchmark.throttling import Counters, gpu_throttle, growth, heat_throttle, quota_throttle

Load = dict[str, Any]

# From here on a number is worth a word. A tenth of the cores is more than an idle desktop takes.
BUSY_CORES_SHARE = 0.10
STOLEN_SHARE = 0.02
THROTTLED_SHARE = 0.01

_WORDS = {
    "other_cpu_share": "other processes used {:.0%} of the cores",
    "steal_share": "other virtual machines took {:.0%} of the cores",
    "quota_throttled_seconds": "a CPU limit held threads back for {:.2g} s",
    "heat_throttled_seconds": "heat slowed a core down for {:.2g} s",
    "gpu_heat_throttled_seconds": "heat slowed a GPU down for {:.2g} s",
}


@contextmanager
def watch(root: Path = Path("/")) -> Iterator[Load]:
    """Yield a dict that is filled when the block ends, also when it ends in an error; JSON-able.

    Keys, each None where the system does not tell it:

    - ``seconds``: how long the block took.
    - ``other_cpu_share``: share of the usable cores that other processes took, which are all but this process
      and what it started (Linux).
    - ``steal_share``: share that the hypervisor gave to other virtual machines (Linux).
    - ``quota_throttled_seconds``, ``quota_throttled_periods``: for how long, in all threads together, and how often
      the CPU limit of a control group held this process back (Linux).
    - ``heat_throttled_seconds``: for how long the hottest core was slowed down (Linux on Intel).
    - ``gpu_heat_throttled_seconds``, ``gpu_power_throttled_seconds``: the same of the GPU held back longest
      (NVIDIA, where pynvml is installed). A GPU at its power limit is at work, so no note is made of it.
    - ``load_average``: of the last minute, at the end.
    - ``cpu_mhz``: mean clock rate before and after. Idle cores are slow, so no note is made of it.

    ``root`` is the directory that holds `proc` and `sys`. Source: https://psutil.readthedocs.io/
    """
    load: Load = {}
    before = _read(root)
    try:
        yield load
    finally:
        load.update(_between(before, _read(root)))


def note(load: Mapping[str, Any] | None) -> str | None:
    """Return one phrase that says what disturbed a measurement; None when nothing did, or nothing is known.

    Worth a word are 10 % of the cores used by others, 2 % stolen, and 1 % of the time throttled.
    """
    return _said(_disturbances(load))


def runs_note(loads: Iterable[Mapping[str, Any] | None]) -> str | None:
    """Return one sentence about all runs of a benchmark: how many were disturbed, and by what at most.

    None when none was disturbed, or nothing is known.
    """
    known = [_disturbances(load) for load in loads if load]
    disturbed = [found for found in known if found]
    if not disturbed:
        return None
    most = {key: max(found.get(key, 0.0) for found in disturbed) for key in _WORDS}
    were = "was" if len(disturbed) == 1 else "were"
    at_most = _said({key: value for key, value in most.items() if value})
    return f"{len(disturbed)} of {len(known)} runs {were} measured on a busy machine (at most: {at_most}); all are kept"


def _disturbances(load: Mapping[str, Any] | None) -> dict[str, float]:
    if not load:
        return {}
    throttled = THROTTLED_SHARE * (load.get("seconds") or 0.0)
    least = {"other_cpu_share": BUSY_CORES_SHARE, "steal_share": STOLEN_SHARE}
    values = {key: load.get(key) or 0.0 for key in _WORDS}
    return {key: value for key, value in values.items() if value > 0 and value >= least.get(key, throttled)}


def _said(found: Mapping[str, float]) -> str | None:
    return "; ".join(words.format(found[key]) for key, words in _WORDS.items() if key in found) or None


@dataclass(frozen=True)
class _Reading:
    at: float
    all_seconds: float
    work_seconds: float
    stolen_seconds: float | None
    own_seconds: float | None
    mhz: float | None
    throttled: dict[str, Counters]


def _read(root: Path) -> _Reading:
    cores = _usable(psutil.cpu_times(percpu=True))
    # Guest time is in user time already.
    spent = [sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0) for core in cores]
    quota = quota_throttle(root)
    gpu_heat, gpu_power = gpu_throttle()
    return _Reading(
        at=time.perf_counter(),
        all_seconds=sum(spent),
        work_seconds=sum(core.user + getattr(core, "nice", 0.0) + core.system for core in cores),
        stolen_seconds=sum(core.steal for core in cores) if hasattr(cores[0], "steal") else None,
        own_seconds=_own_seconds() if psutil.LINUX else None,
        mhz=_mhz(),
        throttled={
            "quota_throttled_seconds": quota.seconds,
            "quota_throttled_periods": quota.periods,
            "heat_throttled_seconds": heat_throttle(root),
            "gpu_heat_throttled_seconds": gpu_heat,
            "gpu_power_throttled_seconds": gpu_power,
        },
    )


def _between(before: _Reading, after: _Reading) -> Load:
    capacity = after.all_seconds - before.all_seconds
    load: Load = {"seconds": after.at - before.at, "other_cpu_share": None, "steal_share": None}
    if capacity > 0:
        if before.own_seconds is not None and after.own_seconds is not None:
            own = after.own_seconds - before.own_seconds
            load["other_cpu_share"] = _share(after.work_seconds - before.work_seconds - own, capacity)
        if before.stolen_seconds is not None and after.stolen_seconds is not None:
            load["steal_share"] = _share(after.stolen_seconds - before.stolen_seconds, capacity)
    load |= {name: growth(before.throttled[name], after.throttled[name]) for name in before.throttled}
    load["load_average"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    load["cpu_mhz"] = None if before.mhz is None or after.mhz is None else [before.mhz, after.mhz]
    return load


def _usable(cores: list[Any]) -> list[Any]:
    """Only the cores that this process may use: what others do on the rest does not slow it down."""
    if hasattr(os, "sched_getaffinity"):
        allowed = [cores[number] for number in sorted(os.sched_getaffinity(0)) if number < len(cores)]
        return allowed or cores
    return cores


def _own_seconds() -> float:
    """CPU seconds of this process, of what it started, and of those of them that have ended."""
    me = psutil.Process()
    seconds = 0.0
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.Error):
            # The kernel adds the time of an ended process to its parent's time of children.
            seconds += sum(process.cpu_times()[:4])
    return seconds


def _mhz() -> float | None:
    with suppress(Exception):
        frequency = psutil.cpu_freq()
        return float(frequency.current) if frequency and frequency.current else None
    return None


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))
