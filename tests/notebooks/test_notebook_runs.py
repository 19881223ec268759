"""The notebook tests can fail: a wrong output, one rank for two, a missing solution and an endless cell are found."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbval_runs import run_nbval

from mgpu_utils.authoring import AuthoringError, build, build_solutions, dumps, read_notebook
from mgpu_utils.notebook_execution import execute_notebook

LESSON = """\
# %% [markdown]
# # Meet two ranks

# %%
import torch.distributed as dist
from tqdm.auto import tqdm

import mgpu_utils as mgpu
from mgpu_utils.exercises import check, exercise

# %%
ranks = mgpu.start_ranks(2, device="cpu")

# %% tags=["nbval-check-output"]
ranks.run(lambda: dist.get_world_size())

# %%
%load_ext mgpu_utils

# %% tags=["nbval-check-output"]
# %%ranks
for step in range(3):
    print(f"rank {rank} of {world_size} at step {step}")

# %%
for _ in tqdm(range(3)):
    pass


# %%
@exercise("95/double", minutes=1, difficulty=1)
def double(answer):
    assert answer(2) == 4, "twice two is not that"


# %% tags=["exercise"]
def twice(number):
    ### BEGIN SOLUTION
    return number + number
    ### END SOLUTION


# %% tags=["nbval-check-output"]
check("95/double", twice).passed

# %%
ranks.shutdown()
""".replace("\n%load_ext", "\n# %load_ext")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("course")
    (root / "sources/lessons").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "sources/lessons/95_meet_two_ranks.py").write_text(LESSON)
    build(root, execute=True)
    return root


@pytest.fixture
def lesson(course: Path, tmp_path: Path) -> Path:
    """A copy of the executed lesson, to be tampered with."""
    copy = tmp_path / "95_meet_two_ranks.ipynb"
    copy.write_bytes((course / "notebooks/95_meet_two_ranks.ipynb").read_bytes())
    return copy


def test_rank_output_is_the_same_five_times_in_a_row(lesson: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        runs = [both.submit(run_nbval, lesson, tmp_path / str(number)) for number in range(5)]
    for run in runs:
        found = run.result()
        assert found.passed, found.failures or found.log


def test_a_wrong_output_and_one_rank_instead_of_two_turn_the_lesson_red(lesson: Path, tmp_path: Path) -> None:
    text = lesson.read_text()
    changes = {
        "output": ("rank 1 of 2 at step 2", "rank 1 of 2 at step 3"),
        "ranks": ("start_ranks(2,", "start_ranks(1,"),
    }
    with ThreadPoolExecutor(2) as both:
        runs = {}
        for name, (old, new) in changes.items():
            assert old in text
            copy = tmp_path / f"{name}.ipynb"
            copy.write_text(text.replace(old, new))
            runs[name] = both.submit(run_nbval, copy, tmp_path / name)
    wrong_output, one_rank = runs["output"].result(), runs["ranks"].result()
    assert not wrong_output.passed
    assert len(wrong_output.failures) == 1, wrong_output.failures
    assert not one_rank.passed
    assert any("[2, 2]" in reason for reason in one_rank.failures.values()), one_rank.failures


def test_the_solution_version_is_green_and_without_its_solution_it_is_red(course: Path, tmp_path: Path) -> None:
    (path,) = build_solutions(course, tmp_path / "solutions")
    strict = {"MGPU_STRICT": "1"}
    execute_notebook(read_notebook(path), "solved", tmp_path, timeout=120, environment=strict)
    learner = read_notebook(course / "notebooks/95_meet_two_ranks.ipynb")
    with pytest.raises(AuthoringError, match="CheckFailed: 95/double"):
        execute_notebook(learner, "unsolved", tmp_path, timeout=120, environment=strict)


def notebook_of(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


ENDLESS = (
    "import os, pathlib, subprocess, sys, time\n"
    "sleeper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "pathlib.Path('pids').write_text(f'{os.getpid()} {sleeper.pid}')",
    "while True:\n    time.sleep(0.1)",
)


def test_an_endless_notebook_is_ended_with_all_it_started(tmp_path: Path) -> None:
    for name in ("executed", "tested"):
        (tmp_path / name).mkdir()
    path = tmp_path / "tested/endless.ipynb"
    path.write_text(dumps(notebook_of(*ENDLESS)))
    with ThreadPoolExecutor(2) as both:
        executed = both.submit(execute_notebook, notebook_of(*ENDLESS), "endless", tmp_path / "executed", timeout=15)
        tested = both.submit(run_nbval, path, tmp_path / "run", limit=15)
    with pytest.raises(AuthoringError, match="endless: did not finish within 15 s and was ended"):
        executed.result()
    assert tested.result().status is None
    assert not tested.result().passed
    pids = [int(pid) for folder in ("executed", "tested") for pid in (tmp_path / folder / "pids").read_text().split()]
    assert len(pids) == 4
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_notebooks_run_side_by_side_after_one_that_used_a_process_pool(tmp_path: Path) -> None:
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    pool = notebook_of(
        f"import multiprocessing\nwith multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "    total = sum(pool.starmap(pow, [(2, 3), (3, 2)]))",
        "total",
    )
    for _ in range(2):
        done = execute_notebook(pool, "pool", tmp_path, timeout=120)
        assert done.cells[1].outputs[0].data["text/plain"] == "17"
        with ThreadPoolExecutor(2) as both:
            runs = [
                both.submit(execute_notebook, notebook_of(f"{n} * 2"), str(n), tmp_path, timeout=120) for n in (3, 4)
            ]
        assert [run.result().cells[0].outputs[0].data["text/plain"] for run in runs] == ["6", "8"]


def test_progress_bars_draw_without_a_warning_and_with_words_beside_the_widget(tmp_path: Path) -> None:
    done = execute_notebook(
        notebook_of("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass"), "bar", tmp_path, timeout=60
    )
    outputs = done.cells[0].outputs
    assert outputs, "the bar drew nothing"
    assert "Warning" not in str(outputs)
    assert all("text/plain" in output.get("data", {"text/plain": ""}) for output in outputs)


def test_a_run_sees_neither_the_answers_nor_the_settings_of_the_person_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGPU_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("MGPU_STRICT", "1")
    cells = notebook_of("import os", "os.environ.get('MGPU_STRICT'), 'mine' in os.environ['MGPU_HOME']")
    done = execute_notebook(cells, "clean", tmp_path, timeout=60)
    assert done.cells[1].outputs[0].data["text/plain"] == "(None, False)"
