"""nbgrader takes the exported lessons: it removes the solutions, and gives a point for each right answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from short_course import make_course

from mgpu_utils.classroom.nbgrader_export import export_course
from mgpu_utils.lesson_source import AuthoringError

# In a folder of its own: as a dependency of the course it would put its buttons into every learner's JupyterLab.
NBGRADER = ["nbgrader==0.9.6"]
NBGRADER += ["alembic==1.20.1", "mako==1.4.3", "notebook==7.6.5", "rapidfuzz==3.14.6", "sqlalchemy==2.1.9"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    course = make_course(tmp_path_factory.mktemp("course"))
    folder = tmp_path_factory.mktemp("nbgrader")
    export_course(course, folder)
    return folder


@pytest.fixture(scope="module")
def nbgrader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *NBGRADER]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nbgrader could not be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder


def cells_of(path: Path) -> dict[str, Any]:
    return {cell["id"]: cell for cell in json.loads(path.read_text())["cells"]}


def test_an_exercise_is_an_answer_with_its_solution_and_a_locked_check_worth_a_point(exported: Path) -> None:
    cells = cells_of(exported / "source/01_pick_devices/01_pick_devices.ipynb")
    check, answer = cells["check-01-pick"], cells["exercises_01"]
    source = "".join(answer["source"])
    assert source.count("### BEGIN SOLUTION") == 1
    assert "mgpu.check" not in source
    assert (
        answer["metadata"]["nbgrader"] | {"solution": True, "grade": False, "locked": False}
        == (answer["metadata"]["nbgrader"])
    )
    marks = check["metadata"]["nbgrader"]
    assert (marks["grade"], marks["locked"], marks["points"]) == (True, True, 1)
    source = "".join(check["source"])
    assert source.startswith('card = mgpu.check("01/pick", pick_devices)\n### BEGIN HIDDEN TESTS\nassert card.passed')
    ids = [cell["metadata"]["nbgrader"]["grade_id"] for cell in cells.values() if cell["cell_type"] == "code"]
    assert len(ids) == len(set(ids))


def test_a_choice_without_exercises_is_refused(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    (course / "sources/lessons/02_words.py").write_text("# %% [markdown]\n# # Words alone\n")
    with pytest.raises(AuthoringError, match="no lesson with an exercise was chosen"):
        export_course(course, tmp_path / "out", ["02"])


def test_an_export_replaces_what_it_wrote_and_loses_nothing_that_a_teacher_changed(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    (path,) = export_course(course, tmp_path / "out")
    config = path.parents[2] / "nbgrader_config.py"
    config.write_text("# mine\n")
    saved = nbformat.read(path, as_version=4)
    saved.cells[-1].execution_count, saved.metadata["language_info"] = 3, {"name": "python"}
    nbformat.write(saved, path)
    assert export_course(course, tmp_path / "out") == [path]
    assert config.read_text() == "# mine\n"
    saved.cells[0].source += "\nHand in on Friday."
    nbformat.write(saved, path)
    for changed in (path.read_text(), "not a notebook"):
        path.write_text(changed)
        with pytest.raises(ValueError, match=r"01_pick_devices\.ipynb was changed after .* would be lost"):
            export_course(course, tmp_path / "out")
        assert path.read_text() == changed


def test_nbgrader_removes_solutions_and_marks_right_and_wrong_answers(exported: Path, nbgrader_folder: Path) -> None:
    name = "01_pick_devices"

    def nbgrader(*arguments: str) -> None:
        programs = [str(nbgrader_folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        environment = os.environ | {"PATH": os.pathsep.join(programs), "PYTHONPATH": str(nbgrader_folder)}
        command = [sys.executable, "-m", "nbgrader", *arguments]
        subprocess.run(command, cwd=exported, env=environment, check=True, capture_output=True)

    nbgrader("generate_assignment", name, "--create")
    released = exported / f"release/{name}/{name}.ipynb"
    assert "SOLUTION" not in released.read_text()
    assert "HIDDEN" not in released.read_text()
    assert "# YOUR CODE HERE" in released.read_text()
    solved = json.loads(released.read_text())
    source = cells_of(exported / f"source/{name}/{name}.ipynb")
    for cell in solved["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = source[cell["id"]]["source"]
    for learner, notebook in (("solved", solved), ("blank", json.loads(released.read_text()))):
        path = exported / f"submitted/{learner}/{name}/{name}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook))
    nbgrader("autograde", name, "--create")
    nbgrader("export", f"--to={exported / 'grades.csv'}")
    rows = [line.split(",") for line in (exported / "grades.csv").read_text().splitlines()]
    student, score = rows[0].index("student_id"), rows[0].index("score")
    assert {row[student]: row[score] for row in rows[1:]} == {"solved": "3.0", "blank": "0.0"}
