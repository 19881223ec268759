"""What learners hand in is found, attributed, recognised and read, as data alone."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest
from short_course import HandIn, make_course

from mgpu_utils.classroom.check_calls import CheckCall, take_checks
from mgpu_utils.classroom.lessons import Lesson, course_version, load_lessons
from mgpu_utils.classroom.marking_steps import ADDED, plan_steps
from mgpu_utils.classroom.submissions import counted, find_submissions, whose
from mgpu_utils.classroom.submitted_notebook import Unreadable, find_answers, read_cells, recognise

PICK, PHYSICAL, AVERAGE = "01/pick", "01/physical", "00/average"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def lesson(course: Path) -> Lesson:
    (lesson,) = load_lessons(course)
    return lesson


@pytest.mark.parametrize(
    ("path", "learner", "number"),
    [
        ("ada/05.ipynb", "ada", ""),
        ("ada/deep/er/05.ipynb", "ada", ""),
        ("Ada Lovelace_12345_assignsubmission_file_/05.ipynb", "Ada Lovelace", "12345"),
        ("Ada Lovelace_12345_assignsubmission_file_05.ipynb", "Ada Lovelace", "12345"),
        ("lovelaceada_4711_998877_05-2.ipynb", "lovelaceada", "4711"),
        ("lovelaceada_LATE_4711_998877_05.ipynb", "lovelaceada", "4711"),
        ("ada.ipynb", "ada", ""),
        ("01_pick_devices_ada (1).ipynb", "ada", ""),
        ("ada-01_pick_devices-Copy1.ipynb", "ada", ""),
    ],
)
def test_folders_and_file_names_say_whose_it_is(path: str, learner: str, number: str) -> None:
    assert whose(Path(path), ["01_pick_devices"]) == (learner, number)


def test_links_hidden_files_and_a_teacher_s_own_files_are_no_submissions(
    course: Path, lesson: Lesson, tmp_path: Path
) -> None:
    secret = HandIn(course).write(tmp_path / "elsewhere/secret.ipynb")
    folder = tmp_path / "in"
    HandIn(course).write(folder / "ada/a.ipynb")
    HandIn(course).write(folder / "ada/.ipynb_checkpoints/a-checkpoint.ipynb")
    (folder / "roster.csv").write_text("Student,ID\n")
    (folder / "ada/notes.txt").write_text("I did it")
    os.symlink(secret, folder / "ada/link.ipynb")
    assert [one.path.name for one in find_submissions(folder, [lesson])] == ["a.ipynb"]


def test_what_is_no_notebook_is_reported_where_it_is_all_a_learner_handed_in(lesson: Lesson, tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada/notebooks.zip").write_bytes(b"PK\x03\x04\xff\xfe")
    (one,) = find_submissions(tmp_path, [lesson])
    assert one.problem == "it is no notebook (.ipynb); only those are marked"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no notebook"):
        find_submissions(tmp_path / "empty", [lesson])


def test_equal_times_are_decided_by_the_number_in_the_name(course: Path, lesson: Lesson, tmp_path: Path) -> None:
    for name in ("x-10.ipynb", "x-2.ipynb", "x.ipynb"):
        os.utime(HandIn(course).write(tmp_path / "ada" / name), (1e9, 1e9))
    (latest,), older = counted(find_submissions(tmp_path, [lesson]))
    assert latest.path.name == "x-10.ipynb"
    assert sorted(one.path.name for one in older[latest.path]) == ["x-2.ipynb", "x.ipynb"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"cells": [', "does not hold JSON"),
        (b"\xff\xfe\x00", "is not text"),
        (b"[" * 100_000, "does not hold JSON"),
        (b'{"a": 1}', "holds no cells"),
        (b'{"worksheets": []}', "older than Jupyter 3"),
        (b'{"cells": [{"cell_type": "code", "source": "1 + 1"}, 7, {"source": {}}]}', "not one of the lessons"),
    ],
)
def test_what_cannot_be_marked_is_said_in_words(content: bytes, reason: str, lesson: Lesson, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=reason):
        recognise(read_cells(path), [lesson])


def test_each_lesson_of_the_course_is_recognised_by_its_cells(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    lessons = load_lessons(root)
    assert sum(len(lesson.exercises) for lesson in lessons) >= 30
    for lesson in lessons:
        path = tmp_path / "renamed.ipynb"
        path.write_bytes((root / "notebooks" / f"{lesson.name}.ipynb").read_bytes())
        cells = read_cells(path)
        assert recognise(cells, lessons).name == lesson.name
        answers = find_answers(cells, lesson)
        assert not answers.missing
        assert not any(answers.blocks.values()), "the learner version counts as answered"


def answers_of(hand_in: HandIn, lesson: Lesson, tmp_path: Path, *, ids: bool = True) -> object:
    notebook = copy.deepcopy(hand_in.notebook)
    for cell in notebook.cells:
        if not ids:
            del cell["id"]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(notebook))
    return find_answers(read_cells(path), lesson)


def test_without_cell_ids_answers_are_found_by_their_check_and_their_heading(
    course: Path, lesson: Lesson, tmp_path: Path
) -> None:
    hand_in = HandIn(course)
    hand_in.cell(PICK).source = hand_in.cell(PICK).source.rpartition("mgpu.check")[0]
    cells = hand_in.notebook.cells
    hand_in.notebook.cells = [cell for cell in cells if "### Exercise 2" not in cell.source]
    assert len(hand_in.notebook.cells) == len(cells) - 1
    answers = answers_of(hand_in, lesson, tmp_path, ids=False)
    assert not answers.missing  # type: ignore[attr-defined]
    assert all(len(block) == 1 for block in answers.blocks.values())  # type: ignore[attr-defined]
    assert not answers.added  # type: ignore[attr-defined]


def test_a_deleted_exercise_is_missing_and_an_untouched_one_is_not(
    course: Path, lesson: Lesson, tmp_path: Path
) -> None:
    hand_in = HandIn(course, solved=False)
    hand_in.notebook.cells.remove(hand_in.cell(PHYSICAL))
    answers = answers_of(hand_in, lesson, tmp_path)
    assert answers.missing == [PHYSICAL]  # type: ignore[attr-defined]


def test_only_answers_come_from_the_learner_and_every_check_from_the_course(
    course: Path, lesson: Lesson, tmp_path: Path
) -> None:
    hand_in = HandIn(course)
    hand_in.notebook.cells[1].source = "edited = 'course cell'"
    helper = copy.deepcopy(hand_in.notebook.cells[1])
    helper.update(id="helper", source="helper = 1")
    hand_in.notebook.cells.insert(2, helper)
    hand_in.cell(PICK).source = hand_in.cell(PICK).source.replace('mgpu.check("01/pick", pick_devices)', "")
    answers = answers_of(hand_in, lesson, tmp_path)
    steps = plan_steps(lesson, answers, wanted=[PICK, PHYSICAL], without=[])  # type: ignore[arg-type]
    assert [(step.kind, step.exercise) for step in steps] == [
        *[("course", ""), ("answer", ADDED), ("answer", PICK), ("check", PICK), ("answer", PHYSICAL)],
        ("check", PHYSICAL),
    ]
    assert "the course's own cell" in steps[0].source
    assert "(pick_devices)" in steps[3].source
    left_out = plan_steps(lesson, answers, wanted=[PHYSICAL], without=[PICK, ADDED])  # type: ignore[arg-type]
    assert "# YOUR CODE HERE" in left_out[1].source


def test_checks_are_told_from_answers_in_python_and_in_cells_that_are_none() -> None:
    answer, calls = take_checks('x = 1\nmgpu.check(\n    "05/a", x,\n    ranks=ranks,\n)\nmgpu.hint("05/a")\ny = 2')
    assert (answer, calls) == ("x = 1\ny = 2", [CheckCall("05/a", "x, ranks=ranks")])
    assert take_checks('%%time\nx = (1\nmgpu.check("05/a",\n  x)\ny = 2') == ("%%time\nx = (1\ny = 2", [])
    assert take_checks('mgpu.check("05/a", x); y = 1')[0] == 'mgpu.check("05/a", x); y = 1'
    assert take_checks("(" * 5000)[1] == []


def test_the_version_of_the_course_changes_with_its_lessons(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    before = course_version(course)
    source = course / "sources/lessons/01_pick_devices.py"
    source.write_text(source.read_text() + "\n# a word more\n")
    assert course_version(course) != before
