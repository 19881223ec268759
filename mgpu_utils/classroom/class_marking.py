"""Mark a folder of submissions one after the other, and write the grades after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mgpu_utils.classroom.gradebook import grades_table, write_grades
from mgpu_utils.classroom.lessons import course_version, load_lessons
from mgpu_utils.classroom.limits import Limits
from mgpu_utils.classroom.mark_records import Record, read_records, record_of, records_path, write_records
from mgpu_utils.classroom.marking import MarkingError, mark_submission
from mgpu_utils.classroom.roster import Roster
from mgpu_utils.classroom.submissions import Submission, counted, find_submissions
from mgpu_utils.output_places import writing_to


def mark_folder(
    root: Path,
    folder: Path,
    grades: Path,
    *,
    lessons: Sequence[str] = (),
    limits: Limits | None = None,
    layout: str = "spreadsheet",
    roster: Roster | None = None,
    again: bool = False,
    tell: Callable[[str], None] = print,
) -> list[Record]:
    """Mark what changed since the last run, and write `grades` and the records beside it after each submission.

    Args:
        root: the course's folder, whose lessons and checks count.
        folder: the submissions.
        grades: the CSV file to write.
        lessons: only these, as in `05`.
        again: mark also what did not change.

    Raises ValueError for a folder without submissions, for grades that cannot be written and for a file in their
    place that no marking wrote, and MarkingError when marking does not work here or a submission changed the course's
    own files; what was marked before stays written.
    """
    if grades.exists() and not records_path(grades).exists():
        raise ValueError(
            f"{grades} is there, and is no file of grades that mgpu mark wrote ({records_path(grades).name} is not "
            "beside it), so it would be lost. Choose another --out, or move it away."
        )
    limits = limits or Limits()
    course = load_lessons(root, lessons)
    by_name = {lesson.name: lesson for lesson in course}
    version = course_version(root)
    current, older = counted(find_submissions(folder, course))
    kept = {(old.learner, old.file): old for old in ([] if again else read_records(records_path(grades)))}
    records: dict[Submission, Record] = {}
    to_mark = []
    for one in current:
        record = kept.get((one.learner, one.path.relative_to(folder).as_posix()))
        if one.problem:
            records[one] = record_of(one, folder, version, limits, None)
        elif record is not None and record.still_holds(one, version, limits):
            records[one] = record
        else:
            to_mark.append(one)
            continue
        records[one].note = _with_older(records[one].note, older.get(one.path, []), folder)

    def write() -> list[Record]:
        done = [records[one] for one in current if one in records]
        with writing_to(grades, "the grades"):
            write_records(records_path(grades), done)
            write_grades(grades, grades_table(done, course, layout, roster))
        return done

    for one in current:
        if one.problem:
            tell(f"{one.path.relative_to(folder)}: not marked: {one.problem}")
    tell(f"{len(to_mark)} to mark, {len(current) - len(to_mark)} as before or not readable")
    done = write()
    for number, one in enumerate(to_mark, start=1):
        marked = mark_submission(one.path, by_name[one.lesson], limits)
        if course_version(root) != version:
            raise MarkingError(
                f"{one.path.relative_to(folder)}: while it ran, files of the course changed; look at what it does, "
                "restore the course (git status), and mark again. Nothing was counted for it."
            )
        records[one] = record_of(one, folder, version, limits, marked)
        records[one].note = _with_older(marked.note, older.get(one.path, []), folder)
        done = write()
        record = records[one]
        tell(
            f"[{number}/{len(to_mark)}] {one.learner}, {one.lesson}: {record.points} of {len(record.marks)} "
            f"({record.seconds:.0f} s, {record.peak_bytes / 2**20:.0f} MiB)"
        )
    return done


def _with_older(note: str, older: Sequence[Submission], folder: Path) -> str:
    kept = [part for part in note.split("; ") if part and not part.startswith("handed in more than once")]
    if older:
        names = ", ".join(one.path.relative_to(folder).as_posix() for one in older)
        kept.append(f"handed in more than once: this is the newest, {names} did not count")
    return "; ".join(kept)
