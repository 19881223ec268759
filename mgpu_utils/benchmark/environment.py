"""On what a benchmark was measured: versions, devices, cores, threads; never a host name, a user or a path."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from mgpu_utils.benchmark import several_machines
from mgpu_utils.devices import DeviceSurvey, survey
from mgpu_utils.planning import Hardware

_PACKAGES = ("torch", "numpy", "scipy", "pandas", "papermill", "mgpu-utils")
# What must be the same when an interrupted benchmark goes on: one table never holds two machines' numbers.
_MUST_MATCH = ("system", "versions", "device_names", "device_count", "cpu", "cores_usable", "torch_build")


def environment(found: DeviceSurvey | None = None, *, threads_per_process: int = 1) -> dict[str, Any]:
    """Return what a result has to name, as JSON-able data. Memory in bytes."""
    found = found or survey()
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "torch_build": found.build,
        "accelerator": found.accelerator,
        "device_count": len(found.devices),
        "device_names": [device.name for device in found.devices],
        "device_memory": [device.memory for device in found.devices],
        "cpu": _cpu_name(),
        "cores_usable": found.cores,
        "cores_in_machine": found.cores_in_machine,
        "threads_per_process": threads_per_process,
        "backends": found.backends,
        "machines": several_machines.other_machines(),
    }


def hardware(found: DeviceSurvey) -> Hardware:
    """Return what the course's decision about devices looks at."""
    mig = found.visible.mig or any(" MIG " in f"{device.name} " for device in found.devices)
    return Hardware(
        found.accelerator,
        len(found.devices),
        found.cores,
        nccl=found.backends["nccl"],
        gloo=found.backends["gloo"],
        mig=mig,
    )


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return in words what changed between two environments that makes their numbers incomparable."""
    return [
        f"{name.replace('_', ' ')}: {before.get(name)} before, {now.get(name)} now"
        for name in _MUST_MATCH
        if before.get(name) != now.get(name)
    ]


def _cpu_name() -> str:
    """Return the processor's marketing name where the system tells it, else its architecture."""
    if platform.system() == "Linux":
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:
                for line in file:
                    if line.startswith("model name"):
                        return line.split(":", 1)[1].strip()
        except OSError:
            pass
    return platform.processor() or platform.machine()
