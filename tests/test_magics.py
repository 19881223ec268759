"""Ranks as a notebook sees them: cell magics, functions from cells, errors, and the kernel's end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import psutil
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[1]
START = "import mgpu_utils as mgpu\n%load_ext mgpu_utils\nranks = mgpu.start_ranks(2, device='cpu', timeout=60)"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def notebook(*cells: str) -> NotebookNode:
    return new_notebook(cells=[new_code_cell(textwrap.dedent(cell).strip()) for cell in cells], metadata=KERNEL)


def run(book: NotebookNode, allow_errors: bool = False) -> list[list[NotebookNode]]:
    NotebookClient(book, timeout=120, allow_errors=allow_errors, resources={"metadata": {"path": str(ROOT)}}).execute()
    return [cell.outputs for cell in book.cells]


def text(outputs: list[NotebookNode]) -> str:
    """All the text a cell shows, streams and displays alike."""
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs)


@pytest.fixture(scope="module")
def cells() -> list[list[NotebookNode]]:
    """Outputs of one notebook, run once, that the tests below look at."""
    book = notebook(
        START,
        """
        %%ranks
        print("hello from", rank)
        square = rank ** 2 + 5
        square
        """,
        """
        %%rank 1
        print(square)
        """,
        """
        class Doubler:
            def __call__(self, x):
                return 2 * x

        def work(x):
            helper = Doubler()
            return helper(x) + square
        ranks.run(work, 10)
        """,
        """
        def fails(x):
            return helper_that_fails(x)

        def helper_that_fails(x):
            raise ValueError(f"no good: {x}")
        """,
        "ranks.run(fails, 3)",
        """
        %%ranks
        total = torch.ones(1)
        if rank == 0:
            dist.all_reduce(total_of_nothing)
        """,
        """
        in_notebook = 1
        """,
        """
        %%ranks
        in_notebook
        """,
        "%%rank two\n1",
        "ranks",
        "%%ranks rank = 5\nprint(rank)",
        "%%ranks rank = 5",
        "%%rank 0 print(rank)",
        "%%ranks",
        """
        square = "the notebook's"
        for rank in (70, 71):
            pass
        """,
        """
        def both():
            return square, rank

        ranks.run(both)
        """,
        "ranks.run(both)",
    )
    return run(book, allow_errors=True)


def test_a_ranks_cell_shows_prints_and_last_value_of_every_rank(cells: list[list[NotebookNode]]) -> None:
    assert text(cells[1]) == "[rank 0] hello from 0\n[rank 0] 5\n[rank 1] hello from 1\n[rank 1] 6\n"


def test_names_live_on_between_cells_and_one_rank_can_be_asked(cells: list[list[NotebookNode]]) -> None:
    assert text(cells[2]) == "[rank 1] 6\n"


def test_functions_and_classes_of_the_notebook_run_on_the_ranks(cells: list[list[NotebookNode]]) -> None:
    assert text(cells[3]) == "[25, 26]"


def test_an_error_shows_the_rank_and_the_learners_lines_only(cells: list[list[NotebookNode]]) -> None:
    (error,) = cells[5]
    assert "\n".join(error.traceback) == (
        "RankError: ranks 0 and 1 raised ValueError: no good: 3\n"
        "  at Cell In[5], line 2, in fails: return helper_that_fails(x)\n"
        '  at Cell In[5], line 5, in helper_that_fails: raise ValueError(f"no good: {x}")'
    )


def test_line_numbers_are_those_of_the_notebook_cell(cells: list[list[NotebookNode]]) -> None:
    (error,) = cells[6]
    assert "\n".join(error.traceback) == (
        "RankError: rank 0 raised NameError: name 'total_of_nothing' is not defined\n"
        "  at Cell In[7], line 4: dist.all_reduce(total_of_nothing)"
    )


def test_a_name_that_only_the_notebook_knows_is_explained(cells: list[list[NotebookNode]]) -> None:
    assert "`in_notebook` exists in the notebook, not on the ranks" in "\n".join(cells[8][0].traceback)


def test_a_wrong_rank_number_gets_one_sentence(cells: list[list[NotebookNode]]) -> None:
    assert cells[9][-1].evalue == (
        "%%rank needs the number of one rank and nothing else, as in `%%rank 0`, but got 'two': write code on the "
        "lines below it."
    )


def test_code_on_the_line_of_a_magic_is_refused_and_its_place_is_named_also_without_a_body(
    cells: list[list[NotebookNode]],
) -> None:
    for number in (11, 12):
        assert cells[number][-1].evalue == (
            "%%ranks takes nothing after it, but got 'rank = 5': write code on the lines below it; for one rank, begin "
            "the cell with `%%rank 0`."
        )
    assert "but got '0 print(rank)': write code on the lines below" in cells[13][-1].evalue
    assert cells[14] == []


def test_a_name_of_both_is_the_notebooks_with_one_note_and_a_rank_keeps_its_own_number(
    cells: list[list[NotebookNode]],
) -> None:
    note, result = cells[16]
    assert note.text == (
        "[all ranks] Note: the function uses the notebook's `square`, not what a `%%ranks` cell put on the ranks "
        "under the same name; rename one of the two if you meant the ranks' own.\n"
    )
    assert text([result]) == '[("the notebook\'s", 0), ("the notebook\'s", 1)]'
    assert text(cells[17]) == text([result]), "the note is repeated"


def test_the_group_draws_itself(cells: list[list[NotebookNode]]) -> None:
    assert text(cells[10]) == "<2 CPU ranks, gloo, 1 thread each: ready>"


def test_magics_without_ranks_say_how_to_start_some() -> None:
    outputs = run(notebook("%load_ext mgpu_utils", "%%ranks\n1"), allow_errors=True)
    assert "no ranks are running; start some first" in "\n".join(outputs[1][0].traceback)


def test_output_is_shown_while_a_cell_runs_and_ends_in_rank_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_LIVE", "1")
    slow = """
        %%ranks
        import time
        for i in range(3):
            time.sleep(0.4 + 0.1 * (1 - rank))
            print("step", i)
        """
    book = notebook(START, slow)
    client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(ROOT)}})
    shown: list[str] = []
    watched = client.process_message

    def note(message: dict[str, Any], cell: NotebookNode, index: int) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append(message["content"]["data"]["text/plain"])
        return watched(message, cell, index)

    client.process_message = note  # type: ignore[method-assign]
    client.execute()
    final = "".join(f"[rank {rank}] step {step}\n" for rank in range(2) for step in range(3))
    assert len(shown) >= 2
    assert shown[0] != final.strip()
    assert text(book.cells[1].outputs) == final.strip()


def test_every_notebook_runner_shows_the_same_rank_output(tmp_path: Path) -> None:
    book = notebook(START, "%%ranks\nprint('from rank', rank)", "ranks.shutdown()")
    client_output = text(run(book)[1])
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    path = tmp_path / "lesson.ipynb"
    nbformat.write(book, path)
    executed = papermill.execute_notebook(str(path), None, cwd=str(ROOT), progress_bar=False, log_output=False)
    assert text(executed.cells[1].outputs) == client_output == "[rank 0] from rank 0\n[rank 1] from rank 1\n"
    nbval = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        "-q",
        "-p",
        "no:cacheprovider",
        str(path),
    ]
    done = subprocess.run(nbval, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout
    path.write_text(path.read_text().replace("[rank 1] from rank 1", "[rank 1] from rank 7"))
    done = subprocess.run(nbval, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1, done.stdout


@pytest.fixture
def kernel() -> Iterator[tuple[KernelManager, list[int]]]:
    """A running notebook kernel with two ranks, one of them stuck, and the process numbers of the ranks."""
    manager, client = start_new_kernel(cwd=str(ROOT))
    try:
        collected: list[str] = []
        client.execute_interactive(
            START + "\nprint(*ranks.run(lambda: __import__('os').getpid()))",
            timeout=120,
            output_hook=lambda m: collected.append(m["content"].get("text", "")) if m["msg_type"] == "stream" else None,
        )
        numbers = [int(number) for number in "".join(collected).split()]
        assert len(numbers) == 2
        client.execute("ranks.execute('if rank == 0: dist.barrier()')")
        time.sleep(0.5)
        yield manager, numbers
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("end", ["restart", "shutdown", "kill"])
def test_no_rank_outlives_the_kernel_even_when_stuck(
    kernel: tuple[KernelManager, list[int]], end: str, note: Callable[[str], None]
) -> None:
    manager, numbers = kernel
    start = time.monotonic()
    if end == "restart":
        manager.restart_kernel(now=False)
    elif end == "shutdown":
        manager.shutdown_kernel(now=False)
    else:
        manager.signal_kernel(9)
    while any(map(psutil.pid_exists, numbers)):
        assert time.monotonic() - start < 30, "a rank is still there"
        time.sleep(0.05)
    note(f"kernel {end}: both ranks gone {time.monotonic() - start:.2f} s after the request")
