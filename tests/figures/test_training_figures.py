"""The figures of the training loop: what is drawn is what was measured."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pytest

from mgpu_utils.figures.training import steps_of_ranks, training_runs
from mgpu_utils.timeline import Span

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def test_runs_are_drawn_at_their_images_and_losses_with_the_reference_first() -> None:
    slow, fast = ([64, 128], [2.0, 1.0]), ([256, 512], [2.0, 0.5])
    left, right = training_runs({"same": {"big": fast, "base": slow}, "rule": {"base": slow}}, reference="base", top=3)
    assert [line.get_label() for line in left.get_lines()] == ["base", "big"]
    assert list(left.get_lines()[1].get_xdata()) == [256, 512]
    assert list(left.get_lines()[1].get_ydata()) == [2.0, 0.5]
    assert left.get_lines()[0].get_color() == right.get_lines()[0].get_color()
    assert left.get_ylim() == (0, 3)
    assert [text.get_text() for text in left.figure.legends[0].get_texts()] == ["base", "big"]
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in left.get_lines()}
    assert len(looks) == 2


def test_runs_that_lie_on_each_other_put_their_markers_at_different_points() -> None:
    run = (list(range(30)), [1.0] * 30)
    (ax,) = training_runs({"three": {"a": run, "b": run, "c": run}})
    marked = [set(range(30)[line.get_markevery()[0] :: line.get_markevery()[1]]) for line in ax.get_lines()]
    assert len(set.union(*marked)) == sum(map(len, marked))


def test_steps_stand_on_one_clock_and_on_one_scale() -> None:
    spans = [[Span("forward", 0, 10.0, 10.002)], [Span("backward", 0, 10.001, 10.005), Span("saves", 0, 10.005, 10.03)]]
    short = [[Span("forward", 0, 3.0, 3.001)]]
    first, second = steps_of_ranks({"all": spans, "one": short})
    assert [round(bar.get_x(), 6) for bar in first.patches] == [0, 1, 5]
    assert [round(bar.get_width(), 6) for bar in first.patches] == [2, 4, 25]
    assert first.get_xlim() == second.get_xlim()
    assert [label.get_text() for label in first.get_yticklabels()] == ["rank 0", "rank 1"]
    assert [text.get_text() for text in first.figure.legends[0].get_texts()] == ["forward", "backward", "saves"]
    with pytest.raises(ValueError, match="no timeline"):
        steps_of_ranks({"nothing": [[], []]})
