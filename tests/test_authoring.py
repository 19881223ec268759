"""Sources become notebooks, one way; a notebook that is not what its source generates is found out."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mgpu_utils.authoring import (
    AuthoringError,
    build,
    build_solutions,
    find_root,
    generate,
    read_notebook,
    write_text,
)
from mgpu_utils.cli import main
from mgpu_utils.notebook_checks import find_problems

LESSON = """\
# %% [markdown]
# # Add two numbers

# %%
import os

# %% [markdown]
# ## Add

# %% tags=["nbval-check-output"]
total = 1 + 1
total

# %%
# %%time
other = 3

# %% [markdown]
# ## Your turn

# %% tags=["exercise"]
def double(number):
    ### BEGIN SOLUTION
    return 2 * number
    ### END SOLUTION


# %% tags=["solution"]
double(4)
"""
RANKS = LESSON.replace("import os", "ranks = mgpu.start_ranks(2)")
PROOF = '# %% tags=["nbval-check-output"]\nranks.run(lambda: dist.get_world_size())\n'
BENCHMARK = '# %%\nimport os\n\n# %% tags=["parameters"]\nsteps = 10\n\n# %%\nprint(steps)\n'


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "sources/lessons").mkdir(parents=True)
    (tmp_path / "sources/benchmarks").mkdir()
    (tmp_path / "pyproject.toml").touch()
    write_lesson(tmp_path, LESSON)
    return tmp_path


def write_lesson(course: Path, text: str) -> Path:
    path = course / "sources/lessons/01_add.py"
    path.write_text(text)
    return path


def built(course: Path) -> Path:
    return course / "notebooks/01_add.ipynb"


def store(course: Path, text: str = "2", count: int | None = 3) -> None:
    """Build, and give each checked cell an output, as an executed build would."""
    build(course)
    notebook = read_notebook(built(course))
    for cell in notebook.cells:
        if cell.metadata.get("tags") == ["nbval-check-output"]:
            data = {"text/plain": text}
            cell.outputs = [nbformat.v4.new_output("execute_result", data, execution_count=count)]
            cell.execution_count = count
    built(course).write_text(nbformat.writes(notebook) + "\n")


def sources_of(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells]


def messages(course: Path) -> str:
    return "\n".join(map(str, find_problems(course)))


def changed_lines(before: str, after: str) -> list[str]:
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in diff if re.match(r"[+-](?![+-]{2} )", line)]


def test_learners_get_a_placeholder_and_teachers_the_solution(course: Path) -> None:
    path = write_lesson(course, LESSON)
    learner, teacher = sources_of(generate(path)), sources_of(generate(path, solutions=True))
    assert "def double(number):\n    # YOUR CODE HERE\n    ..." in learner
    assert "def double(number):\n    return 2 * number" in teacher
    assert "double(4)" in teacher
    assert "double(4)" not in learner
    assert "%%time\nother = 3" in learner
    assert not any("SOLUTION" in source for source in learner + teacher)


def test_both_versions_name_their_common_cells_alike(course: Path) -> None:
    path = write_lesson(course, LESSON)
    learner = [cell.id for cell in generate(path).cells]
    teacher = [cell.id for cell in generate(path, solutions=True).cells]
    assert [cell_id for cell_id in teacher if cell_id in learner] == learner
    assert learner == ["add-two-numbers", "add-two-numbers_01", "add", "add_01", "add_02", "your-turn", "your-turn_01"]


@pytest.mark.parametrize(("old", "new"), [("total = 1 + 1", "total = 2 + 0"), ("import os", "import sys")])
def test_a_changed_line_changes_one_line_of_the_notebook(course: Path, old: str, new: str) -> None:
    store(course)
    before = built(course).read_text()
    write_lesson(course, LESSON.replace(old, new))
    build(course)
    changes = [line for line in changed_lines(before, built(course).read_text()) if old in line or new in line]
    others = [line for line in changed_lines(before, built(course).read_text()) if line not in changes]
    assert len(changes) == 2
    assert not others or "total" in old, "only the output of a changed checked cell may go with it"


def test_a_new_cell_renames_no_cell_outside_its_section(course: Path) -> None:
    path = write_lesson(course, LESSON)
    before = [cell.id for cell in generate(path).cells]
    write_lesson(course, LESSON.replace("# ## Add\n", "# ## Add\n\n# %%\nnew = 0\n"))
    after = [cell.id for cell in generate(path).cells]
    assert [cell_id for cell_id in after if cell_id in before] == before
    assert set(after) - set(before) == {"add_03"}


def test_an_id_given_by_hand_stays_whatever_the_heading_says(course: Path) -> None:
    path = write_lesson(course, LESSON.replace("# %% [markdown]\n# ## Add", '# %% [markdown] id="plus"\n# ## Sum up'))
    assert [cell.id for cell in generate(path).cells][2:5] == ["plus", "plus_01", "plus_02"]


def test_building_twice_changes_nothing_and_keeps_the_stored_outputs(course: Path) -> None:
    store(course)
    before = built(course).read_bytes()
    assert build(course) == []
    assert built(course).read_bytes() == before
    assert messages(course) == ""


def test_outputs_of_a_cell_whose_source_changed_are_dropped(course: Path) -> None:
    store(course)
    write_lesson(course, LESSON.replace("1 + 1", "1 + 2"))
    build(course)
    assert "cell 'add_01': is to be checked and holds no output" in messages(course)


def test_executing_stores_the_outputs_of_checked_cells_only(course: Path) -> None:
    write_lesson(course, LESSON.replace("import os", "import os\nprint('seen')"))
    build(course, execute=True)
    cells = {cell.id: cell for cell in read_notebook(built(course)).cells}
    assert cells["add_01"].outputs[0].data == {"text/plain": "2"}
    assert cells["add_01"].execution_count == 2
    assert cells["add-two-numbers_01"].outputs == []
    assert cells["add-two-numbers_01"].execution_count is None
    assert messages(course) == ""


def test_a_cell_that_fails_is_named_and_the_notebook_stays_as_it_was(course: Path) -> None:
    store(course)
    before = built(course).read_bytes()
    write_lesson(course, LESSON.replace("other = 3", "other = 1 / 0"))
    with pytest.raises(AuthoringError, match=r"01_add: cell 'add_02' failed: ZeroDivisionError: division by zero"):
        build(course, execute=True)
    assert built(course).read_bytes() == before


def test_nothing_of_the_machine_is_in_a_notebook(course: Path) -> None:
    build(course)
    metadata = read_notebook(built(course)).metadata
    assert metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def test_solutions_are_never_written_over_the_learners_notebooks(course: Path) -> None:
    with pytest.raises(AuthoringError, match="another folder"):
        build_solutions(course, course / "notebooks")
    (written,) = build_solutions(course, course / "out")
    assert "return 2 * number" in written.read_text()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('tags=["exercise"]', 'tags=["exercize"]', "01_add.py:21: unknown tag 'exercize'"),
        ('tags=["exercise"]', "tags=[exercise]", "cannot be read"),
        ('tags=["exercise"]', 'tags="exercise"', "tags are a list"),
        ('tags=["exercise"]', 'tag=["exercise"]', "does not belong in a header"),
        ('# %% tags=["exercise"]', "# %% A title", "does not belong in a header"),
        ("# %% [markdown]\n# ## Add", "# %%[markdown]\n# ## Add", "is not a cell header"),
        ("# %% [markdown]\n# ## Add", "# %% [raw]\n# ## Add", "is not a cell header"),
        ("# %%\nimport os", "#%%\nimport os", "is not a cell header"),
        ("# %% [markdown]\n# # Add", "# # Add", "01_add.py:1: a source starts with a cell header"),
        ("# %%time\nother = 3", "other = 3\n# %%time", "belongs on the first line"),
        ("    ### END SOLUTION\n", "", "01_add.py:21: '### BEGIN SOLUTION' is not closed"),
        ("    ### BEGIN SOLUTION\n", "", "'### END SOLUTION' without its partner"),
        ('# %% tags=["exercise"]', '# %% tags=["exercise"] id="add_01"', "letters, digits and hyphens"),
        ('# %% tags=["exercise"]', '# %% tags=["exercise"] id="add"', "a second cell is called 'add'"),
    ],
)
def test_a_source_that_cannot_be_used_gets_one_sentence_with_its_place(
    course: Path, old: str, new: str, told: str
) -> None:
    assert old in LESSON
    path = write_lesson(course, LESSON.replace(old, new, 1))
    with pytest.raises(AuthoringError, match=re.escape(told)) as caught:
        generate(path)
    assert "\n" not in str(caught.value)
    assert "01_add.py" in str(caught.value)


def edit(course: Path, change: Any) -> None:
    notebook = read_notebook(built(course))
    change(notebook)
    built(course).write_text(nbformat.writes(notebook) + "\n")


def test_check_names_the_cell_that_was_edited_in_the_notebook(course: Path) -> None:
    store(course)
    edit(course, lambda notebook: notebook.cells[1].update(source="import sys"))
    assert "notebooks/01_add.ipynb, cell 'add-two-numbers_01': is not what the source generates" in messages(course)
    assert "Cure: mgpu notebooks build" in messages(course)


def test_check_names_a_cell_that_was_removed_added_or_left_with_an_output(course: Path) -> None:
    store(course)
    edit(course, lambda notebook: notebook.cells.pop(1))
    assert "cell 'add-two-numbers_01': is in the source and not in the notebook" in messages(course)
    store(course)
    edit(course, lambda notebook: notebook.cells.append(nbformat.v4.new_markdown_cell("more", id="more")))
    assert "cell 'more': is in the notebook and not in the source" in messages(course)
    store(course)
    edit(course, lambda notebook: notebook.cells[1].update(execution_count=4))
    assert "cell 'add-two-numbers_01': holds an output" in messages(course)


def test_check_finds_notebooks_that_are_missing_or_have_no_source(course: Path) -> None:
    assert "notebooks/01_add.ipynb: is missing" in messages(course)
    store(course)
    built(course).rename(built(course).with_name("02_left_over.ipynb"))
    assert "notebooks/02_left_over.ipynb: has no source" in messages(course)


def test_check_fails_a_lesson_in_which_no_output_is_compared(course: Path) -> None:
    write_lesson(course, LESSON.replace(' tags=["nbval-check-output"]', ""))
    build(course)
    assert "no cell is tagged nbval-check-output" in messages(course)


def test_check_fails_a_checked_cell_without_output_or_count(course: Path) -> None:
    build(course)
    assert "cell 'add_01': is to be checked and holds no output" in messages(course)
    assert "Cure: mgpu notebooks build --execute" in messages(course)
    store(course, count=None)
    assert "holds no execution_count" in messages(course)


@pytest.mark.parametrize("text", ["<f at 0x7f3a21b0c9d0>", "/home/ada/course/x.py", "TqdmWarning: IProgress not found"])
def test_check_fails_an_output_that_differs_on_each_machine(course: Path, text: str) -> None:
    store(course, text)
    assert "which is another on each machine" in messages(course)


def test_check_fails_a_stored_widget(course: Path) -> None:
    store(course)
    view = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "bar"}
    edit(course, lambda notebook: notebook.cells[3].outputs[0].update(data=view))
    assert "a picture or a widget" in messages(course)


def test_check_fails_code_cells_that_are_too_long(course: Path) -> None:
    short = "\n".join("# %%\n" + "x = 1\n" * 6 for _ in range(6))
    write_lesson(course, LESSON + short)
    store(course)
    assert "its median code cell has 6 lines" in messages(course)
    write_lesson(course, LESSON + "\n# %%\n" + "x = 1\n" * 16)
    store(course)
    assert "exceed 15 lines, this one the most (16)" in messages(course)
    many = "\n".join("# %%\nx = 1\n" for _ in range(6))
    write_lesson(course, LESSON + many + "\n# %%\n" + "x = 1\n" * 16)
    store(course)
    assert messages(course) == "", "one long cell in ten is allowed"


def test_check_fails_a_lesson_that_starts_ranks_and_never_asks_them_for_their_number(course: Path) -> None:
    write_lesson(course, RANKS)
    store(course)
    assert "starts ranks, and no cell tagged nbval-check-output asks the ranks" in messages(course)
    write_lesson(course, f"{RANKS}\n{PROOF}")
    store(course, "[2, 2]")
    assert messages(course) == ""
    store(course, "[1]")
    assert "is to prove that several ranks ran, and shows one or none" in messages(course)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BENCHMARK, ""),
        (BENCHMARK.replace(' tags=["parameters"]', ""), "0 cells are tagged parameters where exactly one must be"),
        (BENCHMARK + '\n# %% tags=["parameters"]\nmore = 1\n', "2 cells are tagged parameters"),
        (BENCHMARK.replace("import os", "print(steps)"), "uses 'steps' before the cell tagged parameters"),
        (BENCHMARK.replace("steps = 10", "# none"), "is tagged parameters and assigns no name"),
    ],
)
def test_a_benchmark_has_one_parameters_cell_before_their_first_use(course: Path, text: str, told: str) -> None:
    store(course)
    (course / "sources/benchmarks/01_compare.py").write_text(text)
    build(course, ["01_compare"])
    assert told in messages(course)
    assert bool(told) == bool(messages(course))


def test_check_and_build_commands_end_with_a_status_that_ci_sees(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["notebooks", "check", "--root", str(course)]) == 1
    assert "Cure: mgpu notebooks build --execute" in capsys.readouterr().err
    assert main(["notebooks", "build", "--root", str(course), "--execute"]) == 0
    assert main(["notebooks", "check", "--root", str(course)]) == 0
    assert main(["notebooks", "build", "07", "--root", str(course)]) == 2
    assert "no source is called '07'; there are: 01_add" in capsys.readouterr().err


def test_a_folder_outside_the_course_falls_back_to_where_the_package_lies(tmp_path: Path, course: Path) -> None:
    assert find_root(course / "sources") == course
    assert (find_root(Path(tmp_path.anchor)) / "mgpu_utils").is_dir()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    assert write_text(path, "old")
    assert not write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file() and "file.txt" in entry.name] == ["file.txt"]
