"""Make the folder and the zip that a class is handed: notebooks, wheels, and one page to start with."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.authoring import dumps, find_sources, generate, keep_outputs, read_notebook
from mgpu_utils.classroom.own_wheel import build_own_wheel
from mgpu_utils.classroom.platforms import PYTHONS, known_platforms
from mgpu_utils.classroom.start_page import start_page
from mgpu_utils.classroom.wheel_download import download_wheels, lowest_python

MANIFEST = "pack.json"
_PAGES = ("glossary.md", "troubleshooting.md", "claims.md", "benchmarks.md")


@dataclass(frozen=True)
class Pack:
    """What was made: the folder, the zip beside it, and how many bytes each holds."""

    folder: Path
    archive: Path
    folder_bytes: int
    archive_bytes: int


def make_pack(
    root: Path,
    folder: Path,
    *,
    names: Sequence[str] = (),
    platforms: Sequence[str] = (),
    pythons: Sequence[str] = PYTHONS,
    tell: Callable[[str], None] = print,
) -> Pack:
    """Write a pack to `folder` and to `folder.zip`; with `platforms` it installs without a network on these.

    Both are written beside their place and moved there when they are complete. Raises ValueError for a folder that
    holds something else, an unknown platform or Python, and wheels that cannot be had.
    """
    chosen = known_platforms(platforms)
    unknown = [python for python in pythons if python not in PYTHONS]
    if unknown or not pythons:
        raise ValueError(f"the course runs on Python {', '.join(PYTHONS)}, not on {', '.join(unknown) or 'none'}.")
    if folder.exists() and not (folder / MANIFEST).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} holds something that is no pack; name a folder that is not there yet.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch) / folder.name
        new.mkdir()
        lessons = _write_notebooks(root, new, names)
        _copy_pages(root, new)
        wheel = build_own_wheel(root, new / "wheels")
        shutil.copyfile(root / "constraints.txt", new / "constraints.txt")
        lowest = {python: f"{python}.0" for python in pythons}
        for python in pythons if chosen else ():
            wheels = [wheel]
            for platform in chosen:
                wheels += download_wheels(wheel, new / "wheels", platform, python, root / "constraints.txt", tell)
            lowest[python] = lowest_python(wheels, python)
        manifest = {
            "wheel": wheel.name,
            "pythons": lowest,
            "platforms": list(platforms),
            "offline": bool(chosen),
        }
        (new / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        shutil.copyfile(Path(__file__).with_name("start_script.py"), new / "start.py")
        page = start_page(list(lowest.values()), platforms, lessons, bool(chosen))
        (new / "START.html").write_text(page, encoding="utf-8")
        archive = _zip(new, Path(scratch) / f"{folder.name}.zip")
        size = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(new, folder)
        target = folder.with_name(f"{folder.name}.zip")
        os.replace(archive, target)
    return Pack(folder, target, size, target.stat().st_size)


def _write_notebooks(root: Path, folder: Path, names: Sequence[str]) -> list[str]:
    """Learner versions of the lessons, with the outputs the course stores, and the benchmarks; returns the lessons."""
    chosen = {source.path for source in find_sources(root, names)}
    lessons = []
    for source in find_sources(root):
        if source.kind == "lesson" and source.path not in chosen:
            continue
        notebook = generate(source.path)
        if source.notebook.is_file():
            notebook = keep_outputs(notebook, read_notebook(source.notebook))
        target = folder / source.notebook.relative_to(root)
        target.parent.mkdir(exist_ok=True)
        target.write_text(dumps(notebook), encoding="utf-8")
        if source.kind == "lesson":
            lessons.append(source.notebook.name)
    if not lessons:
        raise ValueError("no lesson was chosen; name at least one, as in 05.")
    return lessons


def _copy_pages(root: Path, folder: Path) -> None:
    (folder / "docs").mkdir()
    for name in _PAGES:
        if (root / "docs" / name).is_file():
            shutil.copyfile(root / "docs" / name, folder / "docs" / name)
    for path in (root / "benchmarks/configs").glob("*.yaml"):
        target = folder / "benchmarks/configs" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _zip(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            # Wheels are compressed already.
            method = zipfile.ZIP_STORED if file.suffix == ".whl" else None
            archive.write(file, file.relative_to(folder.parent), compress_type=method)
    return path
