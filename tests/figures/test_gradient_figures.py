"""The pictures of the loss and the gradients show the values they are given."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import Rectangle

from mgpu_utils import plots
from mgpu_utils.backward_timeline import BackwardTimeline

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def test_traffic_says_nothing_where_there_is_none() -> None:
    ax = plots.traffic_by_phase({"forward": 0, "backward": 40104}, "a title")
    assert [bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)] == [0, 40104]
    assert [text.get_text().strip() for text in ax.texts] == ["nothing", "40,104"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["forward", "backward"]
    assert "bytes" in ax.get_xlabel()


def test_sample_weights_are_bars_by_rank_beside_the_equal_share() -> None:
    ax = plots.sample_weights([[0.1] * 3, [0.7]], "a title")
    bars = [bar for bar in ax.patches if isinstance(bar, Rectangle)]
    assert [bar.get_height() for bar in bars] == [0.1, 0.1, 0.1, 0.7]
    assert bars[0].get_hatch() != bars[3].get_hatch()
    assert set(ax.lines[0].get_ydata()) == {1 / 4}
    legend = ax.get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    assert "3 samples on rank 0" in shown
    assert "1 sample on rank 1" in shown
    with pytest.raises(ValueError, match="no sample"):
        plots.sample_weights([[], []], "a title")


def test_loss_curves_have_a_dash_pattern_each() -> None:
    ax = plots.loss_curves({"one": [3, 2, 1], "two": [3, 2.5, 2]}, "a title")
    assert [list(line.get_xdata()) for line in ax.lines] == [[1, 2, 3]] * 2
    assert list(ax.lines[1].get_ydata()) == [3, 2.5, 2]
    assert ax.lines[0].get_linestyle() != ax.lines[1].get_linestyle()


def test_gradients_of_ranks_stand_beside_the_baseline() -> None:
    ax = plots.gradients_on_ranks([[1, 2], [3, 6]], [2, 4], "a title")
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert drawn["rank 0, its own shard"] == [1, 2]
    assert drawn["rank 1, its own shard"] == [3, 6]
    assert drawn["one device, whole batch"] == [2, 4]
    markers = {
        line.get_marker() for line in ax.lines if line.get_label() in drawn and not line.get_label().startswith("_")
    }
    assert len(markers) == 3
    with pytest.raises(ValueError, match="as many numbers"):
        plots.gradients_on_ranks([[1, 2], [3]], [2, 4], "a title")


def test_timelines_draw_each_span_in_milliseconds_and_the_end() -> None:
    line = BackwardTimeline(((0.0, 0.002),), ((0.001, 0.004), (0.004, 0.005)), 0.006)
    ax = plots.backward_timelines({"by hand": [line, line], "DDP": [line, line]}, "a title")
    lengths = sorted(
        round(max(path.vertices[:, 0]) - min(path.vertices[:, 0]), 6)
        for collection in ax.collections
        for path in collection.get_paths()
    )
    assert lengths == [1] * 4 + [2] * 4 + [3] * 4
    assert [set(mark.get_xdata()) for mark in ax.lines] == [{6.0}] * 4
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1"] * 2
    assert {text.get_text() for text in ax.texts} == {"by hand", "DDP"}
    assert "milliseconds" in ax.get_xlabel()


def test_bytes_against_error_names_each_point_and_keeps_an_exact_one_on_the_axis() -> None:
    ax = plots.bytes_against_error({"float32": (4000, 0.0), "float16": (2000, 5e-4)}, "a title")
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines] == [(4000, 6e-8), (2000, 5e-4)]
    assert [text.get_text().strip() for text in ax.texts] == ["float32", "float16"]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.lines[0].get_marker() != ax.lines[1].get_marker()
