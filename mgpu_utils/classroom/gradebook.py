"""The table of grades: one row a learner, for a spreadsheet, for Canvas or for Moodle."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from mgpu_utils.authoring import write_text
from mgpu_utils.classroom.lessons import Lesson
from mgpu_utils.classroom.mark_records import Record
from mgpu_utils.classroom.roster import CANVAS_COLUMNS, Roster, platform_column

FORMATS = ("spreadsheet", "canvas", "moodle")


def grades_table(
    records: Sequence[Record], lessons: Sequence[Lesson], layout: str = "spreadsheet", roster: Roster | None = None
) -> list[list[str]]:
    """The rows of a file of grades, its header first.

    `spreadsheet` holds everything: points, each exercise as 1 or 0, what failed, and notes. `canvas` and `moodle`
    hold what their grade import takes: who it is, and one column a lesson. With a `roster` its identity columns
    come first, and learners who handed in nothing have a row, with nothing in it for a lesson not handed in.
    """
    seen = {record.lesson for record in records}
    marked = [lesson for lesson in lessons if lesson.name in seen]
    people = _people(records, roster, layout)
    header = list(people[0][0]) if people else _identity(layout, roster)
    if layout == "spreadsheet":
        return _everything(header, people, marked)
    columns = [platform_column(lesson.name, roster.all_columns if roster else ()) for lesson in marked]
    feedback = [f"{lesson.name} feedback" for lesson in marked] if layout == "moodle" else []
    table = [[*header, *columns, *feedback]]
    if layout == "canvas":
        table.append(["    Points Possible", *[""] * (len(header) - 1), *[str(len(one.exercises)) for one in marked]])
    for who, theirs in people:
        by_lesson = {record.lesson: record for record in theirs if record.marks}
        points = [str(by_lesson[one.name].points) if one.name in by_lesson else "" for one in marked]
        words = [failed(by_lesson[one.name]) if one.name in by_lesson else "" for one in marked] if feedback else []
        table.append([*who.values(), *points, *words])
    return table


def failed(record: Record) -> str:
    """What did not pass in one submission, in words; "" when all did."""
    return "; ".join(
        f"{name} {mark.status}" + (f": {mark.message.rstrip('.;')}" if mark.message else "")
        for name, mark in record.marks.items()
        if mark.status != "passed"
    )


def write_grades(path: Path, table: Sequence[Sequence[str]]) -> None:
    """Write the table as CSV, whole or not at all, in UTF-8 as spreadsheets recognise it.

    A text that a spreadsheet would take for a formula gets a leading apostrophe: names and messages come from others.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[_harmless(cell) for cell in row] for row in table])
    write_text(path, "\N{ZERO WIDTH NO-BREAK SPACE}" + text.getvalue())


def _everything(
    header: list[str], people: list[tuple[dict[str, str], list[Record]]], lessons: Sequence[Lesson]
) -> list[list[str]]:
    exercises = [exercise.name for lesson in lessons for exercise in lesson.exercises]
    table = [[*header, "Points", "Out of", *[lesson.name for lesson in lessons], *exercises, "Failed", "Note"]]
    for who, theirs in people:
        by_lesson = {record.lesson: record for record in theirs if record.marks}
        marks = {name: mark for record in by_lesson.values() for name, mark in record.marks.items()}
        points = [str(by_lesson[one.name].points) if one.name in by_lesson else "" for one in lessons]
        each = [str(int(marks[name].status == "passed")) if name in marks else "" for name in exercises]
        total = sum(record.points for record in by_lesson.values())
        out_of = sum(len(record.marks) for record in by_lesson.values())
        told = "; ".join(text for text in map(failed, by_lesson.values()) if text)
        notes = "; ".join(note for record in theirs for note in _notes(record))
        table.append(
            [
                *who.values(),
                str(total),
                str(out_of),
                *points,
                *each,
                told,
                notes or ("" if theirs else "nothing handed in"),
            ]
        )
    return table


def _notes(record: Record) -> list[str]:
    problem = f"{record.file}: {record.problem}" if record.problem else ""
    return [note for note in (problem, record.note) if note]


def _identity(layout: str, roster: Roster | None) -> list[str]:
    if roster is not None:
        return list(roster.columns)
    return list(CANVAS_COLUMNS) if layout == "canvas" else ["Learner", "ID"]


def _people(records: Sequence[Record], roster: Roster | None, layout: str) -> list[tuple[dict[str, str], list[Record]]]:
    """Everybody with their records: those of the roster in its order, then those who are not in it."""
    columns = _identity(layout, roster)
    listed: list[tuple[dict[str, str], list[Record]]] = [(row, []) for row in roster.rows] if roster else []
    others: dict[str, tuple[dict[str, str], list[Record]]] = {}
    for record in records:
        row = roster.find(record.learner, record.number) if roster else None
        if row is not None:
            next(theirs for who, theirs in listed if who is row).append(record)
            continue
        who = dict.fromkeys(columns, "")
        who[columns[0]] = record.learner
        if "ID" in who:
            who["ID"] = record.number
        others.setdefault(record.learner, (who, []))[1].append(record)
    return listed + list(others.values())


def _harmless(cell: str) -> str:
    text = " ".join(cell.split()) if "\n" in cell or "\r" in cell else cell
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text
