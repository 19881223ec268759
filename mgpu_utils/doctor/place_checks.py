"""Where this runs, as far as that changes what is true here: a container, WSL, or a machine as such."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.doctor.findings import Finding

_CONTAINER_GROUPS = re.compile(r"docker|kubepods|containerd|libpod|lxc|crio")


@dataclass(frozen=True)
class Place:
    """`container`: what shows that it is one, None outside. `wsl`: 1 or 2 on the Windows Subsystem for Linux."""

    container: str | None = None
    wsl: int | None = None
    windows_disk: bool = False


def look(root: Path = Path("/"), environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Place:
    """Read the signs below `root`; `folder` is where the course is (default: the working directory)."""
    if folder is None:
        # The shell's word for it; a working directory that was deleted has no other.
        folder = Path((environ or {}).get("PWD", "/"))
    container = None
    for name, kind in (("run/.containerenv", "Podman"), (".dockerenv", "Docker")):
        if (root / name).exists():
            container = kind
    if container is None and "KUBERNETES_SERVICE_HOST" in (environ or {}):
        container = "Kubernetes"
    if container is None and (match := _CONTAINER_GROUPS.search(_text(root / "proc/self/cgroup"))):
        container = match.group()
    kernel = _text(root / "proc/version")
    wsl = None
    if "microsoft" in kernel.lower():
        # The kernel of WSL 2 is Microsoft's own ("microsoft-standard-WSL2"), that of WSL 1 an imitation ("Microsoft").
        wsl = 2 if "microsoft-standard" in kernel else 1
    on_windows_disk = bool(re.match(r"/mnt/[a-z](/|$)", str(folder)))
    return Place(container, wsl, wsl is not None and on_windows_disk)


def judge(place: Place) -> list[Finding]:
    """What is special here; nothing on an ordinary machine."""
    findings = []
    if place.container is not None:
        findings.append(
            Finding(
                "Container",
                "note",
                f"this is a container ({place.container}): it has the cores, memory, /dev/shm and GPUs that it was "
                "given, and JupyterLab's port must be published.",
                "docker run --gpus all --shm-size=1g -p 127.0.0.1:8888:8888, then mgpu lab --ip=0.0.0.0 inside.",
            )
        )
    if place.wsl == 1:
        cure = "in Windows: wsl --set-version DISTRIBUTION 2."
        findings.append(Finding("WSL", "warning", "this is WSL 1, which has no GPUs and slow files.", cure))
    elif place.wsl == 2:
        findings.append(
            Finding(
                "WSL",
                "note",
                "this is WSL 2: the GPU driver is the one of Windows (install none inside), and WSL gets only a "
                "part of the memory.",
                "more memory: a line such as memory=16GB in .wslconfig in Windows, then wsl --shutdown.",
            )
        )
    if place.windows_disk:
        cure = "keep the course in the home folder of Linux."
        findings.append(Finding("WSL disk", "warning", "this folder is on a disk of Windows: files are slow.", cure))
    return findings


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
