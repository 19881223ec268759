"""The list of learners as a learning platform exports it, so that grades go back with the platform's own columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# What identifies a learner: Canvas's columns, Moodle's, and those that hand-made lists have.
CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_IDENTITY = {
    *(column.casefold() for column in CANVAS_COLUMNS),
    *("first name", "last name", "surname", "full name", "id number", "username", "email address", "email"),
    *("name", "learner", "identifier", "login", "integration id"),
}


class _Platform(NamedTuple):
    """What a platform's import of grades finds its learners by."""

    name: str
    words: str
    accepts: Callable[[set[str]], bool]


_PLATFORMS = {
    "canvas": _Platform("Canvas", "Student and ID", {"student", "id"}.issubset),
    "moodle": _Platform(
        "Moodle",
        "ID number, Email address, Username or Identifier",
        lambda known: bool(known & {"id number", "email address", "username", "identifier"}),
    ),
}


@dataclass(frozen=True)
class Roster:
    """The identity columns of a platform's export, one row a learner, and all its column names."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    all_columns: tuple[str, ...]

    def find(self, learner: str, number: str) -> dict[str, str] | None:
        """The row of a learner by number, login, email or name in either order; None when there is not exactly one."""
        for wanted in ({number.casefold()}, _names(learner)):
            rows = [row for row in self.rows if wanted - {""} and wanted & _keys(row)]
            if len(rows) == 1:
                return rows[0]
        return None


def read_roster(path: Path, layout: str = "spreadsheet") -> Roster:
    """A roster from a CSV file for grades in this layout.

    Raises ValueError when none of its columns says who a row is, or none that the platform's import goes by.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file in UTF-8: {error}.") from None
    first = text.splitlines()[0] if text.strip() else ""
    separator = max(",;\t", key=first.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=separator)
    header = [name for name in reader.fieldnames or [] if name]
    columns = [name for name in header if name.strip().casefold() in _IDENTITY]
    if not columns:
        wanted = "Student, ID, Email address, ID number, Username or Name"
        raise ValueError(f"{path}: no column says who a row is; one of these is wanted: {wanted}.")
    known, platform = {name.strip().casefold() for name in columns}, _PLATFORMS.get(layout)
    if platform is not None and not platform.accepts(known):
        raise ValueError(
            f"{path} is no export of {platform.name}, whose import goes by {platform.words}. "
            "Export the list there, or choose another --format."
        )
    rows = [{name: (row.get(name) or "").strip() for name in columns} for row in reader]
    # Canvas puts the points possible into a row of their own, and adds a student who is none.
    rows = [row for row in rows if any(row.values()) and not _is_no_learner(row)]
    return Roster(tuple(columns), tuple(rows), tuple(header))


def platform_column(lesson: str, columns: Sequence[str]) -> str:
    """The platform's own column of a lesson, such as `05_wrap_in_data_parallel (4711)`, else the lesson's name."""
    for column in columns:
        if re.sub(r"\s*\(\d+\)$", "", column).strip().casefold() == lesson.casefold():
            return column
    return lesson


def _is_no_learner(row: dict[str, str]) -> bool:
    name = row.get("Student", "")
    return name.startswith("Points Possible") or name in ("Student, Test", "Test Student")


def _keys(row: dict[str, str]) -> set[str]:
    values = {column.strip().casefold(): value for column, value in row.items()}
    keys = {value.casefold() for column, value in values.items() if column != "section"}
    for column in ("student", "name", "full name", "learner"):
        keys |= _names(values.get(column, ""))
    first = values.get("first name", "")
    last = values.get("last name", "") or values.get("surname", "")
    if first and last:
        keys |= _names(f"{first} {last}")
    keys |= {value.partition("@")[0] for value in keys if "@" in value}
    return keys - {""}


def _names(text: str) -> set[str]:
    """The ways a name is written: as it stands, without spaces as Canvas does, "Last, First" turned round."""
    text = " ".join(text.casefold().split())
    forms = {text}
    if "," in text:
        last, _, first = text.partition(",")
        forms |= {f"{first.strip()} {last.strip()}"}
    forms |= {f"{form.rpartition(' ')[2]} {form.rpartition(' ')[0]}".strip() for form in set(forms) if "," not in form}
    return forms | {re.sub(r"[\W_]", "", form) for form in forms}
