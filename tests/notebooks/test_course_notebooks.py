"""Every lesson: the learner version runs through and its checked cells compare; the solution version is green."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from nbval_runs import LIMIT, ROOT, run_nbval

from mgpu_utils.authoring import build_solutions, find_sources, is_checked, read_notebook
from mgpu_utils.notebook_checks import find_problems
from mgpu_utils.notebook_execution import execute_notebook

LESSONS = [source.notebook for source in find_sources(ROOT) if source.kind == "lesson"]
each_lesson = pytest.mark.parametrize("notebook", LESSONS, ids=[path.stem for path in LESSONS])


def test_the_committed_notebooks_are_what_the_sources_generate() -> None:
    assert [str(problem) for problem in find_problems(ROOT)] == []


@each_lesson
def test_learner_version_runs_with_exercises_unattempted_and_its_checked_cells_compare(
    notebook: Path, tmp_path: Path
) -> None:
    cells = [cell for cell in read_notebook(notebook).cells if cell.cell_type == "code"]
    compared = [cell for cell in cells if is_checked(cell) and cell.outputs and cell.execution_count is not None]
    assert compared, "nbval passes on anything where no output is stored"
    found = run_nbval(notebook, tmp_path)
    print(f"{notebook.stem}: {found.seconds:.1f} s, {len(compared)} of {len(cells)} code cells compared")
    assert found.passed, found.failures or found.log
    assert found.cells == len(cells)


@each_lesson
def test_solution_version_has_every_check_green(notebook: Path, tmp_path: Path) -> None:
    (path,) = build_solutions(ROOT, tmp_path / "solutions", [notebook.stem])
    started = time.monotonic()
    # In the folder of the learner's notebook, so that the same files are beside it.
    execute_notebook(read_notebook(path), path.stem, notebook.parent, timeout=LIMIT, environment={"MGPU_STRICT": "1"})
    print(f"{notebook.stem} with solutions: {time.monotonic() - started:.1f} s")
