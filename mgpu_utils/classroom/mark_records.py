"""The marks given so far, in one file beside the grades, so that a second run marks only what changed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import write_text
from mgpu_utils.classroom.limits import Limits
from mgpu_utils.classroom.marking import Mark, Marked
from mgpu_utils.classroom.submissions import Submission

_VERSION = 1


@dataclass
class Record:
    """The marks of one submission, with all that they depend on.

    Attributes:
        file: the submission, relative to the folder of submissions.
        digest: SHA-256 of that file.
        course: version of the course it was marked with.
        limits: the limits it was marked within.
        limited: whether one of them decided about a mark.
        marks: status and message of each exercise; empty when the file could not be marked.
    """

    learner: str
    number: str
    lesson: str
    file: str
    digest: str
    course: str
    limits: dict[str, float]
    limited: bool
    marks: dict[str, Mark] = field(default_factory=dict)
    problem: str = ""
    note: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0

    def still_holds(self, submission: Submission, course: str, limits: Limits) -> bool:
        """Whether marking this submission again could give nothing else."""
        same = self.digest == submission.digest and self.course == course and self.lesson == submission.lesson
        return same and (not self.limited or self.limits == asdict(limits))

    @property
    def points(self) -> int:
        """One for each exercise that its check passed."""
        return sum(mark.status == "passed" for mark in self.marks.values())


def record_of(submission: Submission, folder: Path, course: str, limits: Limits, marked: Marked | None) -> Record:
    """The record of a submission that was marked, or of one that could not be (None)."""
    record = Record(
        submission.learner,
        submission.number,
        submission.lesson,
        submission.path.relative_to(folder).as_posix(),
        submission.digest,
        course,
        asdict(limits),
        marked is not None and marked.limited,
        problem=submission.problem,
    )
    if marked is not None:
        record.marks, record.note = marked.marks, marked.note
        record.seconds, record.peak_bytes = round(marked.seconds, 1), marked.peak_bytes
    return record


def records_path(grades: Path) -> Path:
    """Where the records of a file of grades lie: `grades.marks.json` beside `grades.csv`."""
    return grades.with_name(f"{grades.stem}.marks.json")


def read_records(path: Path) -> list[Record]:
    """What an earlier run wrote; nothing when there is no file, or none that this version reads."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            return []
        records = []
        for values in content["records"]:
            marks = {name: Mark(**mark) for name, mark in values.pop("marks").items()}
            records.append(Record(**values, marks=marks))
        return records
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def write_records(path: Path, records: list[Record]) -> None:
    """Write all records, whole or not at all."""
    content = {"version": _VERSION, "records": [asdict(record) for record in records]}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
