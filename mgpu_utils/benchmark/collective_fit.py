"""The line through measured collectives: time = latency + bytes / bandwidth, its errors, and where it misses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A part that is below this share of the time at every point cannot be told from nothing.
_NOTHING = 1e-3
# Logarithms between which a parameter is looked for, around its first guess.
_SEARCH = math.log(1e6)
# A slope shows when it adds this share to the time that is there without it.
_SEEN = 0.1
_WORTH_A_BEND, _ENOUGH_FOR_A_BEND, _STRONGLY = 0.1, 6, 6.0


@dataclass(frozen=True)
class Fit:
    """A collective's time as a straight line.

    Attributes:
        latency: seconds that a call takes however small its message is.
        bandwidth: bytes a second of message (algorithm bandwidth) that very large messages reach; infinite where the
            times do not grow with the size.
        latency_error, bandwidth_error: their standard errors; NaN where two points leave nothing to judge by, or the
            points do not say anything about the parameter.
        median_error, worst_error: median and largest of |measured / line - 1| over the points.
        worst_bytes: the size at which the line misses most.
    """

    latency: float
    bandwidth: float
    latency_error: float
    bandwidth_error: float
    median_error: float
    worst_error: float
    worst_bytes: int

    @property
    def half_bandwidth_bytes(self) -> float:
        """Latency x bandwidth: the size at which both parts take the same time, at half of the full bandwidth."""
        return self.latency * self.bandwidth

    def seconds(self, size: float) -> float:
        """What the line says for a message of `size` bytes."""
        return self.latency + size / self.bandwidth

    def latency_share(self, size: float) -> float:
        """The part of `seconds` that is latency, 0 to 1."""
        return self.latency / self.seconds(size)


@dataclass(frozen=True)
class Bend:
    """A line with two slopes, for times that one slope does not describe.

    Attributes:
        bytes: the size at which the slope changes.
        latency: seconds that a call takes however small its message is.
        bandwidth: bytes a second up to the bend.
        bandwidth_beyond: bytes a second for what a message has beyond the bend.
        median_error, worst_error: median and largest of |measured / bent line - 1| over the points.
    """

    bytes: int
    latency: float
    bandwidth: float
    bandwidth_beyond: float
    median_error: float
    worst_error: float


def fit(points: Sequence[Mapping[str, Any]]) -> Fit:
    """Fit a line to points, each with `bytes` and `seconds`, by least squares on the logarithms of the times.

    In logarithms a miss of 10 % counts the same at 1 KiB and at 64 MiB. With plain least squares the largest messages
    alone would decide, and the latency could come out negative.

    Raises: ValueError for fewer than two different sizes, or a value that is not finite and positive.
    Source of the model: R. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994.
    """
    import numpy as np

    sizes, seconds = _arrays(points)
    (latency, per_byte), errors = _solve(_columns(sizes, None), seconds)
    if per_byte * sizes.max() < _NOTHING * latency:
        logs = np.log(seconds)
        latency, per_byte = float(np.exp(logs.mean())), 0.0
        errors = [float(logs.std(ddof=1) / math.sqrt(len(logs))), math.nan]
    elif latency < _NOTHING * per_byte * sizes.min():
        latency, errors = 0.0, [math.nan, errors[1]]
    relative = np.abs(seconds / (latency + sizes * per_byte) - 1)
    bandwidth = 1 / per_byte if per_byte else math.inf
    worst = int(relative.argmax())
    return Fit(
        latency=latency,
        bandwidth=bandwidth,
        latency_error=latency * errors[0],
        bandwidth_error=bandwidth * errors[1],
        median_error=float(np.median(relative)),
        worst_error=float(relative[worst]),
        worst_bytes=int(sizes[worst]),
    )


def find_bend(points: Sequence[Mapping[str, Any]]) -> Bend | None:
    """Return the line with the best bend at one of the sizes; None where the data do not ask for one.

    They ask for it when the straight line misses a point by more than 10 %, both slopes show, and the Bayesian
    information criterion strongly prefers the bend (by more than 6, after its two more parameters), also when any one
    point is left out: a single odd point is no bend.
    Source of that threshold: Kass and Raftery, "Bayes factors", 1995, https://doi.org/10.1080/01621459.1995.10476572.
    Raises: ValueError as `fit`.
    """
    import numpy as np

    sizes, seconds = _arrays(points)
    if len(sizes) < _ENOUGH_FOR_A_BEND or fit(points).worst_error < _WORTH_A_BEND:
        return None
    straight, _ = _criterion(sizes, seconds, None)
    candidates = [(*_criterion(sizes, seconds, size), size) for size in sorted(set(sizes.tolist()))[1:-2]]
    seen = [
        (score, weights, size)
        for score, weights, size in candidates
        if weights[1] * size > _SEEN * weights[0]
        and weights[2] * (sizes.max() - size) > _SEEN * (weights[0] + weights[1] * size)
    ]
    score, weights, size = min(seen, default=(math.inf, [], 0))
    if score > straight - _STRONGLY:
        return None
    for left_out in range(len(sizes)):
        rest = np.delete(sizes, left_out), np.delete(seconds, left_out)
        if _criterion(*rest, size)[0] > _criterion(*rest, None)[0] - _STRONGLY:
            return None
    relative = np.abs(seconds / (_columns(sizes, size) @ np.array(weights)) - 1)
    latency, below, beyond = weights
    return Bend(int(size), latency, 1 / below, 1 / beyond, float(np.median(relative)), float(relative.max()))


def _columns(sizes: Any, bend: float | None) -> Any:
    """What latency and the slope, or the slopes on both sides of a bend, are multiplied with."""
    import numpy as np

    slopes = [sizes] if bend is None else [np.minimum(sizes, bend), np.maximum(sizes - bend, 0)]
    return np.stack([np.ones_like(sizes), *slopes], axis=1)


def _criterion(sizes: Any, seconds: Any, bend: float | None) -> tuple[float, list[float]]:
    """The Bayesian information criterion of the best line (less is better), and its weights; a bend counts as one."""
    import numpy as np

    columns = _columns(sizes, bend)
    weights, _ = _solve(columns, seconds)
    squares = float((np.log(seconds / (columns @ np.array(weights))) ** 2).sum())
    parameters = len(weights) + (bend is not None)
    return len(sizes) * math.log(max(squares, 1e-12)) + parameters * math.log(len(sizes)), weights


def _arrays(points: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    import numpy as np

    sizes = np.array([float(point["bytes"]) for point in points])
    seconds = np.array([float(point["seconds"]) for point in points])
    for name, values in (("bytes", sizes), ("seconds", seconds)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"Every point needs a finite and positive number of {name}, but got {values.tolist()}.")
    if len(set(sizes.tolist())) < 2:
        raise ValueError(f"A line needs points of two sizes at least, but got {len(points)} of one size or none.")
    return sizes, seconds


def _solve(columns: Any, seconds: Any) -> tuple[list[float], list[float]]:
    """Find positive weights of the columns whose sum comes closest to ``seconds`` in logarithms.

    Returns the weights and their relative standard errors (NaN where the points say nothing about them).
    """
    import numpy as np
    from scipy.optimize import least_squares

    logs = np.log(seconds)

    def parts(parameters: Any) -> Any:
        return columns * np.exp(parameters)

    def misses(parameters: Any) -> Any:
        return np.log(parts(parameters).sum(axis=1)) - logs

    def slopes(parameters: Any) -> Any:
        each = parts(parameters)
        return each / each.sum(axis=1, keepdims=True)

    # Each column's first guess alone explains no point with more than its whole time.
    with np.errstate(divide="ignore"):
        start = np.array([np.log((seconds / column)[column > 0]).min() for column in columns.T])
    found = least_squares(misses, start, jac=slopes, bounds=(start - _SEARCH, start + _SEARCH), xtol=1e-12)
    weights = [float(value) for value in np.exp(found.x)]
    return weights, _standard_errors(slopes(found.x), float((found.fun**2).sum()))


def _standard_errors(slopes: Any, squares: float) -> list[float]:
    """The relative standard errors of the parameters, from the slopes at the best ones."""
    import numpy as np

    rows, count = slopes.shape
    square = slopes.T @ slopes
    if rows <= count or np.linalg.matrix_rank(square) < count:
        return [math.nan] * count
    variances = np.diag(np.linalg.inv(square)) * squares / (rows - count)
    return [float(math.sqrt(variance)) for variance in variances]
