"""The pictures of the lessons show the values they are given."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.patches import FancyBboxPatch, Rectangle

from mgpu_utils import plots

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def test_map_has_ten_steps_and_marks_those_in_which_devices_talk() -> None:
    ax = plots.ten_steps()
    boxes = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    thick = [number for number, box in enumerate(boxes, start=1) if box.get_linewidth() > 2]
    assert len(boxes) == 10
    assert thick == [2, 4, 5, 6, 9]


def test_values_before_and_after_are_bars_with_their_numbers() -> None:
    ax = plots.values_on_ranks([1.0, 2.0], [3.0, 3.0])
    heights = [bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle)]
    assert heights == [1.0, 2.0, 3.0, 3.0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["rank 0", "rank 1"]
    assert ax.get_ylabel()
    with pytest.raises(ValueError, match="2 values before, but 3 after"):
        plots.values_on_ranks([1, 2], [3, 3, 3])


def test_each_sample_is_drawn_once_in_the_batch_and_once_at_its_replica() -> None:
    images = torch.rand(10, 1, 8, 8)
    ax = plots.scattered_samples(images, [3, 3, 3, 1])
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == ["batch", "replica 0", "replica 1", "replica 2", "replica 3"]
    places = [(round(e[0] + 0.45), round(-(e[2] + 0.45) / 1.15)) for e in (i.get_extent() for i in ax.images)]
    owner = [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert sorted(places) == sorted([(n, 0) for n in range(10)] + list(enumerate(owner)))
    with pytest.raises(ValueError, match="hold 9 samples, but the batch holds 10"):
        plots.scattered_samples(images, [3, 3, 3])


def test_parts_of_a_step_are_stacked_in_milliseconds() -> None:
    bars = {"one device": {"forward": 0.003, "backward": 0.005}, "wrapped": {"replicate": 0.001, "forward": 0.002}}
    ax = plots.step_cost(bars, "a title")
    widths = [round(bar.get_width(), 6) for bar in ax.patches if isinstance(bar, Rectangle)]
    lefts = [round(bar.get_x(), 6) for bar in ax.patches if isinstance(bar, Rectangle)]
    assert widths == [3, 5, 1, 2]
    assert lefts == [0, 3, 0, 1]
    assert {text.get_text().strip() for text in ax.texts} == {"8 ms", "3 ms"}
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["replicate", "forward", "backward"]
    assert "milliseconds" in ax.get_xlabel()
    assert ax.get_title(loc="left") == "a title"


def test_drawing_leaves_settings_as_they_were_but_keeps_a_backend_interactive() -> None:
    before = plt.rcParams["axes.spines.top"]
    plt.ioff()
    with plots.styled():
        # What a notebook's backend does when the first figure is made.
        plt.ion()
    try:
        assert plt.isinteractive()
        assert plt.rcParams["axes.spines.top"] == before
    finally:
        plt.ioff()
