"""Does the build of PyTorch match the GPU driver of this machine?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_utils.doctor.findings import Finding

GPU_BUILD = "install a GPU build of PyTorch (https://pytorch.org/get-started/locally)"
# NVIDIA, "CUDA compatibility", minor version compatibility: the oldest driver for each major version of CUDA.
_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_NAME = "GPU driver"


@dataclass(frozen=True)
class Cards:
    """GPUs as the operating system sees them. `driver`: its version, "" where it is not told, None without one."""

    vendor: str | None = None
    driver: str | None = None


def look_for_cards(root: Path = Path("/")) -> Cards:
    """GPUs and their kernel drivers, from what Linux shows in `proc`, `sys` and `dev` below `root`."""
    version = root / "proc/driver/nvidia/version"
    if version.exists():
        match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", version.read_text(errors="replace"))
        return Cards("NVIDIA", match.group(1) if match else "")
    # WSL 2: the driver is the one of Windows, which puts its library there.
    if (root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists():
        return Cards("NVIDIA", "")
    vendors = {_display_vendor(device) for device in root.glob("sys/bus/pci/devices/*")}
    if "NVIDIA" in vendors:
        return Cards("NVIDIA")
    if (root / "dev/kfd").exists():
        return Cards("AMD", "")
    return Cards("AMD" if "AMD" in vendors else None)


def _display_vendor(device: Path) -> str | None:
    try:
        # PCI class 03: display controller.
        if not (device / "class").read_text().startswith("0x03"):
            return None
        return _VENDORS.get((device / "vendor").read_text().strip())
    except OSError:
        return None


def build_name(torch: Mapping[str, Any]) -> str:
    """What this PyTorch was built for, in words."""
    if torch["hip"]:
        return f"ROCm {torch['hip']}"
    if torch["cuda"]:
        return f"CUDA {torch['cuda']}"
    if torch["mps"]:
        return "Apple MPS"
    return "Intel XPU" if torch["xpu"] else "CPU-only"


def judge_driver(
    torch: Mapping[str, Any], cuda_of_driver: int | None, cards: Cards, *, container: bool = False
) -> Finding:
    """One line on build and driver; `cuda_of_driver` is the newest CUDA it supports, as 1000 x major + 10 x minor."""
    built = build_name(torch)
    if cards.vendor == "NVIDIA":
        return _judge_nvidia(torch, built, cuda_of_driver, cards, container)
    if cards.vendor == "AMD" and not torch["hip"]:
        # Most processors of AMD bring a small GPU, which ROCm does not know: nothing to be warned of.
        sentence = f"the machine has an AMD GPU, and this PyTorch is a {built} build; the course runs on the CPU."
        return Finding(_NAME, "note", sentence, f"if ROCm supports that GPU: {GPU_BUILD} for ROCm.")
    if cards.vendor == "AMD" and cards.driver is None:
        sentence = "the machine has an AMD GPU, but its driver (/dev/kfd) is not in reach; the course runs on the CPU."
        cure = (
            "start the container with --device=/dev/kfd --device=/dev/dri." if container else "install ROCm's driver."
        )
        return Finding(_NAME, "warning", sentence, cure)
    if cards.vendor == "AMD":
        return Finding(_NAME, "ok", f"AMD's driver is there, and PyTorch was built for {built}.")
    if torch["cuda"] or torch["hip"]:
        sentence = f"PyTorch is a {built} build, but no such GPU is visible; the course runs on the CPU."
        return Finding(_NAME, "note", sentence)
    if torch["mps"] or torch["xpu"]:
        return Finding(_NAME, "ok", f"it is part of the system ({built} build).")
    return Finding(_NAME, "ok", "no NVIDIA or AMD GPU is visible on this machine, and none is needed.")


def _judge_nvidia(
    torch: Mapping[str, Any], built: str, cuda_of_driver: int | None, cards: Cards, container: bool
) -> Finding:
    handed = "start the container with --gpus all (it needs the NVIDIA container toolkit)."
    if cards.driver is None:
        sentence = "the machine has an NVIDIA GPU, but no driver for it is in reach; the course runs on the CPU."
        cure = handed if container else "to use the GPU: install NVIDIA's driver."
        return Finding(_NAME, "warning" if torch["cuda"] else "note", sentence, cure)
    driver = f"NVIDIA driver {cards.driver}".rstrip()
    if not torch["cuda"]:
        sentence = f"PyTorch is a {built} build although an {driver} is installed; the course runs on the CPU."
        return Finding(_NAME, "warning", sentence, f"to use the GPU: {GPU_BUILD}.")
    if cuda_of_driver is None:
        sentence = f"an {driver} runs, but its library libcuda cannot be loaded; the course runs on the CPU."
        return Finding(_NAME, "warning", sentence, handed if container else "install the driver anew, as a whole.")
    return _judge_versions(torch["cuda"], cuda_of_driver, driver)


def _judge_versions(wanted: str, cuda_of_driver: int, driver: str) -> Finding:
    built = tuple(int(part) for part in wanted.split(".")[:2])
    supports = (cuda_of_driver // 1000, cuda_of_driver % 1000 // 10)
    newest = f"{supports[0]}.{supports[1]}"
    if supports[0] < built[0]:
        oldest = _OLDEST_DRIVER.get(built[0])
        return Finding(
            _NAME,
            "broken",
            f"PyTorch was built for CUDA {wanted}, but the {driver} supports CUDA {newest} at most: no GPU works.",
            f"install {f'driver {oldest} or newer' if oldest else 'a newer driver'}, or a PyTorch built for CUDA "
            f"{supports[0]}; until then: export MGPU_DEVICE=cpu.",
        )
    if supports < built:
        sentence = (
            f"the {driver} supports CUDA {newest}, and PyTorch was built for {wanted}: the same major version, so it "
            "works; a few of the newest features need a newer driver."
        )
        return Finding(_NAME, "note", sentence)
    return Finding(_NAME, "ok", f"the {driver} supports CUDA {newest}; PyTorch was built for {wanted}.")
