"""The course's own lessons as marking sees them: trusted cells, and which of them are exercises."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import Source, find_sources, generate
from mgpu_utils.classroom.check_calls import take_checks
from mgpu_utils.lesson_source import AuthoringError

_START = re.compile(r"^ranks = (mgpu\.start_ranks\((\d*).*\))$", re.MULTILINE)


@dataclass(frozen=True)
class CourseCell:
    """One cell of the learner version of a lesson."""

    id: str
    kind: str
    source: str


@dataclass(frozen=True)
class LessonExercise:
    """One exercise: where it stands, what the cell held before anybody answered, and how it is checked.

    Attributes:
        name: as in `mgpu.check`, like `05/shapes`.
        cell: id of the cell that holds it.
        section: id of the last heading above that cell.
        placeholder: the cell's source without its check.
        arguments: what the check is given besides the name, as source text.
        ranks_call: the call that made the `ranks` in use there, "" where there are none.
        world_size: how many ranks that call names, 0 where it names none.
    """

    name: str
    cell: str
    section: str
    placeholder: str
    arguments: str
    ranks_call: str
    world_size: int


@dataclass(frozen=True)
class Lesson:
    """A lesson's learner version, cell by cell, with its exercises in reading order."""

    name: str
    cells: tuple[CourseCell, ...]
    exercises: tuple[LessonExercise, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the process that marks."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Lesson:
        """The lesson that `to_dict` described."""
        return Lesson(
            values["name"],
            tuple(CourseCell(**cell) for cell in values["cells"]),
            tuple(LessonExercise(**exercise) for exercise in values["exercises"]),
        )


def lesson_sources(root: Path, names: Sequence[str] = ()) -> list[Source]:
    """The lessons below `root`, or those whose file name starts with one of `names`; no benchmarks.

    Raises AuthoringError for a name that is no lesson's, with those that are.
    """
    return find_sources(root, names, "lesson", _no_lesson)


def _no_lesson(name: str, other: Source | None, known: str) -> str:
    what = f"no lesson is called {name!r}"
    if other is not None:
        what = f"{other.name} is a benchmark notebook, which holds no exercises"
    return f"{what}; the lessons are: {known}."


def load_lessons(root: Path, names: Sequence[str] = ()) -> list[Lesson]:
    """The lessons with exercises below `root`; raises AuthoringError when there is none, or an unknown name."""
    lessons = [_load(source) for source in lesson_sources(root, names)]
    with_exercises = [lesson for lesson in lessons if lesson.exercises]
    if not with_exercises:
        which = ", ".join(lesson.name for lesson in lessons) if names else f"no lesson of {root}"
        raise AuthoringError(f"{which} {'has no' if names else 'holds an'} exercise, so there is nothing to mark.")
    return with_exercises


def course_version(root: Path) -> str:
    """A hash of all that decides a mark: the lessons' sources, and the package with its checks."""
    return _hash_of(sorted((root / "sources/lessons").glob("*.py")) + _package_files(), root)


def _load(source: Source) -> Lesson:
    notebook = generate(source.path)
    cells = tuple(CourseCell(cell.id, cell.cell_type, cell.source) for cell in notebook.cells)
    exercises: list[LessonExercise] = []
    section, ranks_call, world_size = "", "", 0
    for cell in cells:
        if cell.kind == "markdown" and cell.source.lstrip().startswith("#"):
            section = cell.id
        if cell.kind != "code":
            continue
        if started := _START.findall(cell.source):
            ranks_call, world_size = started[-1][0], int(started[-1][1] or 0)
        placeholder, calls = take_checks(cell.source)
        for call in calls:
            exercises.append(
                LessonExercise(call.name, cell.id, section, placeholder, call.arguments, ranks_call, world_size)
            )
    names = [exercise.name for exercise in exercises]
    if len({exercise.cell for exercise in exercises}) < len(exercises) or len(set(names)) < len(names):
        raise AuthoringError(f"{source.name}: an exercise is one cell with one check, and none is checked twice.")
    return Lesson(source.name, cells, tuple(exercises))


@cache
def _package() -> Path:
    return Path(__file__).resolve().parent.parent


def _package_files() -> list[Path]:
    return sorted(_package().rglob("*.py"))


def _hash_of(files: list[Path], root: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        base = _package() if file.is_relative_to(_package()) else root
        digest.update(file.relative_to(base).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
