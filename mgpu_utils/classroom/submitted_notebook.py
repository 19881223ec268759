"""Read what a learner handed in, as data: which lesson it is, and which cells hold answers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mgpu_utils.classroom.check_calls import checked_names, same_text, take_checks
from mgpu_utils.classroom.lessons import Lesson, LessonExercise

MAX_BYTES = 30_000_000
START = ""


class Unreadable(ValueError):
    """What was handed in is no notebook of the course; the message says in what respect."""


@dataclass(frozen=True)
class SubmittedCell:
    """One cell as it was handed in; `id` is "" in notebooks without cell ids."""

    id: str
    kind: str
    source: str


@dataclass
class Answers:
    """A submission sorted by what its cells are for.

    Attributes:
        blocks: for each exercise the learner's cells in order, without the calls that check them.
        added: by the id of the course's cell they stand after: cells of the learner outside the exercises.
        missing: exercises of which no cell is left.
    """

    blocks: dict[str, list[str]] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def read_cells(path: Path) -> list[SubmittedCell]:
    """The cells of a notebook file; raises Unreadable, in words for the mark sheet."""
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise Unreadable(f"it is larger than {MAX_BYTES // 1_000_000} MB; clear its outputs and hand it in again")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unreadable("it is not text, so it is not a notebook") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("it is damaged, or not a notebook: it does not hold JSON") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if cells is None and isinstance(content, dict) and "worksheets" in content:
        raise Unreadable("its format is older than Jupyter 3; open it in JupyterLab, save it, and hand it in again")
    if not isinstance(cells, list) or not cells:
        raise Unreadable("it is not a notebook: it holds no cells")
    return [_cell(cell) for cell in cells if isinstance(cell, dict)]


def recognise(cells: Sequence[SubmittedCell], lessons: Sequence[Lesson]) -> Lesson:
    """The lesson these cells come from, whatever the file is called; raises Unreadable when it is none."""
    scores = [(_likeness(cells, lesson), lesson) for lesson in lessons]
    best, lesson = max(scores, key=lambda pair: pair[0])
    if best < 3:
        raise Unreadable("it is not one of the lessons: its cells are not those of any lesson marked here")
    return lesson


def find_answers(cells: Sequence[SubmittedCell], lesson: Lesson) -> Answers:
    """Sort the cells of a submission; those that are the course's own, edited or not, count for nothing."""
    by_cell = {exercise.cell: exercise for exercise in lesson.exercises}
    by_section = {exercise.section: exercise for exercise in lesson.exercises}
    known = {cell.id: cell for cell in lesson.cells}
    with_ids = any(cell.id for cell in cells)
    answers = Answers()
    current: LessonExercise | None = None
    last = START
    for cell in cells:
        own = cell.id if cell.id in known and known[cell.id].kind == cell.kind else _same_cell(cell, lesson)
        if cell.kind != "code":
            if own or cell.source.lstrip().startswith("#"):
                current = by_section.get(own)
            last = own or last
            continue
        exercise = by_cell.get(own) or _named(cell.source, lesson)
        if exercise is not None:
            current, last = exercise, exercise.cell
            answers.blocks.setdefault(exercise.name, []).append(take_checks(cell.source)[0])
        elif own:
            current, last = None, own
        elif current is not None:
            answers.blocks.setdefault(current.name, []).append(take_checks(cell.source)[0])
        elif with_ids:
            answers.added.setdefault(last, []).append(take_checks(cell.source)[0])
    for exercise in lesson.exercises:
        block = [text for text in answers.blocks.get(exercise.name, []) if text.strip()]
        answers.blocks[exercise.name] = [text for text in block if not same_text(text, exercise.placeholder)]
        if not block:
            answers.missing.append(exercise.name)
    return answers


def _cell(cell: dict[str, object]) -> SubmittedCell:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    kind, name = cell.get("cell_type"), cell.get("id")
    return SubmittedCell(
        name if isinstance(name, str) else "",
        kind if isinstance(kind, str) else "",
        source if isinstance(source, str) else "",
    )


def _likeness(cells: Sequence[SubmittedCell], lesson: Lesson) -> int:
    """How many cells have an id *and* a source of this lesson, with exercises counted for three."""
    known = {cell.id: cell.source for cell in lesson.cells}
    sources = {cell.source for cell in lesson.cells if len(cell.source) > 20}
    names = {exercise.name for exercise in lesson.exercises}
    exact = sum(cell.source in sources or known.get(cell.id) == cell.source for cell in cells)
    return exact + 3 * sum(bool(names & set(checked_names(cell.source))) for cell in cells)


def _same_cell(cell: SubmittedCell, lesson: Lesson) -> str:
    for own in lesson.cells:
        if own.kind == cell.kind and own.source.strip() and same_text(own.source, cell.source):
            return own.id
    return ""


def _named(source: str, lesson: Lesson) -> LessonExercise | None:
    names = set(checked_names(source))
    return next((exercise for exercise in lesson.exercises if exercise.name in names), None)
