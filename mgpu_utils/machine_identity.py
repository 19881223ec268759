"""What machines that work together tell each other before they start: what has to be the same, and what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgpu_utils.machine_lead import BOOT

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TOLD = ("device_count", "device_names", "cpu", "cores_usable", "cores_in_machine")


def identity(config: str, environment: Mapping[str, Any]) -> dict[str, str]:
    """Return what has to be the same on every machine, by names that a sentence can use.

    Args:
        config: the effective configuration as text.
        environment: what `mgpu_utils.benchmark.environment.environment` says of this machine.
    """
    return {
        "mgpu_utils": _hash_of_package(),
        "configuration": hashlib.sha256(config.encode("utf-8")).hexdigest()[:12],
        "version of torch": str(environment["versions"]["torch"]),
        "kind of accelerator": str(environment["accelerator"]),
    }


def description(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this machine is, for the lead to compare and to record; no host name, user or path."""
    told = {name: environment[name] for name in _TOLD}
    return told | {BOOT: _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.is_file() else None}


def _hash_of_package() -> str:
    """Return a hash of the package's source: a version number does not change while one edits."""
    package = Path(__file__).parent
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(path.relative_to(package).as_posix().encode("utf-8"))
        total.update(path.read_bytes())
    return total.hexdigest()[:12]
