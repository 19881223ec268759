"""Every lesson: the learner version runs through and its checked cells compare; the solution version is green."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nbval_runs import LIMIT, ROOT, run_nbval

from mgpu_utils.authoring import build_solutions, find_sources, is_checked, read_notebook
from mgpu_utils.notebook_checks import find_problems
from mgpu_utils.notebook_execution import execute_notebook

LESSONS = [source.notebook for source in find_sources(ROOT, kind="lesson")]
each_lesson = pytest.mark.parametrize("notebook", LESSONS, ids=[path.stem for path in LESSONS])
# Half of a lesson's time is waiting: for a kernel to start, for a rank that is stuck on purpose.
AT_ONCE = 2


def test_the_committed_notebooks_are_what_the_sources_generate() -> None:
    assert [str(problem) for problem in find_problems(ROOT)] == []


def run_solution(notebook: Path, scratch: Path) -> float:
    """Run the solution version, where every check has to be green; returns its seconds."""
    (path,) = build_solutions(ROOT, scratch / "solutions", [notebook.stem])
    started = time.monotonic()
    # In the folder of the learner's notebook, so that the same files are beside it.
    execute_notebook(read_notebook(path), path.stem, notebook.parent, timeout=LIMIT, environment={"MGPU_STRICT": "1"})
    return time.monotonic() - started


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Any]]]:
    """The runs of all notebooks that the chosen tests ask for, under way in the order of the tests."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started: dict[str, Future[Any]] = {}
        for item in request.session.items:
            job = getattr(getattr(item, "function", None), "job", None)
            if isinstance(item, pytest.Function) and job is not None:
                notebook = item.callspec.params["notebook"]
                started[item.name] = pool.submit(job, notebook, tmp_path_factory.mktemp(notebook.stem))
        yield started
        pool.shutdown(cancel_futures=True)


def runs_with(job: Callable[[Path, Path], Any]) -> Callable[[Any], Any]:
    """Mark a test as one that looks at the result of `job(notebook, scratch)`."""

    def mark(test: Any) -> Any:
        test.job = job
        return pytest.mark.timeout(2 * LIMIT + 60)(each_lesson(test))

    return mark


@runs_with(run_nbval)
def test_learner_version_runs_with_exercises_unattempted_and_its_checked_cells_compare(
    notebook: Path, runs: dict[str, Future[Any]], request: pytest.FixtureRequest, note: Callable[[str], None]
) -> None:
    cells = [cell for cell in read_notebook(notebook).cells if cell.cell_type == "code"]
    compared = [cell for cell in cells if is_checked(cell) and cell.outputs and cell.execution_count is not None]
    assert compared, "nbval passes on anything where no output is stored"
    found = runs[request.node.name].result()
    note(f"{notebook.stem}: {found.seconds:.1f} s, {len(compared)} of {len(cells)} code cells compared")
    assert found.passed, found.failures or found.log
    assert found.cells == len(cells)


@runs_with(run_solution)
def test_solution_version_has_every_check_green(
    notebook: Path, runs: dict[str, Future[Any]], request: pytest.FixtureRequest, note: Callable[[str], None]
) -> None:
    note(f"{notebook.stem} with solutions: {runs[request.node.name].result():.1f} s")
