"""Which devices and which backend the course uses: a decision table over plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

DEVICES = ("auto", "cpu", "cuda", "xpu", "mps")
_NAMES = {"cuda": "GPU", "xpu": "Intel GPU", "mps": "Apple GPU"}


@dataclass(frozen=True)
class Hardware:
    """What the decision looks at. `accelerator` is a `torch.device` type or None; ROCm counts as "cuda"."""

    accelerator: str | None = None
    count: int = 0
    cores: int = 1
    nccl: bool = False
    gloo: bool = True
    mig: bool = False


@dataclass(frozen=True)
class Plan:
    """Where the work runs: one device a rank for rank work, one device for single-device work, and why."""

    backend: str
    rank_devices: tuple[torch.device, ...]
    single_device: torch.device
    reason: str

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.rank_devices)


def decide(
    hardware: Hardware,
    world_size: int | None = None,
    device: str = "auto",
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for this hardware.

    MGPU_WORLD_SIZE stands in for a `world_size` that is not given, MGPU_DEVICE for `device="auto"`.
    Raises ValueError with one sentence for a value that makes no sense here, RuntimeError where PyTorch was
    built without gloo.
    """
    environ = environ or {}
    from_env = environ.get("MGPU_WORLD_SIZE", "").strip()
    env_size = _whole_number(from_env, "MGPU_WORLD_SIZE") if from_env else None
    size = env_size if world_size is None else _whole_number(world_size, "world_size")
    size_name = "MGPU_WORLD_SIZE" if world_size is None else "world_size"
    from_env = environ.get("MGPU_DEVICE", "").strip()
    env_device = _device(from_env, "MGPU_DEVICE") if from_env else "auto"
    chosen = _device(device, "device")
    device_name = "device"
    if chosen == "auto":
        chosen, device_name = env_device, "MGPU_DEVICE"
    _require(hardware, chosen, device_name)

    gpus = hardware.count if hardware.accelerator == "cuda" else 0
    usable = min(gpus, 1) if hardware.mig else gpus
    if chosen == "cuda":
        return _on_gpus(hardware, usable, size if size is not None else usable, size_name)
    wanted = size if size is not None else (usable if usable >= 2 else 2)
    if chosen == "auto" and hardware.nccl and usable >= 2 and wanted <= usable:
        return _on_gpus(hardware, usable, wanted, size_name)
    return _on_cpu(hardware, chosen, usable, size, size_name)


def _on_gpus(hardware: Hardware, usable: int, size: int, size_name: str) -> Plan:
    if size > usable:
        mig = " (one MIG instance is all a process can use)" if hardware.mig else ""
        raise ValueError(
            f"{size_name} is {size}, but only {_count(usable, 'GPU')} can be used{mig}: "
            f"ask for at most {usable}, or use device='cpu'."
        )
    if not hardware.nccl:
        raise ValueError(
            "device is 'cuda', but this PyTorch was built without nccl, which ranks on GPUs need: "
            "use device='cpu' or a PyTorch built with nccl (Linux)."
        )
    ranks = tuple(torch.device("cuda", index) for index in range(size))
    if usable == 1:
        reason = "You asked for the GPU, so the one rank has it and talks over nccl."
    else:
        have = _count(usable, "GPU")
        reason = f"PyTorch can use {have}, so {_count(size, 'rank')} run on nccl with one GPU each."
    return Plan("nccl", ranks, ranks[0], reason)


def _on_cpu(hardware: Hardware, chosen: str, usable: int, size: int | None, size_name: str) -> Plan:
    size = size if size is not None else 2
    most = max(16, 4 * hardware.cores)
    if size > most:
        raise ValueError(
            f"{size_name} is {size}, but this process has {_count(hardware.cores, 'CPU core')}: "
            f"ask for at most {most} ranks."
        )
    if not hardware.gloo:
        raise RuntimeError("This PyTorch was built without gloo, which CPU ranks need: install a standard build.")
    single = torch.device("cpu")
    if hardware.accelerator is not None and hardware.count > 0 and chosen != "cpu":
        kind = hardware.accelerator
        single = torch.device(kind) if kind == "mps" else torch.device(kind, 0)
    ranks = (torch.device("cpu"),) * size
    why = _why_cpu(hardware, chosen, usable, size)
    shape = f"{_count(size, 'rank')} run as {'a CPU process' if size == 1 else 'CPU processes'} over gloo"
    threads = ", one thread each"
    if size > hardware.cores:
        threads += f", sharing {_count(hardware.cores, 'core')} (right results, no speed-up)"
    return Plan("gloo", ranks, single, f"{why}, so {shape}{threads}.")


def _why_cpu(hardware: Hardware, chosen: str, usable: int, size: int) -> str:
    if chosen == "cpu":
        return "You asked for the CPU"
    if hardware.accelerator is None or hardware.count == 0:
        return "PyTorch finds no GPU it can use"
    name = _NAMES.get(hardware.accelerator, "accelerator")
    if hardware.accelerator == "mps":
        return "The Apple GPU does single-device work, but torch.distributed has no backend for it"
    if hardware.accelerator != "cuda":
        return f"The {name} does single-device work, but this course has ranks only on CUDA or ROCm GPUs"
    if hardware.mig:
        return (
            "One MIG instance does single-device work, but a process sees one instance only and nccl "
            "does not connect instances"
        )
    if usable == 1:
        return "The one GPU does single-device work, but two ranks need two GPUs"
    if not hardware.nccl:
        return "One GPU does single-device work, but this PyTorch was built without nccl"
    return f"{_count(size, 'rank')} do not fit on {_count(usable, 'GPU')}"


def _require(hardware: Hardware, chosen: str, name: str) -> None:
    if chosen in ("auto", "cpu"):
        return
    if hardware.accelerator == chosen and hardware.count > 0:
        return
    there = "none"
    if hardware.accelerator is not None and hardware.count > 0:
        there = f"'{hardware.accelerator}'"
    raise ValueError(
        f"{name} is '{chosen}', but PyTorch finds no such device on this machine "
        f"(accelerator found: {there}): use 'auto' or 'cpu'."
    )


def _whole_number(value: object, name: str) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.lstrip("+-").isascii() and value.lstrip("+-").isdigit():
        number = int(value)
    if number is None or number < 1:
        raise ValueError(f"{name} is {value!r}, but it must be a whole number of ranks, 1 or more.")
    return number


def _device(value: object, name: str) -> str:
    text = value.strip().lower() if isinstance(value, str) else None
    if text not in DEVICES:
        choices = ", ".join(repr(choice) for choice in DEVICES[:-1])
        raise ValueError(f"{name} is {value!r}, but it must be one of {choices} or {DEVICES[-1]!r}.")
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
