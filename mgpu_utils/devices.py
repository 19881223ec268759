"""What this machine has, and what the course will use on it."""

from __future__ import annotations

import html
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mgpu_utils.accelerator_probe import probe
from mgpu_utils.cores import usable_cores
from mgpu_utils.planning import Hardware, Plan, decide
from mgpu_utils.visible_devices import VisibleDevices, changed_too_late, parse_visible_devices

__all__ = ["Accelerator", "DeviceSurvey", "Hardware", "Plan", "plan", "survey", "usable_cores"]

_GIB = 2**30
_VISIBLE_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Accelerator:
    """One device as PyTorch numbers it. `memory` and `free` in bytes, None where not known."""

    index: int
    name: str
    memory: int | None = None
    free: int | None = None
    capability: tuple[int, int] | None = None
    visible_entry: str | None = None
    uuid: str | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False)
class DeviceSurvey:
    """What was found. Draws itself as a table in a notebook and as text elsewhere."""

    system: str
    python: str
    torch: str
    build: str
    accelerator: str | None
    devices: tuple[Accelerator, ...]
    peer_access: tuple[tuple[bool, ...], ...]
    backends: dict[str, bool]
    cores: int
    cores_in_machine: int
    visible: VisibleDevices
    plan: Plan | None
    use: str
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The survey as JSON-able data, without host name, user, path or device serial numbers."""
        plan = self.plan
        return {
            "system": self.system,
            "python": self.python,
            "torch": self.torch,
            "build": self.build,
            "accelerator": self.accelerator,
            "devices": [
                {
                    "index": device.index,
                    "name": device.name,
                    "memory": device.memory,
                    "free": device.free,
                    "capability": None if device.capability is None else list(device.capability),
                }
                for device in self.devices
            ],
            "peer_access": [list(row) for row in self.peer_access],
            "backends": dict(self.backends),
            "cores": self.cores,
            "cores_in_machine": self.cores_in_machine,
            "cuda_visible_devices": self.visible.value,
            "plan": None
            if plan is None
            else {
                "backend": plan.backend,
                "world_size": plan.world_size,
                "rank_devices": [str(device) for device in plan.rank_devices],
                "single_device": str(plan.single_device),
            },
            "use": self.use,
            "notices": list(self.notices),
        }

    def rows(self) -> Iterator[tuple[str, str]]:
        """The table's rows: what, and what was found."""
        yield "System", f"{self.system}, Python {self.python}"
        yield "PyTorch", f"{self.torch} ({self.build})"
        if not self.devices:
            yield "Accelerators", "none that PyTorch can use"
        for device in self.devices:
            yield f"{self.accelerator}:{device.index}", _described(device)
        if self.visible.restricts:
            meaning = ", ".join(f"{index} is {entry}" for index, entry in enumerate(self.visible.entries))
            value = repr(self.visible.value)
            yield "CUDA_VISIBLE_DEVICES", f"{value} ({meaning or 'no GPU is visible'})"
        if len(self.devices) > 1 and self.peer_access:
            yield "Peer access", _peers(self.peer_access)
        yield "CPU cores", f"{self.cores} usable of {self.cores_in_machine}"
        yield "Backends", ", ".join(name for name, built in self.backends.items() if built) or "none"
        if self.plan is not None:
            ranks = ", ".join(str(device) for device in self.plan.rank_devices)
            yield "Ranks", f"{self.plan.world_size} over {self.plan.backend}: {ranks}"
            yield "One-device work", str(self.plan.single_device)
        yield "Why", self.use
        for notice in self.notices:
            yield "Notice", notice

    def __str__(self) -> str:
        rows = list(self.rows())
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        # Colours and borders are left to the notebook's theme, so that dark and light both stay readable.
        cell = 'style="text-align: left; vertical-align: top"'
        rows = "".join(
            f'<tr><th scope="row" {cell}>{html.escape(name)}</th><td {cell}>{html.escape(text)}</td></tr>'
            for name, text in self.rows()
        )
        return f"<table><tbody>{rows}</tbody></table>"


