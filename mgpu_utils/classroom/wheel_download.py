"""Download the wheels of a package and of all it needs, for a platform that need not be this one.

pip evaluates markers (`; sys_platform == "win32"`) for the machine it runs on, also when it downloads for another.
So requirements are followed here, one level at a time, with the markers of the wanted platform; pip finds the wheels,
with its own configuration (indexes, proxies, `PIP_FIND_LINKS`).
"""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from email.message import Message
from pathlib import Path
from typing import Any

from mgpu_utils.classroom.own_wheel import said_by_pip
from mgpu_utils.classroom.platforms import LATEST_PATCH, Platform


def download_wheels(
    own: Path,
    folder: Path,
    platform: Platform,
    python: str,
    constraints: Path | None,
    tell: Callable[[str], None] = print,
) -> list[Path]:
    """Put every wheel that `own` needs on this platform and Python into `folder`; returns them without `own`.

    Raises ValueError naming what has no wheel there, or whose version does not fit another's requirement.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Path] = {}
    followed: set[tuple[str, str]] = set()
    asked: dict[str, list[Requirement]] = {}
    level = _requirements(own, "", platform, python)
    with tempfile.TemporaryDirectory(prefix="mgpu-wheels-") as scratch:
        while level:
            for requirement in level:
                asked.setdefault(canonicalize_name(requirement.name), []).append(requirement)
            wanted = sorted({canonicalize_name(requirement.name) for requirement in level} - set(found))
            if wanted:
                tell(f"{platform.name}, Python {python}: {', '.join(wanted)}")
                specifiers = [f"{name}{_joined(asked[name])}" for name in wanted]
                found |= _download(specifiers, Path(scratch), platform, python, constraints)
            following: list[Requirement] = []
            for requirement in level:
                name = canonicalize_name(requirement.name)
                for extra in ("", *sorted(requirement.extras)):
                    if (name, extra) not in followed:
                        followed.add((name, extra))
                        following += _requirements(found[name], extra, platform, python)
            level = following
        _check_versions(found, asked)
        folder.mkdir(parents=True, exist_ok=True)
        return [_keep(path, folder) for _, path in sorted(found.items())]


def _download(
    specifiers: Sequence[str], scratch: Path, platform: Platform, python: str, constraints: Path | None
) -> dict[str, Path]:
    from packaging.utils import parse_wheel_filename

    into = Path(tempfile.mkdtemp(dir=scratch))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "-d", str(into)]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--implementation", "cp"]
    # With "3.11" alone pip takes 3.11.0, which many wheels no longer support.
    command += ["--python-version", f"{python}.{LATEST_PATCH}"]
    command += [part for tag in platform.tags for part in ("--platform", tag)]
    command += ["-c", str(constraints)] if constraints else []
    done = subprocess.run([*command, *specifiers], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(
            f"not everything can be downloaded for {platform.name} and Python {python}: {said_by_pip(done.stderr)}"
        )
    return {str(parse_wheel_filename(path.name)[0]): path for path in into.glob("*.whl")}


def _requirements(wheel: Path, extra: str, platform: Platform, python: str) -> list[Any]:
    """What a wheel needs on this platform: without extras, or what `extra` adds."""
    from packaging.requirements import Requirement

    markers = platform.markers(python)
    metadata = _metadata(wheel)
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]

    def applies(requirement: Requirement, value: str) -> bool:
        return requirement.marker is None or requirement.marker.evaluate(markers | {"extra": value})

    if not extra:
        return [requirement for requirement in needed if applies(requirement, "")]
    return [requirement for requirement in needed if applies(requirement, extra) and not applies(requirement, "")]


def lowest_python(wheels: Sequence[Path], python: str) -> str:
    """The first release of `python` (such as `3.12`) on which all these wheels install, as in `3.12.0`.

    Raises ValueError naming a wheel that installs on none.
    """
    from packaging.specifiers import SpecifierSet

    left = [f"{python}.{patch}" for patch in range(LATEST_PATCH + 1)]
    for wheel in wheels:
        allowed = SpecifierSet(_metadata(wheel).get("Requires-Python", ""))
        left = [version for version in left if version in allowed]
        if not left:
            raise ValueError(f"{wheel.name} does not install on Python {python} (it needs {allowed}).")
    return left[0]


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
        return email.message_from_bytes(archive.read(name))


def _joined(requirements: Sequence[Any]) -> str:
    return ",".join(sorted({str(each.specifier) for each in requirements if str(each.specifier)}))


def _check_versions(found: dict[str, Path], asked: dict[str, list[Any]]) -> None:
    from packaging.utils import parse_wheel_filename

    for name, requirements in asked.items():
        version = parse_wheel_filename(found[name].name)[1]
        for requirement in requirements:
            if not requirement.specifier.contains(version, prereleases=True):
                raise ValueError(
                    f"{name} {version} was found, but {requirement} is needed; pin a version that fits all "
                    "in constraints.txt."
                )


def _keep(path: Path, folder: Path) -> Path:
    target = folder / path.name
    if not target.is_file():
        shutil.move(path, target)
    return target
