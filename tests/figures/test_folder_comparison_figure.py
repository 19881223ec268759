"""The figure that sets folders beside each other."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import pytest

from mgpu_utils.figures.folder_comparison import Ratio, folder_ratios


def test_what_differs_is_hollow_and_named_in_the_legend() -> None:
    ax = folder_ratios(
        [Ratio("DDP", "new", 1.1, 1.0, 1.2, False), Ratio("DDP", "gpu", 1.3, 1.2, 1.4, True)], than="old"
    )
    same, other = (container.lines[0] for container in ax.containers)
    assert same.get_markerfacecolor() != "white"
    assert other.get_markerfacecolor() == "white"
    legend = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert legend == ["new", "gpu (different environment or set-up)"]
    assert "old" in ax.get_xlabel()
    plt.close("all")


def test_ratios_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    near = [Ratio("a", "new", 1.1, math.nan, math.nan, False), Ratio("b", "new", 0.9, 0.8, 1.0, False)]
    assert folder_ratios(near, than="old").get_xscale() == "linear"
    assert folder_ratios([*near, Ratio("c", "new", 30.0, 28.0, 33.0, False)], than="old").get_xscale() == "log"
    plt.close("all")


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="no ratio"):
        folder_ratios([], than="old")