def survey() -> DeviceSurvey:
    """Look at accelerators, CPU cores and backends; opens no accelerator in this process.

    A nonsensical MGPU_DEVICE or MGPU_WORLD_SIZE does not raise here: its sentence stands in `use`, and
    `plan` is None.
    """
    visible = parse_visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
    kind, devices, peers, trouble = _accelerators(visible)
    found: Plan | None = None
    try:
        found = decide(_hardware(kind, devices, visible), environ=os.environ)
        use = found.reason
    except (ValueError, RuntimeError) as error:
        use = str(error)
    late = changed_too_late(_VISIBLE_AT_IMPORT, visible.value, torch.cuda.is_initialized())
    notices = (visible.notice, late, trouble, missing_gpu_build(bool(devices), _gpu_driver(), _build()))
    return DeviceSurvey(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        build=_build(),
        accelerator=kind,
        devices=devices,
        peer_access=peers,
        backends=_backends(),
        cores=usable_cores(),
        cores_in_machine=os.cpu_count() or 1,
        visible=visible,
        plan=found,
        use=use,
        notices=tuple(notice for notice in notices if notice),
    )


def plan(world_size: int | None = None, device: str = "auto") -> Plan:
    """Where rank work and single-device work run on this machine, and why.

    Two or more GPUs: one rank a GPU over nccl. Otherwise CPU ranks over gloo, with single-device work on the
    one accelerator if there is one. MGPU_WORLD_SIZE and MGPU_DEVICE stand in for arguments not given.
    Raises ValueError with one sentence for values that make no sense here.
    """
    visible = parse_visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
    found = torch.accelerator.current_accelerator()
    kind, count = (found.type if found else None), torch.accelerator.device_count()
    if kind == "cuda" and count > 1:
        # Only here can the driver's count be larger than what opens (MIG), worth a process of its own.
        devices = _accelerators(visible)[1]
    else:
        devices = tuple(Accelerator(index, "not asked") for index in range(count))
    return decide(_hardware(kind, devices, visible), world_size, device, os.environ)


def missing_gpu_build(usable: bool, driver: str | None, build: str) -> str | None:
    """The sentence for a GPU driver that is there while PyTorch was built for the CPU only, else None."""
    if usable or driver is None or build != "CPU only":
        return None
    return (
        f"This PyTorch is a CPU-only build although an {driver} GPU driver is installed: "
        "install a GPU build from pytorch.org to use the GPU."
    )


def _accelerators(
    visible: VisibleDevices,
) -> tuple[str | None, tuple[Accelerator, ...], tuple[tuple[bool, ...], ...], str | None]:
    kind = torch.accelerator.current_accelerator()
    count = torch.accelerator.device_count()
    if kind is None or count == 0:
        return None, (), (), None
    answer = probe()
    if isinstance(answer, str):
        devices = tuple(Accelerator(index, "name not known") for index in range(count))
        return kind.type, devices, (), answer
    # The child's count is what could be opened; the driver's may be larger (MIG, a broken device).
    devices = tuple(
        Accelerator(
            index,
            found["name"],
            found["memory"],
            found["free"],
            None if found["capability"] is None else (found["capability"][0], found["capability"][1]),
            visible.entries[index] if index < len(visible.entries) else None,
            found["uuid"],
        )
        for index, found in enumerate(answer["devices"])
    )
    return kind.type, devices, tuple(tuple(row) for row in answer["peers"]), None


def _hardware(kind: str | None, devices: tuple[Accelerator, ...], visible: VisibleDevices) -> Hardware:
    backends = _backends()
    mig = kind == "cuda" and (visible.mig or any(" MIG " in f"{device.name} " for device in devices))
    return Hardware(kind, len(devices), usable_cores(), backends["nccl"], backends["gloo"], mig)


def _backends() -> dict[str, bool]:
    names = ("gloo", "nccl", "xccl", "mpi", "ucc")
    if not dist.is_available():
        return dict.fromkeys(names, False)
    return {name: bool(getattr(dist, f"is_{name}_available")()) for name in names}


def _build() -> str:
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    if torch.backends.mps.is_built():
        return "Apple MPS"
    return "Intel XPU" if torch.xpu._is_compiled() else "CPU only"


def _gpu_driver() -> str | None:
    if Path("/proc/driver/nvidia/version").exists():
        return "NVIDIA"
    return "AMD" if Path("/dev/kfd").exists() else None


def _described(device: Accelerator) -> str:
    parts = [device.name]
    if device.memory is not None:
        free = "" if device.free is None else f" ({device.free / _GIB:.1f} GiB free)"
        parts.append(f"{device.memory / _GIB:.1f} GiB{free}")
    if device.capability is not None:
        parts.append(f"compute capability {device.capability[0]}.{device.capability[1]}")
    return ", ".join(parts)


def _peers(peers: tuple[tuple[bool, ...], ...]) -> str:
    count = len(peers)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    missing = [f"{a}-{b}" for a, b in pairs if not peers[a][b]]
    if not missing:
        return "every pair"
    return "no pair" if len(missing) == len(pairs) else f"every pair but {', '.join(missing)}"
