"""What a learner hands in is read as text where the teacher is, and runs in processes of its own."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from short_course import HandIn, make_course

import mgpu_utils
from mgpu_utils.classroom.class_marking import mark_folder
from mgpu_utils.classroom.limits import Limits

LIMITS = Limits(seconds=180.0, cell_seconds=60.0, memory_bytes=1_400_000_000)
CANARY = "canary_of_the_answer"
# Writes down in which process it runs, whenever anything of it is called, compared, shown, copied or loaded.
ANSWER = """\
import base64, json, os, pathlib, pickle, threading, time

def canary_of_the_answer(what):
    name = f"{what}-{os.getpid()}-{os.getppid()}"
    (pathlib.Path(FOLDER) / name).write_text("")
    return 0

class Everywhere:
    def __reduce__(self):
        return canary_of_the_answer, ("loaded",)
    def _seen(self, *_):
        canary_of_the_answer("seen")
        return True
    __eq__ = __bool__ = _seen
    def __repr__(self):
        canary_of_the_answer("seen")
        return base64.b64encode(pickle.dumps(Everywhere())).decode()
    __str__ = __repr__

def forge(parent=os.getppid()):
    mark = {"event": "mark", "exercise": "01/pick", "status": "passed", "message": ""}
    while True:
        with open(f"/proc/{parent}/fd/1", "w") as file:
            file.write(json.dumps(mark) + chr(10))
        time.sleep(0.01)

threading.Thread(target=forge, daemon=True).start()

def pick_devices(wanted, usable):
    canary_of_the_answer("answer")
    raise ValueError(Everywhere())

print(Everywhere())
display(Everywhere())"""
# Lies beside the notebook under names that the course itself imports.
BESIDE = (
    "import os, pathlib\n(pathlib.Path({folder!r}) / f'imported-{{os.getpid()}}-{{os.getppid()}}').write_text('')\n"
)
NAMES = ("sitecustomize.py", "usercustomize.py", "conftest.py", "json.py", "ast.py", "torch.py", "mgpu_utils.py")


@dataclass
class Watch:
    """What this process executes and loads while it marks."""

    on: bool = False
    executed: list[CodeType] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "exec":
            self.executed.append(arguments[0])
        elif event == "pickle.find_class":
            self.loaded.append(".".join(arguments))


@dataclass(frozen=True)
class Handed:
    """The traces which a submission has left, `WHAT-PROCESS-PARENT`, and what this process did meanwhile."""

    traces: set[tuple[str, int, int]]
    watch: Watch
    statuses: dict[str, str]


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Handed:
    course = make_course(tmp_path_factory.mktemp("course"))
    folder = tmp_path_factory.mktemp("handed")
    traces = folder / "traces"
    traces.mkdir()
    # The second exercise gives what the first one began time to go on.
    submission = HandIn(course).blank("00/average").answer("01/pick", f"FOLDER = {str(traces)!r}\n{ANSWER}")
    file = submission.write(folder / "in/ada/01_pick_devices.ipynb")
    for name in NAMES:
        (file.parent / name).write_text(BESIDE.format(folder=str(traces)))
    watch = Watch()
    sys.addaudithook(watch)
    watch.on = True
    try:
        (record,) = mark_folder(course, folder / "in", folder / "grades.csv", limits=LIMITS, tell=lambda line: None)
    finally:
        watch.on = False
    found = {
        (what, int(process), int(parent)) for what, process, parent in (f.name.split("-") for f in traces.iterdir())
    }
    return Handed(found, watch, {name: mark.status for name, mark in record.marks.items()})


def test_an_answer_runs_neither_here_nor_in_the_process_that_marks(handed: Handed) -> None:
    # The check calls the answer and shows what it raised; nothing else ever touches the answer's objects.
    assert handed.statuses["01/pick"] in ("wrong", "error")
    assert {what for what, _, _ in handed.traces} >= {"answer", "seen"}
    processes = {process for _, process, _ in handed.traces}
    parents = {parent for _, _, parent in handed.traces}
    assert len(processes) == 1, "one kernel"
    assert len(parents) == 1, "one process that marks"
    assert os.getpid() not in processes | parents
    assert processes.isdisjoint(parents)


def test_a_mark_cannot_be_written_into_the_pipe_of_the_process_that_marks(handed: Handed) -> None:
    assert handed.statuses["01/physical"] == "passed", "while it was marked, the first answer wrote on"
    assert handed.statuses["01/pick"] != "passed"


def test_nothing_that_lies_beside_a_submission_is_imported(handed: Handed) -> None:
    assert [trace for trace in handed.traces if trace[0] == "imported"] == []


def test_this_process_executes_no_code_of_an_answer_and_loads_no_object_of_it(handed: Handed) -> None:
    names = {name for code in handed.watch.executed for name in (code.co_filename, code.co_name, *code.co_names)}
    assert CANARY not in names
    assert [trace for trace in handed.traces if trace[0] == "loaded"] == []
    assert handed.watch.loaded == []


def test_a_watch_sees_what_is_executed_and_loaded() -> None:
    import pickle

    watch = Watch(on=True)
    sys.addaudithook(watch)
    exec(compile(f"{CANARY} = 1\n{CANARY}", "<answer>", "exec"), {})
    pickle.loads(pickle.dumps(Handed))
    watch.on = False
    assert any(CANARY in code.co_names for code in watch.executed)
    assert any(name.endswith("Handed") for name in watch.loaded)


def test_the_teacher_s_side_has_no_call_that_evaluates_or_unpickles() -> None:
    """All of the classroom but the module that is imported in the learner's kernel."""
    evaluating = {
        "eval",
        "exec",
        "__import__",
        "import_module",
        "run_path",
        "run_module",
        "load",
        "loads",
        "get_ipython",
    }
    found = []
    for file in sorted((Path(mgpu_utils.__file__).parent / "classroom").glob("*.py")):
        if file.name == "check_cell.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)).rpartition(".")[2] in evaluating:
                found.append(called)
    assert set(found) <= {"json.loads", "json.load"}
    assert found
