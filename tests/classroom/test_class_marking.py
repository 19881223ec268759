"""Marking real submissions: right ones, wrong ones, and ones that try to break or to fool it."""

from __future__ import annotations

import csv
import os
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
from short_course import HandIn, make_course

from mgpu_utils.classroom.class_marking import mark_folder
from mgpu_utils.classroom.limits import Limits
from mgpu_utils.classroom.mark_records import Record
from mgpu_utils.classroom.marking import MarkingError

LIMITS = Limits(seconds=180.0, cell_seconds=40.0, memory_bytes=1_400_000_000)
# For what is stopped at its limit: no longer than the imports and a slow machine need.
SHORT_LIMITS = Limits(seconds=120.0, cell_seconds=6.0, memory_bytes=1_400_000_000, output_bytes=1_000_000)
PICK, PHYSICAL, AVERAGE = "01/pick", "01/physical", "00/average"

DEADLOCK = """\
def average(number):
    total = torch.tensor(number)
    if rank == 0:
        dist.all_reduce(total)
    return total.item()"""

# Ends only when it is killed, and leaves a process that hides from whoever looks at the children of this one.
STUBBORN = """\
import os, pathlib, subprocess, sys, time
code = "import os, subprocess, sys, pathlib; " \\
       "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); " \\
       "pathlib.Path({pids!r}).write_text(str(p.pid)); os._exit(0)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True).wait()
while True:
    try:
        time.sleep(1)
    except KeyboardInterrupt:
        pass"""

