"""The ratio of two medians whose rounds are not paired: both sides are resampled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mgpu_utils.timing import Interval

_RESAMPLES = 5000


def unpaired_ratio(over: Sequence[float], under: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Interval:
    """Return ``median(over) / median(under)`` with its bootstrap interval (percentile method, seeded).

    Rounds of two folders were not measured beside each other, so nothing pairs them: each side is resampled by
    itself. Other than for one median, the plain percentile interval is wide enough: simulated with 5 to 15 values
    on each side, normal or skewed, it leaves 1 out in 3 to 4 % of cases when both sides are equal. What differs
    between two sessions (temperature, other work) is in no such interval. With one value on a side the ends are NaN.

    Raises: ValueError for no values or one that is not a positive number.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 8 (two-sample problems).
    """
    import numpy as np

    sides = [np.asarray(values, dtype=float) for values in (over, under)]
    for side in sides:
        if side.size == 0 or not (np.isfinite(side) & (side > 0)).all():
            raise ValueError(f"A ratio needs positive numbers on both sides, but got {side.tolist()}.")
    ratio = float(np.median(sides[0]) / np.median(sides[1]))
    if min(side.size for side in sides) < 2:
        return Interval(ratio, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    medians = [np.median(side[rng.integers(0, side.size, (_RESAMPLES, side.size))], axis=1) for side in sides]
    outside = (1 - confidence) / 2
    low, high = np.quantile(medians[0] / medians[1], [outside, 1 - outside])
    return Interval(ratio, float(low), float(high))
