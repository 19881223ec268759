"""The pictures of lessons 01 and 02 show the numbers they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_timeline import TWO

from mgpu_utils import plots


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    import matplotlib as mpl

    mpl.use("agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def words(ax: Any) -> str:
    return " ".join(text.get_text() for text in ax.texts)


def test_visible_devices_are_numbered_anew_and_the_others_are_marked_hidden() -> None:
    ax = plots.visible_devices([3, 1], 4, "title")
    assert "cuda:0" in words(ax)
    assert "cuda:1" in words(ax)
    assert "cuda:2" not in words(ax)
    assert words(ax).count("hidden") == 2
    assert [arrow.xy[0] for arrow in ax.texts if hasattr(arrow, "arrow_patch")] == [3, 1]
    assert "no device at all" in words(plots.visible_devices([], 2, "title"))
    with pytest.raises(ValueError, match="none of the 2"):
        plots.visible_devices([2], 2, "title")


def test_counted_and_usable_stand_at_their_numbers() -> None:
    ax = plots.counted_and_usable({"one": (4, 2, 1, "why"), "two": (2, 0, 0, "because")}, "title")
    points = [tuple(collection.get_offsets()[0]) for collection in ax.collections]
    assert points == [(4, 0), (2, 0), (1, 0), (2, -1), (0, -1), (0, -1)]
    assert "because" in words(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["in the machine", "counted", "usable together"]


def test_work_of_ranks_draws_the_ideal_and_a_line_for_each_row() -> None:
    ax = plots.work_of_ranks({"two cores": {1: 1.0, 2: 1.9, 3: 2.0}, "one core": {1: 1.0, 2: 1.0, 3: 0.9}}, "title")
    assert [list(line.get_ydata()) for line in ax.lines] == [[1, 3], [1.0, 1.9, 2.0], [1.0, 1.0, 0.9]]


def test_bytes_per_rank_adds_parts_up_beside_the_whole_model() -> None:
    rows = {"DDP": [{"parameters": 4000, "gradients": 4000}] * 2, "split": [{"parameters": 1000, "gradients": 500}]}
    ax = plots.bytes_per_rank(rows, 4000, "title")
    assert [text.get_text().strip() for text in ax.texts] == ["8.0", "8.0", "1.5"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DDP, rank 0", "DDP, rank 1", "split, rank 0"]
    assert list(ax.lines[0].get_xdata()) == [4.0, 4.0]


def test_a_timeline_has_a_row_a_rank_and_says_how_much_is_idle() -> None:
    ax = plots.stage_timeline(TWO, "title")
    spans = [bar for bar in ax.patches if bar.get_hatch() or bar.get_facecolor()[:3] != (1.0, 1.0, 1.0)]
    assert [(bar.get_y() + 0.35, bar.get_x(), bar.get_width()) for bar in spans] == [
        (pytest.approx(row, abs=1e-9), pytest.approx(1e3 * start), pytest.approx(1e3 * length))
        for row, start, length in ((0, 0, 1), (0, 4, 2), (-1, 1, 1), (-1, 2, 2))
    ]
    assert ax.get_legend().get_title().get_text() == "idle: 50%"


def test_the_bubble_is_drawn_beside_its_prediction() -> None:
    ax = plots.bubble({1: [0.5, 0.52], 4: [0.2, 0.25]}, 2, "title")
    assert list(ax.lines[0].get_ydata()) == pytest.approx([50, 100 / 3, 25, 20])
    medians = [collection.get_offsets()[0][1] for collection in ax.collections if len(collection.get_offsets()) == 1]
    assert medians == pytest.approx([51, 22.5])