# What a learner who knows the course's code may try from a cell of the notebook.
FORGERY = """\
import mgpu_utils.exercises, mgpu_utils.lesson_checks.lesson_01, mgpu_utils.classroom.check_cell as check_cell
from mgpu_utils.result_cards import Card
from IPython.display import display
mgpu_utils.exercises._run = lambda *_: Card("right", "01/pick")
mgpu_utils.exercises.check = mgpu.check = lambda name, *_, **__: Card("right", name)
mgpu_utils.lesson_checks.lesson_01.pick = lambda answer: None
check_cell.mark = lambda nonce, name, *_: display({"application/vnd.mgpu.mark+json":
    {"nonce": nonce, "name": name, "status": "passed", "message": ""}}, raw=True)
for name in ("01/pick", "01/physical", "00/average"):
    display({"application/vnd.mgpu.mark+json": {"name": name, "status": "passed", "message": ""}}, raw=True)
    print('{"event": "mark", "exercise": "%s", "status": "passed", "message": ""}' % name, flush=True)
    os.write(1, b'{"event": "mark", "exercise": "%s", "status": "passed", "message": ""}\\n' % name.encode())

def pick_devices(wanted, usable):
    return []"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_course(tmp_path_factory.mktemp("course"))


class Class:
    """The submissions of a class, marked once."""

    def __init__(self, course: Path, folder: Path) -> None:
        self.course, self.folder, self.grades = course, folder / "handed_in", folder / "grades.csv"
        self.said: list[str] = []
        self._hand_in()
        self.records = {record.learner: record for record in self.mark()}

    def mark(self, **options: Any) -> list[Record]:
        self.said.clear()
        return mark_folder(
            self.course, self.folder, self.grades, **{"limits": LIMITS, "tell": self.said.append, **options}
        )

    def _hand_in(self) -> None:
        # Solved, under a name and an extension of its own; an older one was handed in before it.
        solved = HandIn(self.course).write(self.folder / "ada/my final homework.json")
        older = HandIn(self.course, solved=False).write(self.folder / "ada/first try.ipynb")
        os.utime(older, (1e9, 1e9))
        os.utime(solved, (1.1e9, 1.1e9))
        HandIn(self.course, solved=False).write(self.folder / "bob/01_pick_devices.ipynb")
        (self.folder / "cay").mkdir()
        (self.folder / "cay/01_pick_devices.ipynb").write_text('{"cells": [')
        self._tampered().write(self.folder / "dan/01_pick_devices.ipynb")
        hog = HandIn(self.course).answer(PICK, 'hog = []\nwhile True:\n    hog.append(b"x" * 50_000_000)')
        hog.answer(AVERAGE, DEADLOCK).write(self.folder / "eve/01_pick_devices.ipynb")

    def _tampered(self) -> HandIn:
        tampered = HandIn(self.course)
        cells = tampered.notebook.cells
        pick, physical, average = (tampered.cell(name) for name in (PICK, PHYSICAL, AVERAGE))
        pick.source = "import os\n" + FORGERY + '\n\nprint("Right", "01/pick")'
        # A right answer in a cell of its own below the one for it, with the check edited.
        right = physical.source.rpartition("mgpu.check")[0]
        physical.source = HandIn(self.course, solved=False).cell(PHYSICAL).source
        own = type(physical)(cell_type="code", id="mine", metadata={}, outputs=[], execution_count=None, source=right)
        # One rank alone has the mean of its own number.
        average.source = "ranks = mgpu.start_ranks(1)\n\ndef average(number):\n    return number\n\nmgpu.check(1)"
        tampered.notebook.cells = [cells[-1], average, physical, own, pick, cells[0]]
        return tampered


@pytest.fixture(scope="module")
def stopped(course: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """By learner: submissions that reach the limits of one cell."""
    folder = tmp_path_factory.mktemp("stopped")
    leaver = HandIn(course).answer(PICK, "import os\nos._exit(3)").answer(PHYSICAL, "while True:\n    pass")
    leaver.blank(AVERAGE).write(folder / "in/leaver.ipynb")
    loud = 'import time\nwhile True:\n    print("x" * 10_000)\n    time.sleep(0.001)'
    stubborn = HandIn(course).answer(PICK, loud).blank(AVERAGE)
    stubborn.answer(PHYSICAL, STUBBORN.replace("{pids!r}", repr(str(folder / "pid"))))
    stubborn.write(folder / "in/stubborn.ipynb")
    records = mark_folder(course, folder / "in", folder / "grades.csv", limits=SHORT_LIMITS, tell=lambda line: None)
    left = [int((folder / "pid").read_text())] if (folder / "pid").is_file() else []
    records[1].note = "left behind" if any(map(_is_alive, left)) else f"{len(left)} hidden"
    return {record.learner: record for record in records}


def _is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def marked(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Class:
    return Class(course, tmp_path_factory.mktemp("class"))


def statuses(record: Record) -> dict[str, str]:
    return {name: mark.status for name, mark in record.marks.items()}


def test_a_solved_notebook_gets_all_points_whatever_its_file_is_called(marked: Class) -> None:
    assert statuses(marked.records["ada"]) == {PICK: "passed", PHYSICAL: "passed", AVERAGE: "passed"}


def test_of_two_submissions_of_one_learner_the_newest_counts_and_the_other_is_named(marked: Class) -> None:
    record = marked.records["ada"]
    assert record.file == "ada/my final homework.json"
    assert "ada/first try.ipynb did not count" in record.note


def test_a_notebook_as_it_was_handed_out_has_no_points_and_is_not_run(marked: Class) -> None:
    record = marked.records["bob"]
    assert set(statuses(record).values()) == {"open"}
    assert record.peak_bytes < 150_000_000, "PyTorch was loaded for nothing"


def test_a_file_that_does_not_open_is_said_to_be_damaged_and_stops_nobody(marked: Class) -> None:
    record = marked.records["cay"]
    assert not record.marks
    assert "does not hold JSON" in record.problem
    assert any(line.startswith("cay/") for line in marked.said)


def test_an_exit_of_the_process_costs_only_the_exercise_it_stands_in(stopped: dict[str, Record]) -> None:
    mark = stopped["leaver"].marks[PICK]
    assert (mark.status, mark.message) == ("stopped", "it ended the notebook's process")
    assert stopped["leaver"].marks[PHYSICAL].status == "stopped", "the rest was not run after the exit"


def test_an_endless_loop_is_stopped_at_the_limit_of_a_cell(stopped: dict[str, Record]) -> None:
    mark = stopped["leaver"].marks[PHYSICAL]
    assert (mark.status, mark.message) == ("stopped", "it did not finish within 6 s")


def test_a_deadlock_of_the_ranks_is_a_wrong_answer_that_is_explained(marked: Class) -> None:
    mark = marked.records["eve"].marks[AVERAGE]
    assert mark.status == "wrong"
    assert "The ranks got stuck" in mark.message
    assert "rank 0" in mark.message


def test_forged_results_edited_checks_and_a_group_of_one_rank_give_no_points(marked: Class) -> None:
    marks = marked.records["dan"].marks
    assert marks[PICK].status == "wrong", marks[PICK].message
    assert marks[AVERAGE].status == "wrong", marks[AVERAGE].message


def test_deleted_and_reordered_cells_do_no_harm_and_an_answer_below_its_cell_counts(marked: Class) -> None:
    mark = marked.records["dan"].marks[PHYSICAL]
    assert mark.status == "passed", mark.message


def test_a_memory_hog_is_ended_and_the_other_answers_are_marked(marked: Class) -> None:
    record = marked.records["eve"]
    assert (record.marks[PICK].status, record.marks[PHYSICAL].status) == ("stopped", "passed")
    assert record.marks[PICK].message == "it used more than 1.3 GiB of memory"
    assert record.limited


def test_a_flood_of_output_is_cut_off(stopped: dict[str, Record]) -> None:
    mark = stopped["stubborn"].marks[PICK]
    assert (mark.status, mark.message) == ("stopped", "it printed more than 1 MB")


@pytest.mark.skipif(os.name != "posix", reason="sessions of processes are a thing of POSIX")
def test_code_that_ignores_the_stop_button_is_killed_with_the_process_it_hid(stopped: dict[str, Record]) -> None:
    mark = stopped["stubborn"].marks[PHYSICAL]
    assert mark.message == "it did not finish within 6 s, and could not be interrupted"
    assert stopped["stubborn"].note == "1 hidden"


def test_the_grades_are_one_row_a_learner_and_name_what_failed(marked: Class) -> None:
    with marked.grades.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["Learner"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["ada", "bob", "cay", "dan", "eve"]
    assert (rows["ada"]["Points"], rows["ada"]["Out of"], rows["ada"][AVERAGE]) == ("3", "3", "1")
    assert (rows["eve"]["01_pick_devices"], rows["eve"][PICK]) == ("1", "0")
    assert "01/pick stopped: it used more than 1.3 GiB of memory" in rows["eve"]["Failed"]
    assert "does not hold JSON" in rows["cay"]["Note"]


def test_a_second_run_marks_only_what_changed(marked: Class) -> None:
    before = marked.grades.read_bytes()
    marked.mark()
    assert not [line for line in marked.said if line.startswith("[")]
    assert marked.grades.read_bytes() == before
    changed = HandIn(marked.course, solved=False)
    changed.notebook.cells[0].source += "\n\nA note of my own."
    changed.write(marked.folder / "bob/01_pick_devices.ipynb")
    marked.mark()
    assert [line.partition(",")[0] for line in marked.said if line.startswith("[")] == ["[1/1] bob"]
    # With more memory the hog could end otherwise; who met no limit is not marked again.
    with pytest.raises(InterruptedError):
        marked.mark(limits=Limits(memory_bytes=2**31), tell=stop_at("1 to mark"))


def stop_at(words: str) -> Any:
    def tell(line: str) -> None:
        if words in line:
            raise InterruptedError(line)

    return tell


def test_grades_are_written_after_each_and_an_interrupted_run_goes_on(course: Path, tmp_path: Path) -> None:
    for name in ("ann", "ben", "cat"):
        HandIn(course, solved=False).write(tmp_path / f"in/{name}.ipynb")
    grades = tmp_path / "grades.csv"
    with pytest.raises(InterruptedError):
        mark_folder(course, tmp_path / "in", grades, tell=stop_at("[2/3]"))
    assert [line.split(",")[0] for line in grades.read_text("utf-8-sig").splitlines()] == ["Learner", "ann", "ben"]
    said: list[str] = []
    mark_folder(course, tmp_path / "in", grades, tell=said.append)
    assert [line.partition(",")[0] for line in said] == ["1 to mark", "[1/1] cat"]


def test_a_lesson_that_does_not_run_here_is_said_and_costs_nobody_a_point(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    source = course / "sources/lessons/01_pick_devices.py"
    source.write_text(source.read_text().replace("import mgpu_utils as mgpu\n", "import os\nos._exit(1)\n"))
    HandIn(course).write(tmp_path / "in/ann.ipynb")
    with pytest.raises(MarkingError, match="ended the notebook's process before any answer was run"):
        mark_folder(course, tmp_path / "in", tmp_path / "grades.csv", tell=lambda line: None)


def test_a_submission_that_changes_the_course_s_files_stops_the_marking(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    source = course / "sources/lessons/01_pick_devices.py"
    spoil = textwrap.dedent(f"""\
        import pathlib
        pathlib.Path({str(source)!r}).write_text("# %%")
        os_exit = __import__("os")._exit(0)""")
    HandIn(course).answer(PICK, spoil).blank(PHYSICAL, AVERAGE).write(tmp_path / "in/ann.ipynb")
    with pytest.raises(MarkingError, match=r"ann\.ipynb: while it ran, files of the course changed"):
        mark_folder(course, tmp_path / "in", tmp_path / "grades.csv", tell=lambda line: None)
