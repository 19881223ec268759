"""Make the folder and the zip that a class is handed: notebooks, wheels, and one page to start with."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.authoring import Source, dumps, find_sources, generate, keep_outputs, read_notebook
from mgpu_utils.classroom.lessons import lesson_sources
from mgpu_utils.classroom.own_wheel import build_own_wheel
from mgpu_utils.classroom.pack_contents import START, refuse_to_lose, write_manifest
from mgpu_utils.classroom.platforms import PYTHONS, known_platforms
from mgpu_utils.classroom.start_page import start_page
from mgpu_utils.classroom.wheel_download import download_wheels, lowest_python

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

    Both are written beside their place and moved there when they are complete. A pack that is there already is
    replaced when it is as it was written. Raises ValueError for a folder or a zip that holds something else, an
    unknown platform, Python or lesson, and wheels that cannot be had; OSError where nothing can be written.
    """
    chosen = known_platforms(platforms)
    unknown = [python for python in pythons if python not in PYTHONS]
    if unknown or not pythons:
        raise ValueError(f"the course runs on Python {', '.join(PYTHONS)}, not on {', '.join(unknown) or 'none'}.")
    if folder.name in ("", ".."):
        raise ValueError(f"{folder} gives the pack no name; name its folder, as in --out handout.")
    target = folder.with_name(f"{folder.name}.zip")
    refuse_to_lose(folder, target)
    sources = _chosen(root, names)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch) / folder.name
        new.mkdir()
        lessons = _write_notebooks(root, new, sources)
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
        shutil.copyfile(Path(__file__).with_name("start_script.py"), new / "start.py")
        page = start_page(list(lowest.values()), platforms, lessons, bool(chosen))
        (new / START).write_text(page, encoding="utf-8")
        write_manifest(new, manifest)
        archive = _zip(new, Path(scratch) / f"{folder.name}.zip")
        size = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
        # Wheels take minutes; somebody may have worked there meanwhile.
        refuse_to_lose(folder, target)
        before = Path(scratch) / "before"
        if folder.exists():
            os.replace(folder, before)
        try:
            os.replace(new, folder)
        except BaseException:
            if before.exists():
                os.replace(before, folder)
            raise
        os.replace(archive, target)
    return Pack(folder, target, size, target.stat().st_size)


def _chosen(root: Path, names: Sequence[str]) -> list[Source]:
    """The lessons that were asked for, and all benchmarks."""
    lessons = lesson_sources(root, names)
    if not lessons:
        raise ValueError(f"{root} holds no lesson, so there is nothing to hand out.")
    return [*lessons, *find_sources(root, kind="benchmark")]


def _write_notebooks(root: Path, folder: Path, sources: Sequence[Source]) -> list[str]:
    """Learner versions of the sources, with the outputs the course stores; returns the file names of the lessons."""
    for source in sources:
        notebook = generate(source.path)
        if source.notebook.is_file():
            notebook = keep_outputs(notebook, read_notebook(source.notebook))
        target = folder / source.notebook.relative_to(root)
        target.parent.mkdir(exist_ok=True)
        target.write_text(dumps(notebook), encoding="utf-8")
    return [source.notebook.name for source in sources if source.kind == "lesson"]


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
