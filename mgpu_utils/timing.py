"""Time work on any device honestly: wait for the device, throw warm-up away, repeat, and show the spread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Interval(NamedTuple):
    """A median with the ends of its confidence interval; the ends are NaN when one value gives no interval."""

    median: float
    low: float
    high: float


def synchronize(device: torch.device | str | None) -> None:
    """Wait until ``device`` has finished all work given to it; nothing to wait for on a CPU.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.accelerator.synchronize.html
    """
    import torch

    device = torch.device(device or "cpu")
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


class Stopwatch:
    """Seconds between `start` and `stop`, each read only after the device has finished what it was given.

    Without the wait a GPU is timed handing out work, not doing it. ``synchronize`` and ``clock`` can be
    replaced for a device of another kind.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        *,
        synchronize: Callable[[Any], None] = synchronize,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.device = device
        self.seconds = 0.0
        self._synchronize = synchronize
        self._clock = clock
        self._started: float | None = None

    def start(self) -> Stopwatch:
        """Wait for the device, then start counting."""
        self._synchronize(self.device)
        self._started = self._clock()
        return self

    def stop(self) -> float:
        """Wait for the device, then return the seconds since `start`. Raises: RuntimeError when not started."""
        if self._started is None:
            raise RuntimeError("The stopwatch was not started: call start() before stop().")
        self._synchronize(self.device)
        self.seconds = self._clock() - self._started
        self._started = None
        return self.seconds

    def __enter__(self) -> Stopwatch:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


@dataclass(frozen=True)
class Timing:
    """Seconds of each measured repeat, and how many warm-up repeats were thrown away before."""

    seconds: tuple[float, ...]
    warmup: int

    @property
    def median(self) -> float:
        """Median seconds of one repeat."""
        return self.interval.median

    @property
    def interval(self) -> Interval:
        """Median seconds with its 95 % interval."""
        return median_interval(self.seconds)

    def __str__(self) -> str:
        median, low, high = self.interval
        spread = "" if math.isnan(low) else f" (95 % interval {low * 1e3:.3g} to {high * 1e3:.3g} ms)"
        return f"median {median * 1e3:.3g} ms{spread}, {len(self.seconds)} repeats after {self.warmup} warm-up"


def measure(
    fn: Callable[[], object],
    *,
    warmup: int = 3,
    repeats: int = 10,
    device: torch.device | str | None = None,
) -> Timing:
    """Call ``fn`` ``warmup`` times unmeasured, then ``repeats`` times measured, waiting for ``device`` each time.

    Raises: ValueError for a negative warm-up or fewer than one repeat.
    """
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be at least 0 and repeats at least 1, not {warmup} and {repeats}.")
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        watch = Stopwatch(device).start()
        fn()
        seconds.append(watch.stop())
    return Timing(tuple(seconds), warmup)


def median_interval(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Interval:
    """Return the median of ``values`` and its bootstrap interval (expanded percentile, 5,000 resamples, seeded).

    The plain percentile interval of a median is too narrow for few values: measured, a "95 %" one holds the
    true median of 7 values in 88 % of cases. It is widened for the number of values as Hesterberg
    proposes ("expanded percentile"); what it then really covers stands at `interval_words`.

    One value has no interval: its ends are NaN. Raises: ValueError for no values, or a value that is not
    finite. Sources: https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.bootstrap.html and
    https://doi.org/10.1080/00031305.2015.1089789
    """
    import numpy as np
    from scipy.stats import bootstrap

    data = np.asarray(values, dtype=float)
    if data.size == 0:
        raise ValueError("There is no value to take a median of.")
    if not np.isfinite(data).all():
        raise ValueError(f"Every value must be a finite number, but got {list(values)}.")
    median = float(np.median(data))
    if data.size == 1:
        return Interval(median, math.nan, math.nan)
    ends = bootstrap(
        (data,),
        np.median,
        confidence_level=expanded(confidence, data.size),
        n_resamples=5000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(median, float(ends.low), float(ends.high))


def expanded(confidence: float, values: int) -> float:
    """The confidence to ask the bootstrap for, so that an interval of so many values really has ``confidence``."""
    from scipy.stats import norm, t

    quantile = t.ppf((1 + confidence) / 2, values - 1) * math.sqrt(values / (values - 1))
    return min(2 * float(norm.cdf(quantile)) - 1, 1 - 1e-9)


ENOUGH_FOR_AN_INTERVAL = 5


def interval_words(values: int) -> str:
    """What the ends beside a median of so many values are called: with fewer than 5 they are no 95 % interval.

    Real coverage of `median_interval` (independent values, normal or skewed, 2,000 simulated benchmarks for
    each count): 94 % with 5 values, 97 % with 6, 98 % with 7 and 8, 96 % with 9 and 10. With 5 values
    no method gives more without leaving the range of the values: both ends lie on one side of the true
    median in 2 of 2**5 cases. Values that hang together (a machine busy for several rounds) are covered less.
    """
    return "95 % interval" if values >= ENOUGH_FOR_AN_INTERVAL else f"range of {values} rounds"
