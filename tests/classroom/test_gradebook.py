"""The grades fit a spreadsheet, Canvas and Moodle."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mgpu_utils.classroom.gradebook import grades_table, write_grades
from mgpu_utils.classroom.lessons import Lesson, LessonExercise
from mgpu_utils.classroom.mark_records import Record, read_records, write_records
from mgpu_utils.classroom.marking import Mark
from mgpu_utils.classroom.roster import read_roster

LESSONS = [
    Lesson(name, (), tuple(LessonExercise(f"{name[:2]}/{word}", "", "", "", "", "", 0) for word in ("one", "two")))
    for name in ("05_wrap", "06_train")
]
CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,05_wrap (4711),Final Score
    Points Possible,,,,,2,(read only)
"Lovelace, Ada",101,S1,al@example.edu,A,,
"Hopper, Grace",102,S2,gh@example.edu,A,,
"Student, Test",999,,,A,,
"""
MOODLE = "First name;Last name;ID number;Email address;Assignment: 05\nAda;Lovelace;S1;al@example.edu;-\n"


def record(learner: str, number: str = "", lesson: str = "05_wrap", **marks: str) -> Record:
    kept = {f"{lesson[:2]}/{word}": Mark(status, "=why; not") for word, status in marks.items()}
    return Record(learner, number, lesson, f"{learner}/x.ipynb", "d", "v", {}, False, kept)


def test_canvas_gets_its_own_columns_ids_and_points_possible(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(CANVAS)
    roster = read_roster(tmp_path / "roster.csv", "canvas")
    records = [record("lovelaceada", "101", one="passed", two="wrong"), record("stranger", one="passed", two="passed")]
    table = grades_table(records, LESSONS, "canvas", roster)
    assert table == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "05_wrap (4711)"],
        ["    Points Possible", "", "", "", "", "2"],
        ["Lovelace, Ada", "101", "S1", "al@example.edu", "A", "1"],
        ["Hopper, Grace", "102", "S2", "gh@example.edu", "A", ""],
        ["stranger", "", "", "", "", "2"],
    ]


@pytest.mark.parametrize("learner", ["Ada Lovelace", "Lovelace, Ada", "lovelaceada", "al", "AL@example.edu", "S1"])
def test_learners_are_found_in_a_roster_however_their_name_is_written(learner: str, tmp_path: Path) -> None:
    for text in (CANVAS, MOODLE):
        (tmp_path / "roster.csv").write_text("\N{ZERO WIDTH NO-BREAK SPACE}" + text)
        row = read_roster(tmp_path / "roster.csv").find(learner, "")
        assert row is not None
        assert "al@example.edu" in row.values()


def test_moodle_gets_its_identity_columns_points_and_feedback(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(MOODLE)
    table = grades_table(
        [record("Ada Lovelace", "77", one="passed", two="wrong")],
        LESSONS,
        "moodle",
        read_roster(tmp_path / "roster.csv", "moodle"),
    )
    identity = ["First name", "Last name", "ID number", "Email address"]
    assert table[0] == [*identity, "05_wrap", "05_wrap feedback"]
    assert table[1] == ["Ada", "Lovelace", "S1", "al@example.edu", "1", "05/two wrong: =why; not"]


def test_a_roster_that_names_nobody_is_refused(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("colour,size\nred,3\n")
    with pytest.raises(ValueError, match="no column says who a row is"):
        read_roster(tmp_path / "roster.csv")


@pytest.mark.parametrize(
    ("text", "layout", "sentence"),
    [
        (MOODLE, "canvas", "is no export of Canvas, whose import goes by Student and ID"),
        (CANVAS, "moodle", "is no export of Moodle, whose import goes by ID number, Email address"),
        ("Name\nAda\n", "moodle", "is no export of Moodle"),
    ],
)
def test_a_roster_of_another_platform_is_refused(text: str, layout: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_roster(tmp_path / "roster.csv", layout)
    assert read_roster(tmp_path / "roster.csv").rows


def test_the_spreadsheet_adds_up_over_lessons_and_leaves_empty_what_was_not_handed_in() -> None:
    records = [
        record("ada", one="passed", two="passed"),
        record("ada", lesson="06_train", one="error", two="passed"),
        record("bob", one="open", two="missing"),
    ]
    header, ada, bob = grades_table(records, LESSONS)
    assert header[:4] == ["Learner", "ID", "Points", "Out of"]
    rows = [dict(zip(header, row, strict=True)) for row in (ada, bob)]
    assert [(row["Points"], row["Out of"], row["06_train"], row["06/two"]) for row in rows] == [
        ("3", "4", "1", "1"),
        ("0", "2", "", ""),
    ]
    assert rows[0]["Failed"] == "06/one error: =why; not"


def test_names_and_messages_are_no_formulas_and_umlauts_survive(tmp_path: Path) -> None:
    path = tmp_path / "grades.csv"
    write_grades(path, [["Learner", "Points"], ['=HYPERLINK("http://x")', "1"], ["Jürgen, Ö", "2"], ["a\nb", "@x"]])
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1:] == [['\'=HYPERLINK("http://x")', "1"], ["Jürgen, Ö", "2"], ["a b", "'@x"]]


def test_records_come_back_as_written_and_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "grades.marks.json"
    records = [record("ada", one="passed", two="wrong")]
    write_records(path, records)
    assert read_records(path) == records
    for text in ("{", '{"version": 99, "records": []}', '{"version": 1, "records": [{"learner": 3}]}', "[]"):
        path.write_text(text)
        assert read_records(path) == []
