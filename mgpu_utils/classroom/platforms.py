"""The platforms a pack can be made for: pip's tags for their wheels, and what their markers evaluate to."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass

_GLIBC = range(39, 4, -1)
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Platform:
    """One platform: its name here, pip's platform tags, and the values of the markers of PEP 508."""

    name: str
    tags: tuple[str, ...]
    sys_platform: str
    platform_system: str
    os_name: str
    platform_machine: str

    def markers(self, python: str) -> dict[str, str]:
        """The markers of this platform with CPython `python`, such as `3.12`."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{python}.{LATEST_PATCH}",
            "os_name": self.os_name,
            "platform_machine": self.platform_machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": self.platform_system,
            "platform_version": "",
            "python_full_version": f"{python}.{LATEST_PATCH}",
            "python_version": python,
            "sys_platform": self.sys_platform,
        }


def _linux(machine: str) -> Platform:
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    tags += [f"{name}_{machine}" for name in _LEGACY.values()] + [f"linux_{machine}"]
    return Platform(f"linux-{machine}", tuple(tags), "linux", "Linux", "posix", machine)


_MACOS = ("macosx_15_0_arm64", "macosx_14_0_arm64", "macosx_14_0_universal2")
PLATFORMS = {
    each.name: each
    for each in (
        _linux("x86_64"),
        _linux("aarch64"),
        Platform("macos-arm64", _MACOS, "darwin", "Darwin", "posix", "arm64"),
        Platform("windows-x86_64", ("win_amd64",), "win32", "Windows", "nt", "AMD64"),
    )
}
PYTHONS = ("3.11", "3.12", "3.13")
# Stands for the newest release of a Python, whichever that is.
LATEST_PATCH = 99


def this_platform() -> str:
    """The name of the platform this runs on; raises ValueError when no pack can be made for it."""
    systems = {"linux": "linux", "darwin": "macos", "win32": "windows"}
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    machine = "arm64" if sys.platform == "darwin" and machine == "aarch64" else machine
    return known_platforms([f"{systems.get(sys.platform, sys.platform)}-{machine}"])[0].name


def this_python() -> str:
    """The Python this runs on, as in `3.12`."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def known_platforms(names: Iterable[str]) -> list[Platform]:
    """Platforms by name; raises ValueError with the names there are."""
    for name in names:
        if name not in PLATFORMS:
            raise ValueError(f"no pack can be made for {name!r}; the platforms are {', '.join(PLATFORMS)}.")
    return [PLATFORMS[name] for name in names]
