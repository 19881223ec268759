"""Every figure of the course: one function each, returning the matplotlib Axes it drew on."""

from __future__ import annotations

from mgpu_utils.figure_style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    STRATEGY_COLORS,
    STRATEGY_LABELS,
    STYLE,
    VERMILION,
    YELLOW,
    new_figure,
    styled,
)
from mgpu_utils.lesson_figures import scattered_samples, step_cost, ten_steps, values_on_ranks
from mgpu_utils.throughput_figure import throughput

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "SKY",
    "STRATEGY_COLORS",
    "STRATEGY_LABELS",
    "STYLE",
    "VERMILION",
    "YELLOW",
    "new_figure",
    "scattered_samples",
    "step_cost",
    "styled",
    "ten_steps",
    "throughput",
    "values_on_ranks",
]
