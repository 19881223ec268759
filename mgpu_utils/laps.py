"""Time the parts of one step: each part alone, with every device waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, ParamSpec, TypeVar

import torch

from mgpu_utils.timing import Stopwatch, synchronize

P = ParamSpec("P")
R = TypeVar("R")


class Laps:
    """Seconds of each part of a step, in the order in which the parts first ran.

    Args:
        devices: all of them are waited for before each look at the clock, so that no part is charged for
            another one's work. The parts add up to more than an undisturbed step takes, in which they overlap.
    """

    def __init__(self, devices: Sequence[torch.device | str]) -> None:
        self.devices = tuple(devices)
        self.seconds: dict[str, list[float]] = {}

    def lap(self, part: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function`, note its seconds under `part`, and return what it returned."""
        watch = Stopwatch(self.devices, synchronize=self._wait).start()  # type: ignore[arg-type]
        result = function(*args, **kwargs)
        self.seconds.setdefault(part, []).append(watch.stop())
        return result

    def medians(self, step: Callable[..., object], *args: Any, warmup: int = 3, repeats: int = 15) -> dict[str, float]:
        """Median seconds of each part of `step(*args)`, which calls `lap`; warm-up steps do not count.

        Raises: ValueError for a negative warm-up or fewer than one repeat.
        """
        if warmup < 0 or repeats < 1:
            raise ValueError(f"warmup must be at least 0 and repeats at least 1, not {warmup} and {repeats}.")
        for number in range(warmup + repeats):
            if number in (0, warmup):
                self.seconds.clear()
            step(*args)
        return {part: median(values) for part, values in self.seconds.items()}

    @staticmethod
    def _wait(devices: Sequence[torch.device | str]) -> None:
        for device in devices:
            synchronize(device)
