"""What may be concluded from repeated rounds: ratios paired by round, a verdict in words, and outlier rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from statistics import median as middle

from mgpu_utils.timing import ENOUGH_FOR_AN_INTERVAL, Interval, interval_words, median_interval

NOTHING = Interval(math.nan, math.nan, math.nan)

# Iglewicz and Hoaglin's rule for the modified z-score, and what a round must differ by to be worth a word.
_OUTLYING_SCORE = 3.5
_WORTH_A_WORD = 1.1
_MAD_TO_SIGMA = 0.6745


class Verdict(Enum):
    """What a ratio of speeds allows to say."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference seen"
    TOO_FEW = "too few rounds to tell"
    NOT_MEASURED = "not measured"


def paired_ratio(over: Mapping[int, float], under: Mapping[int, float]) -> Interval:
    """Return median and interval of ``over / under``, each ratio taken within one round.

    ``over`` and ``under`` hold one value a round; rounds that only one of them has are left out. All NaN
    where no round is in both. Raises: ValueError for a value that is not a positive number, naming its round.
    """
    ratios = []
    for number in sorted(over.keys() & under.keys()):
        for value in (over[number], under[number]):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"Round {number + 1} holds {value}, but a ratio needs positive numbers.")
        ratios.append(over[number] / under[number])
    return median_interval(ratios) if ratios else NOTHING


def judge(interval: Interval, rounds: int) -> Verdict:
    """Return what the interval of a ratio of speeds (more than 1 is faster) allows to say after ``rounds`` rounds.

    `FASTER` and `SLOWER` need at least 5 rounds and an interval without 1. Of two equal things, this calls one
    faster or slower in 6 % of comparisons with 5 rounds, 3 % with 6, 2 % with 7 and 8, 4 % with 9 and 10 (see
    `mgpu_utils.timing.interval_words`).
    """
    if math.isnan(interval.median):
        return Verdict.NOT_MEASURED
    if rounds < ENOUGH_FOR_AN_INTERVAL or math.isnan(interval.low) or math.isnan(interval.high):
        return Verdict.TOO_FEW
    if interval.low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if interval.high < 1 else Verdict.NO_DIFFERENCE


def verdict(interval: Interval, rounds: int, than: str) -> str:
    """Return the ratio to ``than`` with its interval and what it allows to say.

    For example "1.80 x single (95 % interval 1.71 to 1.86): faster".
    """
    said = judge(interval, rounds)
    if said is Verdict.NOT_MEASURED:
        return f"not measured beside {than}"
    text = f"{interval.median:.2f} x {than}"
    if not math.isnan(interval.low):
        text += f" ({interval_words(rounds)} {_ends(interval)})"
    if said is Verdict.TOO_FEW:
        return f"{text}: {rounds} round{' is' if rounds == 1 else 's are'} too few to tell"
    return f"{text}: {said.value}"


def outliers(values: Sequence[float]) -> list[int]:
    """Return the positions of values that lie far from the rest; they are for showing, never for leaving out.

    A value counts when its modified z-score (distance from the median over the median absolute deviation) is
    above 3.5, and when it differs from the median by a factor of 1.1 or more: few rounds that happen to agree
    would make outliers of harmless ones. Fewer than 5 values have none.

    Measured on 5 to 10 values without any outlier: one is seen in 1 % of cases where the noise is 3 %, in 20 %
    where it is 30 %. Source: Iglewicz and Hoaglin, How to detect and handle outliers (1993), as in
    https://www.itl.nist.gov/div898/handbook/eda/section3/eda35h.htm
    """
    if len(values) < ENOUGH_FOR_AN_INTERVAL:
        return []
    center = middle(values)
    deviation = middle(abs(value - center) for value in values)
    return [
        at
        for at, value in enumerate(values)
        if _factor(value, center) >= _WORTH_A_WORD and _MAD_TO_SIGMA * abs(value - center) > _OUTLYING_SCORE * deviation
    ]


def outlier_words(values: Mapping[int, float], of: str) -> list[str]:
    """Return one phrase for each outlier among speeds by round: "round 3 of DDP: 2.1x slower than the median"."""
    numbers = sorted(values)
    center = middle(values.values()) if values else math.nan
    return [
        f"round {numbers[at] + 1} of {of}: {_factor(values[numbers[at]], center):.1f}x "
        f"{'slower' if values[numbers[at]] < center else 'faster'} than the median"
        for at in outliers([values[number] for number in numbers])
    ]


def rounds_to_text(values: Mapping[int, float]) -> str:
    """Return values by round as a table's cell holds them: JSON, with rounds counted from 1 and 6 digits."""
    return json.dumps({str(number + 1): float(f"{values[number]:.6g}") for number in sorted(values)})


def rounds_from_text(text: object) -> dict[int, float]:
    """Return what `rounds_to_text` wrote; nothing for an empty cell."""
    return {int(number) - 1: value for number, value in json.loads(text).items()} if isinstance(text, str) else {}


def _factor(value: float, center: float) -> float:
    """How many times one is of the other, whichever is larger."""
    low, high = sorted((abs(value), abs(center)))
    return high / low if low else math.inf


def _ends(interval: Interval) -> str:
    """The ends with the fewest digits that do not hide on which side of 1 an end lies."""
    for digits in (2, 3, 4, 5):
        shown = [f"{end:.{digits}f}" for end in (interval.low, interval.high)]
        if all(
            (float(text) > 1) == (end > 1) and (float(text) < 1) == (end < 1)
            for text, end in zip(shown, interval[1:], strict=True)
        ):
            break
    return " to ".join(shown)
