"""`mgpu progress`: a learner's own progress, to read, to export and to reset. Nothing is sent anywhere."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from mgpu_utils import progress
from mgpu_utils.whole_file import write_whole

_COLUMNS = (
    "lesson",
    "kind",
    "name",
    "answer",
    "unit",
    "revealed",
    "attempts",
    "hints",
    "done",
    "first",
    "last",
    "solved",
    "seconds",
)
_KINDS = {"predictions": "prediction", "checks": "exercise", "lessons": "lesson"}


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "progress",
        help="show, export or reset what you have answered so far",
        description="Show your progress as a map of the ten steps: predictions, attempts, exercises that are right, "
        "and the time between answers. It lies in one small file on this machine. Nothing is sent anywhere.",
        epilog="The file is progress.json in the folder of --home; without it in that of MGPU_HOME, else in .mgpu "
        "here, else in notebooks/.mgpu here or in a folder above.",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--export", type=Path, metavar="FILE", help="write all of it to FILE.json or FILE.csv")
    action.add_argument(
        "--reset", nargs="?", const="all", metavar="LESSON", help="forget all, or one lesson as in 05; asks first"
    )
    parser.add_argument("--yes", action="store_true", help="with --reset: do not ask")
    parser.add_argument("--home", type=Path, default=None, metavar="DIR", help="the folder that holds progress.json")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> int:
    """Do what was asked and return the exit status: 0, 1 for a reset that was not confirmed. Raises ValueError."""
    if options.yes and options.reset is None:
        raise ValueError("--yes answers the question of --reset, so it goes with it.")
    folder = find_home(options.home)
    if options.export is not None:
        export(folder, options.export)
        print(f"{options.export} holds your progress. Nothing was sent anywhere.")
        return 0
    if options.reset is not None:
        return _reset(folder, options.reset, options.yes)
    from mgpu_utils.progress_map import my_progress

    print(my_progress(folder))
    return 0


def find_home(given: Path | None = None) -> Path:
    """The folder of the learner's file, wherever in the course this is called. Raises ValueError for none given."""
    if given is not None:
        if not given.is_dir():
            raise ValueError(f"there is no folder {given}; --home names the one that holds progress.json.")
        return given
    if os.environ.get("MGPU_HOME"):
        return progress.home()
    here = Path.cwd()
    places = [place for folder in (here, *here.parents) for place in (folder / ".mgpu", folder / "notebooks" / ".mgpu")]
    return next((place for place in places if (place / "progress.json").is_file()), progress.home())


def export(folder: Path, target: Path) -> None:
    """Write all that is known to a .json or .csv file, whole or not at all. Raises ValueError."""
    kept = progress.read(folder)
    if target.suffix == ".json":
        text = json.dumps({"version": progress.VERSION, **kept}, indent=1, sort_keys=True) + "\n"
    elif target.suffix == ".csv":
        text = _table(kept)
    else:
        raise ValueError(f"--export writes FILE.json or FILE.csv, and {target.name!r} ends in neither.")
    try:
        # Else the rows of a csv would end in two carriage returns on Windows.
        write_whole(target, text, newline="", mode=0o600)
    except OSError as error:
        raise ValueError(f"{target} cannot be written: {error.strerror or error}.") from None


def _table(kept: dict[str, dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    rows = [
        {**entry, "lesson": name.partition("/")[0], "kind": _KINDS[section], "name": name}
        for section, entries in kept.items()
        for name, entry in entries.items()
    ]
    for row in sorted(rows, key=lambda row: (row["lesson"], row["kind"], row["name"])):
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return text.getvalue()


def _cell(value: object) -> object:
    # A spreadsheet runs a text that starts like a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _reset(folder: Path, what: str, sure: bool) -> int:
    lesson = None if what == "all" else _lesson(what)
    named = f"lesson {lesson}" if lesson else "every lesson"
    kept = progress.read(folder)
    count = sum(
        lesson in (None, name.partition("/")[0]) for section in ("predictions", "checks") for name in kept[section]
    )
    if not count:
        print(f"There is nothing to forget of {named}.")
        return 0
    if not sure and not _confirmed(f"Forget {count} answers and results of {named} in {folder}?"):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    try:
        print(f"Forgot {progress.reset(folder, lesson)} answers and results of {named}.")
    except OSError as error:
        raise ValueError(f"{folder} cannot be written to: {error.strerror or error}; nothing was changed.") from None
    return 0


def _lesson(text: str) -> str:
    found = re.match(r"(\d\d)(?!\d)", text)
    if found is None:
        raise ValueError(f"a lesson is named by its two digits, as in --reset 05, not {text!r}.")
    return found[1]


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ValueError("--reset asks before it forgets, and nobody can answer here; add --yes if you mean it.")
    try:
        return input(f"{question} Type yes: ").strip().casefold() in ("yes", "y")
    except EOFError:
        return False
