"""Know what `mgpu student` wrote into a pack, so that a new pack replaces that alone."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "pack.json"
START = "START.html"
_FILES = "files"
_ADVICE = "Choose another --out, or move"


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the pack's manifest, with a SHA-256 for each file that the folder holds; called last."""
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    text = json.dumps({**manifest, _FILES: files}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def refuse_to_lose(folder: Path, archive: Path) -> None:
    """Raise ValueError, naming what would be lost, unless both are free or as `mgpu student` wrote them."""
    if folder.is_symlink():
        raise ValueError(f"{folder} is a link. Name the folder it leads to, or one that is not there yet.")
    if folder.exists():
        _refuse_folder(folder)
    if os.path.lexists(archive) and not _is_zip_of_a_pack(archive, folder.name):
        raise ValueError(f"{archive} is there, and is no zip of a pack. {_ADVICE} that file away.")


def _refuse_folder(folder: Path) -> None:
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).is_file()):
        raise ValueError(f"{folder} holds something that is no pack; name a folder that is not there yet.")
    if not any(folder.iterdir()):
        return
    written = _written_files(folder / MANIFEST)
    if not written:
        raise ValueError(
            f"{folder} is a pack without a list of its files, so files added to it would be lost unseen. "
            f"{_ADVICE} that folder away."
        )
    own = _not_as_written(folder, written)
    if own:
        more = f" and {len(own) - 1} more" if len(own) > 1 else ""
        raise ValueError(
            f"{folder} holds what was added or changed after the pack was made ({own[0]}{more}), and it would be lost. "
            f"{_ADVICE} that away."
        )


def _written_files(manifest: Path) -> dict[str, str]:
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))[_FILES]
    except (ValueError, KeyError, TypeError):
        return {}
    return files if isinstance(files, dict) else {}


def _not_as_written(folder: Path, written: Mapping[str, str]) -> list[str]:
    """Files and folders that are not the pack's, or no longer; notebooks first, for they hold most work."""
    folders = {parent.as_posix() for name in written for parent in Path(name).parents}
    found = []
    for here, below, files in os.walk(folder, onerror=_raise):
        inside = Path(here).relative_to(folder)
        for name in list(below):
            relative = (inside / name).as_posix()
            if relative not in folders or (folder / relative).is_symlink():
                found.append(f"{relative}/")
                below.remove(name)
        for name in files:
            relative = (inside / name).as_posix()
            path = folder / relative
            if relative != MANIFEST and (path.is_symlink() or written.get(relative) != _digest(path)):
                found.append(relative)
    return sorted(found, key=lambda name: (not name.startswith("notebooks/"), name))


def _is_zip_of_a_pack(archive: Path, name: str) -> bool:
    try:
        with zipfile.ZipFile(archive) as content:
            names = content.namelist()
    except (zipfile.BadZipFile, IsADirectoryError):
        return False
    return {f"{name}/{MANIFEST}", f"{name}/{START}"} <= set(names) and all(
        each.startswith(f"{name}/") for each in names
    )


def _digest(path: Path) -> str:
    # A pipe or a socket is nobody's file of the pack, and reading it could take for ever.
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _raise(error: OSError) -> None:
    raise error
