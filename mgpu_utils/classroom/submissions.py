"""Find what learners handed in below a folder, and tell whose it is from folders and file names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.classroom.lessons import Lesson
from mgpu_utils.classroom.submitted_notebook import Unreadable, read_cells, recognise

# A folder of one learner, from Moodle: "Ada Lovelace_12345_assignsubmission_file_".
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.DOTALL)
# A file, from Canvas: "lovelaceada_LATE_4711_998877_01_check_the_devices-2.ipynb".
_CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_\d+_(?P<file>.+)", re.DOTALL)
_NOTEBOOK = ".ipynb"


@dataclass(frozen=True)
class Submission:
    """One file of one learner.

    Attributes:
        learner: the name that files are grouped by.
        number: the learner's number on the platform the files were downloaded from, "" where there is none.
        path: the file.
        lesson: the lesson it is, whatever the file is called; "" when it cannot be read.
        problem: why it cannot be marked, "" when it can.
        digest: SHA-256 of the file.
    """

    learner: str
    number: str
    path: Path
    lesson: str
    problem: str
    digest: str


def find_submissions(folder: Path, lessons: Sequence[Lesson]) -> list[Submission]:
    """All files below `folder` that learners handed in, by learner and lesson, those of one kind oldest first.

    Each learner has a folder, or a file that begins with the learner's name. Raises ValueError when there is none.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; name the one that holds what was handed in.")
    names = [lesson.name for lesson in lessons]
    found = [_submission(path, folder, lessons, names) for path in sorted(_files(folder))]
    # What else a learner handed in matters where it is all there is.
    with_notebook = {one.learner for one in found if one.lesson or one.path.suffix.lower() == _NOTEBOOK}
    found = [
        one
        for one in found
        if one.lesson or one.path.suffix.lower() == _NOTEBOOK or _is_all(one, with_notebook, folder)
    ]
    if not found:
        raise ValueError(f"{folder} holds no notebook (.ipynb); each learner has a folder or a file there.")
    return sorted(found, key=lambda one: (one.learner.casefold(), one.lesson, _age(one.path)))


def _is_all(one: Submission, with_notebook: set[str], folder: Path) -> bool:
    inside = one.path.relative_to(folder).parts
    handed_in = len(inside) > 1 or _MOODLE.fullmatch(inside[0]) or _CANVAS.fullmatch(inside[0])
    return bool(handed_in) and one.learner not in with_notebook


def counted(submissions: Sequence[Submission]) -> tuple[list[Submission], dict[Path, list[Submission]]]:
    """The newest submission of each learner and lesson, and by its path the older ones, which do not count."""
    latest: dict[tuple[str, str], Submission] = {}
    older: dict[Path, list[Submission]] = {}
    kept: list[Submission] = []
    for one in submissions:
        if one.problem:
            kept.append(one)
            continue
        before = latest.get((one.learner, one.lesson))
        latest[one.learner, one.lesson] = one
        if before is not None:
            older[one.path] = [*older.pop(before.path, []), before]
    return sorted([*kept, *latest.values()], key=lambda one: (one.learner.casefold(), one.lesson)), older


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        # A link could lead to any file of the teacher.
        if path.is_symlink() or not path.is_file() or any(part.startswith((".", "__MACOSX")) for part in inside):
            continue
        yield path


def _submission(path: Path, folder: Path, lessons: Sequence[Lesson], names: Sequence[str]) -> Submission:
    learner, number = whose(path.relative_to(folder), names)
    lesson = problem = digest = ""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lesson = recognise(read_cells(path), lessons).name
    except Unreadable as error:
        kind = path.suffix.lower()
        problem = str(error) if kind == _NOTEBOOK else f"it is no notebook ({_NOTEBOOK}); only those are marked"
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
    return Submission(learner, number, path, lesson, problem, digest)


def whose(path: Path, lessons: Sequence[str] = ()) -> tuple[str, str]:
    """Learner and platform number of a file, from its path below the folder of submissions."""
    first = path.parts[0]
    for pattern in (_MOODLE, _CANVAS) if len(path.parts) == 1 else (_MOODLE,):
        if match := pattern.fullmatch(first):
            return match["name"].strip(), match["id"]
    if len(path.parts) > 1:
        return first.strip(), ""
    stem = re.sub(r"([-_ ]?\(\d+\)|-\d{1,2}|[-_ ]copy\d*)+$", "", path.stem, flags=re.IGNORECASE)
    for name in lessons:
        stem = re.sub(rf"[-_ ]*{re.escape(name)}[-_ ]*", "", stem)
    return stem.strip("-_ ") or path.stem, ""


def _age(path: Path) -> tuple[float, list[tuple[int, str]]]:
    """Sorts by time, then by name with numbers in it as numbers: `-2` before `-10`."""
    parts = [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.stem)]
    return path.stat().st_mtime, parts
