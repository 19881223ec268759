"""A learner's own answers and results, in one small file that never gets in the way."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

_FILE = "progress.json"
_unsaved: dict[str, dict[str, Any]] = {}


def home() -> Path:
    """The folder of the learner's file: MGPU_HOME, else `.mgpu` next to the notebook."""
    return Path(os.environ.get("MGPU_HOME") or ".mgpu")


def read() -> dict[str, dict[str, Any]]:
    """What is known: `predictions` and `checks`, each by name; a file that cannot be read counts as empty."""
    kept = _read_file(home() / _FILE)
    for section in ("predictions", "checks"):
        kept[section] = {**kept.get(section, {}), **_unsaved.get(section, {})}
    return kept


def record(section: str, name: str, entry: dict[str, Any]) -> bool:
    """Keep one entry; returns False when it could be kept only until this kernel ends."""
    folder = home()
    kept = _read_file(folder / _FILE)
    kept.setdefault(section, {})[name] = entry
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".progress-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"version": 1, **kept}, file, indent=1, sort_keys=True)
            os.replace(temporary, folder / _FILE)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError:
        _unsaved.setdefault(section, {})[name] = entry
        return False
    _unsaved.get(section, {}).pop(name, None)
    return True


def _read_file(path: Path) -> dict[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        _set_aside(path)
        return {}
    entries = {}
    for section in ("predictions", "checks"):
        found = content.get(section)
        if isinstance(found, dict):
            entries[section] = {name: entry for name, entry in found.items() if isinstance(entry, dict)}
    return entries


def _set_aside(path: Path) -> None:
    try:
        os.replace(path, path.with_name("progress.damaged.json"))
    except OSError:
        return
