"""The most memory that was in use: on each accelerator what PyTorch allocated, on a CPU what the whole process held."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from mgpu_utils.timing import synchronize

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class PeakMemory:
    """Notes the peak memory between entering and leaving: `with PeakMemory(devices) as peak: ...`, then `peak.bytes`.

    On accelerators this is what PyTorch allocated in this process, for each device by itself. A step of DataParallel
    shows all devices from its one process; under DDP each rank notes its own device. On a CPU it is the resident set
    of the process, with the interpreter, its libraries and everything loaded before; threads that stand in for
    devices share it. `before` tells what was in use at the start, so that the difference is what came on top.

    Args:
        devices: what to watch; each is noted once.

    Attributes:
        before: bytes in use when it was entered, one number a device, as in `{"cuda:0": ..., "cuda:1": ...}` or
            `{"cpu": ...}`.
        bytes: the peak of each device, set on leaving.

    Raises:
        ValueError: no device, or a kind of device whose peak PyTorch does not count.

    Source: https://docs.pytorch.org/docs/stable/accelerator.html
    """

    def __init__(self, devices: Iterable[torch.device | str]) -> None:
        self.devices = list(dict.fromkeys(map(_numbered, devices)))
        if not self.devices:
            raise ValueError("PeakMemory needs at least one device to watch.")
        for device in self.devices:
            if device.type not in ("cpu", "cuda", "xpu"):
                raise ValueError(f"PyTorch does not count the peak memory of {device}; watch the CPU, CUDA or XPU.")
        self.before: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self._whole_life = False

    @property
    def meaning(self) -> str:
        """What the numbers are, in words for a table or a figure."""
        if all(device.type != "cpu" for device in self.devices):
            return "memory that PyTorch allocated on each device, in this process"
        process = "resident memory of this process, everything in it included"
        if self._whole_life:
            # getrusage alone cannot forget an earlier peak.
            process += "; its peak since the process started"
        return process

    def __enter__(self) -> PeakMemory:
        self.bytes = {}
        for device in self.devices:
            synchronize(device)
            if device.type == "cpu":
                self._whole_life = not _forget_peak()
            else:
                torch.accelerator.reset_peak_memory_stats(device)
        self.before = {str(device): _in_use(device) for device in self.devices}
        return self

    def __exit__(self, *exc: object) -> None:
        for device in self.devices:
            synchronize(device)
        self.bytes = {str(device): self._peak(device) for device in self.devices}

    def _peak(self, device: torch.device) -> int:
        if device.type != "cpu":
            return torch.accelerator.max_memory_allocated(device)
        return _peak_since_start() if self._whole_life else _status_bytes("VmHWM")


def _numbered(device: torch.device | str) -> torch.device:
    """The device with its number, so that `cuda` and `cuda:0` are not taken for two; `cpu` has none."""
    device = torch.device(device)
    if device.type == "cpu":
        return torch.device("cpu")
    if device.index is not None:
        return device
    current = torch.accelerator.current_device_index() if torch.accelerator.is_available() else 0
    return torch.device(device.type, current)


def _in_use(device: torch.device) -> int:
    if device.type != "cpu":
        return torch.accelerator.memory_allocated(device)
    import psutil

    return int(psutil.Process().memory_info().rss)


def _forget_peak() -> bool:
    """Have Linux start the peak of this process anew; False where that is not possible.

    Source: https://docs.kernel.org/filesystems/proc.html, on `clear_refs`.
    """
    try:
        _RESET.write_text("5")
        return _status_bytes("VmHWM") > 0
    except OSError:
        return False


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _peak_since_start() -> int:
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, Linux in KiB.
    return peak if sys.platform == "darwin" else peak * 1024
