"""Ratios between folders: nothing pairs the rounds, so both sides are resampled."""

from __future__ import annotations

import math

import pytest

from mgpu_utils.report.unpaired import unpaired_ratio
from mgpu_utils.timing import median_interval


def test_the_ratio_is_that_of_the_medians_inside_its_interval() -> None:
    ratio = unpaired_ratio([2.0, 2.2, 1.9, 2.1, 2.0], [1.0, 1.1, 0.9, 1.0, 1.05])
    assert ratio.median == 2.0
    assert ratio.low < 2.0 < ratio.high


def test_rounds_that_rise_and_fall_together_do_not_narrow_the_interval() -> None:
    # Paired by round this ratio is always exactly 2.
    speeds = [1.0, 3.0, 1.5, 2.5, 2.0]
    ratio = unpaired_ratio([2 * value for value in speeds], speeds)
    assert ratio.low < 1.5
    assert ratio.high > 2.7
    assert median_interval([2.0] * 5).low == 2.0


def test_the_order_of_the_rounds_does_not_matter_much_and_the_same_values_give_the_same_interval() -> None:
    over, under = [1.0, 1.2, 1.1, 0.9, 1.05], [1.0, 1.02, 0.98, 1.01, 0.99]
    assert unpaired_ratio(over, under) == unpaired_ratio(over, under)


def test_one_value_gives_no_interval() -> None:
    ratio = unpaired_ratio([2.0], [1.0, 1.1])
    assert ratio.median == pytest.approx(2 / 1.05)
    assert math.isnan(ratio.low)
    assert math.isnan(ratio.high)


@pytest.mark.parametrize("values", [[], [0.0, 1.0], [math.nan], [-1.0]])
def test_a_value_that_makes_no_ratio_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive numbers"):
        unpaired_ratio(values, [1.0, 1.1])
