"""The Python that runs the course, and the packages that it needs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mgpu_utils.doctor.findings import Finding

_OLDEST, _FIRST_TOO_NEW = (3, 11), (3, 14)
_AGAIN = "make clean, then make lab (conda: create the environment anew)"


@dataclass(frozen=True)
class Package:
    """One requirement of the course: what is asked for, and which version is there."""

    name: str
    wanted: str
    version: str | None
    fits: bool


def judge_python(version: tuple[int, int], text: str, *, own: bool) -> Finding:
    """Is this a Python of the course's range? `own`: it belongs to an environment of its own."""
    if not _OLDEST <= version < _FIRST_TOO_NEW:
        sentence = f"{text}; the course needs 3.11, 3.12 or 3.13."
        return Finding("Python", "broken", sentence, "make clean, then make lab PYTHON=python3.12.")
    if not own:
        sentence = f"{text}, shared with other programs: their packages and the course's can disturb each other."
        return Finding("Python", "note", sentence, "make lab sets up an environment of its own.")
    return Finding("Python", "ok", f"{text}, in an environment of its own.")


def look_at_python() -> Finding:
    """Judge the Python that runs this."""
    # An environment of conda has a prefix of its own too; the base one alone holds conda itself.
    conda = Path(sys.prefix, "conda-meta").is_dir() and not Path(sys.prefix, "condabin").is_dir()
    own = sys.prefix != sys.base_prefix or conda
    return judge_python(sys.version_info[:2], platform.python_version(), own=own)


def look_at_packages(version: Callable[[str], str] = metadata.version) -> list[Package] | None:
    """Each requirement of the course, and what is installed; None when the course itself is not installed."""
    from packaging.requirements import Requirement

    try:
        requirements = metadata.requires("mgpu-utils") or []
    except metadata.PackageNotFoundError:
        return None
    found = []
    for line in requirements:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            have = version(requirement.name)
        except metadata.PackageNotFoundError:
            found.append(Package(requirement.name, str(requirement.specifier), None, False))
            continue
        fits = requirement.specifier.contains(have, prereleases=True)
        found.append(Package(requirement.name, str(requirement.specifier), have, fits))
    return found


def judge_packages(packages: list[Package] | None) -> Finding:
    """Is everything there, in versions that the course is made for?"""
    if packages is None:
        cure = "make lab (conda: python -m pip install -e . in the course's folder)."
        return Finding("Packages", "broken", "mgpu_utils is not installed for this Python.", cure)
    missing = [package.name for package in packages if package.version is None]
    if missing:
        return Finding("Packages", "broken", f"not installed: {', '.join(missing)}.", f"{_AGAIN}.")
    others = [f"{p.name} {p.version} (wanted {p.wanted})" for p in packages if not p.fits]
    if others:
        return Finding("Packages", "warning", f"other versions than the course's: {', '.join(others)}.", f"{_AGAIN}.")
    return Finding("Packages", "ok", f"all {len(packages)} that the course needs are installed.")
