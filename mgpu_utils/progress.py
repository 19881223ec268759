"""A learner's own answers and results, in one small file that never gets in the way.

`progress.json` holds three sections, each by name. Nothing in it leaves this machine.

    predictions  "05/claim":   answer, unit, revealed, first, last
    checks       "05/scatter": attempts, done, hints, first, last, solved
    lessons      "05":         seconds, last

`first`, `last` and `solved` are times in UTC. `seconds` adds up the time between two answers in one lesson; a gap of
more than `PAUSE_SECONDS` counts as a break and adds nothing. Version 1 of the file had no times and no `lessons`: it is
read as it is, and what a later version added is kept.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgpu_utils.file_lock import locked
from mgpu_utils.whole_file import write_whole

VERSION = 2
SECTIONS = ("predictions", "checks", "lessons")
PAUSE_SECONDS = 20 * 60

Entry = dict[str, Any]

_FILE = "progress.json"
_LOCK = ".progress.lock"
_DAMAGED = "progress.damaged.json"
_unsaved: dict[str, dict[str, Entry]] = {}


def home() -> Path:
    """The folder of the learner's file: MGPU_HOME, else `.mgpu` next to the notebook."""
    return Path(os.environ.get("MGPU_HOME") or ".mgpu")


def read(folder: Path | None = None) -> dict[str, dict[str, Entry]]:
    """What is known, section by section (see above); a file that cannot be read counts as empty.

    With `folder` the file that lies there, as it is; without, that of `home()` and what could not be written to it.
    """
    try:
        kept = _entries(_load((folder or home()) / _FILE))
    except OSError:
        kept = {}
    own = _unsaved if folder is None else {}
    return {section: {**kept.get(section, {}), **own.get(section, {})} for section in SECTIONS}


def record(section: str, name: str, entry: Entry) -> bool:
    """Keep one entry in place of the old one; returns False when it is kept only until this kernel ends."""
    return update(section, name, lambda _: entry)


def update(section: str, name: str, change: Callable[[Entry], Entry]) -> bool:
    """Change one entry (an empty one if there is none), while no other notebook writes; returns as `record` does."""
    folder = home()
    moment = now()

    def apply(content: dict[str, Any]) -> None:
        for part, entries in _unsaved.items():
            _section(content, part).update(entries)
        entry = _section(content, section).get(name, {})
        _section(content, section)[name] = {**change(entry), "first": entry.get("first", moment), "last": moment}
        _add_time(content, name.partition("/")[0], moment)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        _rewrite(folder, apply)
    except OSError:
        own = _unsaved.setdefault(section, {})
        own[name] = change(read()[section].get(name, {}))
        return False
    _unsaved.clear()
    return True


def reset(folder: Path, lesson: str | None = None) -> int:
    """Forget everything, or one lesson as in "05"; returns how many entries there were. Raises OSError."""
    forgotten = 0

    def forget(content: dict[str, Any]) -> None:
        nonlocal forgotten
        for section in SECTIONS:
            entries = _section(content, section)
            for name in [name for name in entries if lesson in (None, name.partition("/")[0])]:
                del entries[name]
                forgotten += section != "lessons"

    if (folder / _FILE).exists():
        _rewrite(folder, forget)
    if lesson is None:
        (folder / _DAMAGED).unlink(missing_ok=True)
    return forgotten


def _rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with locked(folder / _LOCK):
        content = _load(folder / _FILE)
        change(content)
        known = content.get("version")
        content["version"] = max(VERSION, known) if isinstance(known, int) else VERSION
        # Answers are the learner's own: nobody else reads them.
        write_whole(folder / _FILE, json.dumps(content, indent=1, sort_keys=True), mode=0o600)


def _load(path: Path) -> dict[str, Any]:
    """The file's content; damaged, it is set aside and counts as empty. Raises OSError where it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    os.replace(path, path.with_name(_DAMAGED))
    return {}


def _entries(content: dict[str, Any]) -> dict[str, dict[str, Entry]]:
    return {section: dict(_section(content, section)) for section in SECTIONS}


def _section(content: dict[str, Any], section: str) -> dict[str, Entry]:
    """A section of the content, made or put right where it is none."""
    found = content.get(section)
    entries = found if isinstance(found, dict) else {}
    content[section] = {name: entry for name, entry in entries.items() if isinstance(entry, dict)}
    return content[section]


def _add_time(content: dict[str, Any], lesson: str, moment: str) -> None:
    entry = _section(content, "lessons").setdefault(lesson, {})
    gap = seconds_between(entry.get("last"), moment)
    spent = entry.get("seconds", 0)
    counted = gap if gap is not None and 0 <= gap <= PAUSE_SECONDS else 0
    entry.update(seconds=round((spent if isinstance(spent, int | float) else 0) + counted, 1), last=moment)


def seconds_between(start: object, end: object) -> float | None:
    """Seconds from one time of the file to another; None where one of them is none."""
    try:
        return (datetime.datetime.fromisoformat(str(end)) - datetime.datetime.fromisoformat(str(start))).total_seconds()
    except (ValueError, TypeError):
        return None


def now() -> str:
    """This moment as the file keeps it: UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
