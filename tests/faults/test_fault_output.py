"""Output and values that are too much, or not what a notebook can show, end in something it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from fault_cases import filled
from other_faults import VALUES, Value

import mgpu_utils as mgpu
from mgpu_utils.ranks import RankGroup

MIB = 1 << 20
Left = Callable[[RankGroup], Callable[[], list[str]]]
Again = Callable[[str, RankGroup, float, Callable[[], list[str]]], None]


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """[bytes that this process needed at most beyond what it had at the start]."""
    process, ended, peak = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def watch() -> None:
        while not ended.wait(0.02):
            peak[0] = max(peak[0], process.memory_info().rss - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    ("code", "size"),
    [
        ("print('x' * 200_000_000)", 200_000_000),
        ("for part in range(200):\n    print('x' * 1_000_000)", 200_000_000),
        ("import sys\nfor part in range(200_000):\n    sys.stdout.write('y' * 99 + '\\n')", 20_000_000),
        ("import os\nfor part in range(2000):\n    os.write(1, b'z' * 9_999 + b'\\n')", 20_000_000),
    ],
    ids=["one line", "long lines", "short lines", "C code"],
)
def test_a_flood_of_output_keeps_head_and_tail_and_says_how_much_was_cut(
    code: str,
    size: int,
    groups: Callable[[int], RankGroup],
    left_behind: Left,
    works_again: Again,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = groups(2)
    look, began = left_behind(group), time.monotonic()
    with peak_memory() as peak:
        results = group.execute(f"print('the head', flush=True)\n{code}\nprint('the tail')")
    assert peak[0] < 60 * MIB
    for result in results:
        assert result.text.startswith("the head\n")
        assert "the tail" in result.text
        (cut,) = [line for line in result.text.splitlines() if "characters not shown" in line]
        shown = len(result.text) - len(cut)
        assert shown < 100_000
        # Line ends of what was cut are counted as well.
        assert abs(int(cut.split()[1].replace(",", "")) + shown - size) < 300
    assert len(capsys.readouterr().out) < 400_000
    works_again("200 MB of printed output in one cell", group, began, look)


def test_a_result_of_500_mb_arrives(groups: Callable[[int], RankGroup], left_behind: Left, works_again: Again) -> None:
    group = groups(2)
    look, began = left_behind(group), time.monotonic()

    def large() -> bytes:
        return bytes(500_000_000) if rank == 0 else b""  # type: ignore[name-defined] # noqa: F821

    assert [len(result) for result in group.run(large)] == [500_000_000, 0]
    works_again("a result of 500 MB", group, began, look)


def test_bytes_that_are_no_text_are_shown_as_such(
    groups: Callable[[int], RankGroup], left_behind: Left, works_again: Again, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import os\n_ = os.write(1, bytes(range(256)) + b'\\xff\\xfe end\\n')\nprint('\\x00\\x1b[31mred\\udc80')"
    group = groups(2)
    look, began = left_behind(group), time.monotonic()
    results = group.execute(code)
    for result in results:
        assert "\ufffd\ufffd end" in result.text
        assert "\x1b[31mred" in result.text
    assert capsys.readouterr().out.count(" end") == 1  # the same on all ranks
    works_again("bytes that are no text", group, began, look)


def test_a_letter_that_arrives_in_two_parts_is_one_letter(groups: Callable[[int], RankGroup]) -> None:
    code = "import os, time\n_ = os.write(1, b'gr\\xc3')\ntime.sleep(0.3)\n_ = os.write(1, b'\\xbcn\\n')"
    assert [result.text for result in groups(2).execute(code)] == ["grün"] * 2


def test_progress_bars_of_all_ranks_leave_their_last_state(
    groups: Callable[[int], RankGroup], left_behind: Left, works_again: Again, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import tqdm, time\nfor i in tqdm.tqdm(range(50), desc=f'rank {rank}', ncols=60):\n    time.sleep(0.002)"
    group = groups(3)
    look, began = left_behind(group), time.monotonic()
    group.execute(code)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"[rank {r}] rank {r}" for r in range(3)]
    assert all("100%" in line for line in lines)
    works_again("progress bars of all ranks", group, began, look)


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_warning_of_all_ranks_is_shown_once(
    world_size: int,
    groups: Callable[[int], RankGroup],
    left_behind: Left,
    works_again: Again,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = groups(world_size)
    look, began = left_behind(group), time.monotonic()
    group.execute("import warnings\nwarnings.warn('will go away', stacklevel=1)\nprint('own', rank)")
    out = capsys.readouterr().out
    assert out.count("UserWarning: will go away") == 1
    assert out.startswith("[all ranks] ")
    assert [line for line in out.splitlines() if "own" in line] == [f"[rank {r}] own {r}" for r in range(world_size)]
    works_again("the same warning on all ranks", group, began, look)


def test_more_figures_than_a_notebook_can_hold_are_counted(
    groups: Callable[[int], RankGroup], left_behind: Left, works_again: Again, capsys: pytest.CaptureFixture[str]
) -> None:
    group = groups(2)
    look, began = left_behind(group), time.monotonic()
    group.execute("from IPython.display import HTML, display\nfor i in range(150):\n    display(HTML('<b>x</b>'))")
    assert "... 100 figures and tables more are not shown ..." in capsys.readouterr().out
    works_again("thousands of figures in one cell", group, began, look)


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_what_cannot_travel_is_named_and_the_group_goes_on(
    value: Value, world_size: int, groups: Callable[[int], RankGroup], left_behind: Left, works_again: Again
) -> None:
    group = groups(world_size)
    look, began = left_behind(group), time.monotonic()
    with pytest.raises({"TypeError": TypeError, "RankError": mgpu.RankError}[value.error]) as caught:
        value.call(group)
    assert str(caught.value).startswith(filled(value.sees, world_size))
    assert "docs/troubleshooting.md" in str(caught.value)
    assert not group.needs_restart
    works_again(value.name, group, began, look)
