"""What PyTorch and the GPU driver say about each other; run as `python -m mgpu_utils.doctor.torch_probe`.

A process of its own, because it opens every GPU and because a broken PyTorch or driver may end or hang it. It
reports in JSON, one step a line, so that what was known before a hang is not lost.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

from mgpu_utils.doctor.preflight_rank import say


def main() -> None:
    """Report the driver, torch's build, each device after a small computation on it, and the course's plan."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    say("driver", cuda=cuda_of_driver())
    try:
        import torch

        built = build(torch)
        say("torch", **built)
        found = devices(torch)
        say("devices", **found)
        say("plan", **plan(built, found))
    except Exception as error:
        say("failed", error=f"{type(error).__name__}: {error}".splitlines()[0])
    os._exit(0)


def cuda_of_driver() -> int | None:
    """The newest CUDA that the installed NVIDIA driver supports, as 1000 x major + 10 x minor; None without one."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    version = ctypes.c_int(0)
    try:
        status = ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value if status == 0 and version.value > 0 else None


def build(torch: Any) -> dict[str, Any]:
    """What this PyTorch was built for."""
    import torch.distributed as dist

    available = dist.is_available()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "mps": torch.backends.mps.is_built(),
        "xpu": bool(torch.xpu._is_compiled()),
        "architectures": torch.cuda.get_arch_list() if torch.version.cuda else [],
        "gloo": available and dist.is_gloo_available(),
        "nccl": available and dist.is_nccl_available(),
        "threads": torch.get_num_threads(),
    }


def devices(torch: Any) -> dict[str, Any]:
    """Every accelerator that opens, each with the trouble of a small computation on it, None where it came out right.

    {"kind", "count": what the driver says, "devices": [{name, memory, free, capability, trouble}], "peers",
    "mig": whether they are slices of one GPU, "trouble": why none could be opened}
    """
    from mgpu_utils.accelerator_probe import describe
    from mgpu_utils.visible_devices import parse_visible_devices

    kind = torch.accelerator.current_accelerator()
    count = torch.accelerator.device_count()
    found: dict[str, Any] = {"kind": kind.type if kind else None, "count": count, "devices": [], "peers": []}
    found["mig"] = False
    try:
        # CUDA says why it finds no device only when it is opened.
        if count == 0 and (torch.version.cuda or torch.version.hip):
            torch.cuda.init()
        found |= describe()
    except Exception as error:
        return found | {"trouble": str(error).strip().splitlines()[0]}
    for index, device in enumerate(found["devices"]):
        device.pop("uuid", None)
        device["trouble"] = _trouble(torch, torch.device(kind.type, index))
    if found["kind"] == "cuda":
        named = any(" MIG " in f"{device['name']} " for device in found["devices"])
        found["mig"] = named or parse_visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES")).mig
    return found | {"trouble": None}


def _trouble(torch: Any, device: Any) -> str | None:
    try:
        total = float((torch.arange(64.0, device=device) * 2).sum())
    except Exception as error:
        return str(error).strip().splitlines()[0]
    return None if total == 4032.0 else f"a sum that is 4032 came out as {total:g}"


def plan(built: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Where the course's ranks run on what was found, and whether the variables that steer it make sense."""
    from mgpu_utils.cores import usable_cores
    from mgpu_utils.planning import Hardware, decide

    count = len(found["devices"])
    kind = found["kind"] if count else None
    hardware = Hardware(kind, count, usable_cores(), built["nccl"], built["gloo"], found["mig"])
    try:
        return {"reason": decide(hardware, environ=os.environ).reason, "sound": True}
    except (ValueError, RuntimeError) as error:
        return {"reason": str(error), "sound": False}


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
