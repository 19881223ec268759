"""On what results were measured: a letter for each environment, and in words how two of them differ."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from typing import Any

Environment = Mapping[str, Any]

UNKNOWN = "environment not recorded"
# What makes it another machine, and what makes it other software on a machine of the same kind.
_MACHINE = {
    "cpu": "CPU",
    "device_names": "GPUs",
    "cores_usable": "usable cores",
    "cores_in_machine": "cores in the machine",
    "system": "system",
    "architecture": "architecture",
    "threads_per_process": "threads a process",
}
_SOFTWARE = {"python": "Python", "torch_build": "PyTorch build"}


def machine_differences(one: Environment | None, other: Environment | None) -> list[str]:
    """Return in words how the machines differ; versions are left out. Unknown differs from everything."""
    if not one or not other:
        return [UNKNOWN]
    return [
        _change(word, one.get(name), other.get(name)) for name, word in _MACHINE.items() if _differ(one, other, name)
    ]


def software_differences(one: Environment | None, other: Environment | None) -> list[str]:
    """Return in words which versions differ; nothing where one of the environments is not known."""
    if not one or not other:
        return []
    changes = [
        _change(word, one.get(name), other.get(name)) for name, word in _SOFTWARE.items() if _differ(one, other, name)
    ]
    before, now = one.get("versions") or {}, other.get("versions") or {}
    names = dict.fromkeys([*before, *now])
    return changes + [
        _change(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)
    ]


def differences(one: Environment | None, other: Environment | None) -> list[str]:
    """Return in words everything in which two environments differ."""
    return machine_differences(one, other) + software_differences(one, other)


def describe(environment: Environment | None) -> str:
    """Return one line: devices or processor, cores, PyTorch's version."""
    if not environment:
        return UNKNOWN
    torch = (environment.get("versions") or {}).get("torch")
    parts = [devices(environment), _cores(environment), f"PyTorch {torch}" if torch else ""]
    return ", ".join(part for part in parts if part)


def devices(environment: Environment) -> str:
    """Return the GPUs with their number, or the processor where there is none."""
    names = [str(name) for name in environment.get("device_names") or []]
    counted = [f"{names.count(name)} x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return ", ".join(counted) or str(environment.get("cpu") or "unknown processor")


def letters(environments: Sequence[Environment | None]) -> list[str]:
    """Return a letter for each environment, the same one for the same environment; "?" for an unknown one."""
    known: dict[str, str] = {}
    found = []
    for environment in environments:
        if not environment:
            found.append("?")
            continue
        compared = {name: environment.get(name) for name in [*_MACHINE, *_SOFTWARE, "versions"]}
        found.append(known.setdefault(json.dumps(compared, sort_keys=True, default=str), _letter(len(known))))
    return found


def facts(environment: Environment) -> dict[str, str]:
    """Return what a table of environments shows, as texts."""
    versions = dict(environment.get("versions") or {})
    memory = [size for size in environment.get("device_memory") or [] if isinstance(size, (int, float))]
    names = environment.get("device_names") or []
    build = environment.get("torch_build")
    return {
        "GPUs": devices(environment) if names else "none",
        "GPU memory": ", ".join(dict.fromkeys(f"{size / 2**30:.0f} GiB" for size in memory)) if memory else "",
        "CPU": str(environment.get("cpu") or ""),
        "cores usable": _shown(environment.get("cores_usable")),
        "cores in machine": _shown(environment.get("cores_in_machine")),
        "threads a process": _shown(environment.get("threads_per_process")),
        "system": f"{environment.get('system') or ''} {environment.get('architecture') or ''}".strip(),
        "Python": _shown(environment.get("python")),
        "PyTorch": _shown(versions.pop("torch", None)) + (f" ({build})" if build else ""),
        "other packages": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _differ(one: Environment, other: Environment, name: str) -> bool:
    return (one.get(name) or None) != (other.get(name) or None)


def _change(word: str, before: Any, now: Any) -> str:
    return f"{word} {_shown(before) or 'none'} and {_shown(now) or 'none'}"


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        names = [str(item) for item in value]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return "" if value is None else str(value)


def _cores(environment: Environment) -> str:
    cores = environment.get("cores_usable")
    return "" if cores is None else f"{cores} core{'' if cores == 1 else 's'}"


def _letter(number: int) -> str:
    alphabet = string.ascii_uppercase
    return alphabet[number] if number < len(alphabet) else f"{alphabet[number % 26]}{number // 26}"
