"""What may be said after some rounds: nothing that the interval does not hold, and no round is left out."""

from __future__ import annotations

import math
import random
import re

import pytest

from mgpu_utils.benchmark.statistics import (
    NOTHING,
    Verdict,
    judge,
    outlier_words,
    outliers,
    paired_ratio,
    rounds_from_text,
    rounds_to_text,
    verdict,
)
from mgpu_utils.timing import Interval


def noisy(rng: random.Random, speed: float, rounds: int, noise: float) -> dict[int, float]:
    return {number: speed * math.exp(rng.gauss(0, noise)) for number in range(rounds)}


def test_a_ratio_is_taken_within_a_round_and_not_between_medians() -> None:
    # The machine gets slower and slower; within each round the one is 1.5 times as fast, always.
    under = {0: 100.0, 1: 50.0, 2: 25.0, 3: 10.0, 4: 5.0}
    over = {number: 1.5 * value for number, value in under.items()}
    assert paired_ratio(over, under) == pytest.approx((1.5, 1.5, 1.5))


def test_rounds_that_only_one_of_the_two_has_are_left_out() -> None:
    assert paired_ratio({0: 10.0, 1: 500.0, 3: 30.0}, {0: 5.0, 2: 1.0, 3: 10.0}) == (2.5, 2.0, 3.0)
    assert all(math.isnan(value) for value in paired_ratio({0: 1.0}, {1: 1.0}))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_speed_that_is_none_is_refused_with_its_round(value: float) -> None:
    with pytest.raises(ValueError, match=r"Round 2 holds .*positive numbers"):
        paired_ratio({0: 1.0, 1: value}, {0: 1.0, 1: 1.0})


@pytest.mark.parametrize(
    ("interval", "rounds", "said"),
    [
        (Interval(1.2, 1.1, 1.3), 5, Verdict.FASTER),
        (Interval(0.8, 0.7, 0.9), 5, Verdict.SLOWER),
        (Interval(1.2, 0.9, 1.3), 5, Verdict.NO_DIFFERENCE),
        (Interval(1.2, 1.0, 1.3), 5, Verdict.NO_DIFFERENCE),
        (Interval(0.8, 0.7, 1.0), 5, Verdict.NO_DIFFERENCE),
        (Interval(9.0, 8.9, 9.1), 4, Verdict.TOO_FEW),
        (Interval(9.0, math.nan, math.nan), 1, Verdict.TOO_FEW),
        (NOTHING, 0, Verdict.NOT_MEASURED),
    ],
)
def test_faster_and_slower_need_five_rounds_and_an_interval_without_one(
    interval: Interval, rounds: int, said: Verdict
) -> None:
    assert judge(interval, rounds) is said


def test_words_hold_the_ratio_the_interval_and_the_verdict() -> None:
    assert verdict(Interval(1.8, 1.71, 1.86), 9, "single") == "1.80 x single (95 % interval 1.71 to 1.86): faster"
    assert verdict(Interval(1.02, 0.97, 1.06), 9, "single").endswith("(95 % interval 0.97 to 1.06): no difference seen")
    assert verdict(Interval(1.8, 1.7, 1.9), 3, "single") == (
        "1.80 x single (range of 3 rounds 1.70 to 1.90): 3 rounds are too few to tell"
    )
    assert verdict(Interval(1.8, math.nan, math.nan), 1, "single") == "1.80 x single: 1 round is too few to tell"
    assert verdict(NOTHING, 0, "single") == "not measured beside single"


def test_an_end_close_to_one_is_shown_with_the_digits_that_tell_its_side() -> None:
    assert (
        verdict(Interval(1.01, 1.0004, 1.02), 9, "single") == "1.01 x single (95 % interval 1.0004 to 1.0200): faster"
    )
    assert "0.9998 to 1.0200): no difference" in verdict(Interval(1.01, 0.9998, 1.02), 9, "single")


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_two_equal_things_are_seldom_called_different(noise: float) -> None:
    rng = random.Random(11)
    comparisons, rounds = 120, 7
    different = 0
    for _ in range(comparisons):
        interval = paired_ratio(noisy(rng, 100.0, rounds, noise), noisy(rng, 100.0, rounds, noise))
        said = verdict(interval, rounds, "the other")
        different += bool(re.search("faster|slower", said))
        # What is said and what the interval holds may never contradict each other.
        assert bool(re.search("faster|slower", said)) == (not interval.low <= 1 <= interval.high)
    assert different / comparisons <= 0.05


def test_a_real_difference_well_above_the_noise_is_seen() -> None:
    rng = random.Random(3)
    for _ in range(20):
        interval = paired_ratio(noisy(rng, 110.0, 7, 0.01), noisy(rng, 100.0, 7, 0.01))
        assert judge(interval, 7) is Verdict.FASTER


def test_a_slow_and_a_fast_round_are_outliers_and_the_others_are_not() -> None:
    assert outliers([100.0, 101.0, 99.0, 48.0, 100.5, 102.0, 180.0]) == [3, 6]
    assert outliers([100.0, 100.0, 100.0, 100.0, 50.0]) == [4]


def test_rounds_that_agree_closely_make_no_outlier_of_one_that_differs_by_little() -> None:
    assert outliers([100.0, 100.0, 100.1, 99.9, 103.0]) == []


def test_wide_noise_makes_no_outlier() -> None:
    assert outliers([60.0, 80.0, 100.0, 120.0, 140.0]) == []


@pytest.mark.parametrize("values", [[], [1.0], [100.0, 100.0, 100.0, 1.0]])
def test_fewer_than_five_rounds_have_no_outlier(values: list[float]) -> None:
    assert outliers(values) == []


def test_an_outlier_round_is_named_with_its_distance() -> None:
    values = {0: 100.0, 2: 50.0, 3: 101.0, 4: 99.0, 5: 100.0, 6: 200.0}
    assert outlier_words(values, "DDP on 2") == [
        "round 3 of DDP on 2: 2.0x slower than the median",
        "round 7 of DDP on 2: 2.0x faster than the median",
    ]


def test_rounds_survive_the_way_through_a_cell_of_a_table() -> None:
    values = {0: 29683.3, 1: 1.5, 12: 939.975}
    assert rounds_from_text(rounds_to_text(values)) == values
    assert rounds_to_text({1: 1.5}) == '{"2": 1.5}'
    assert rounds_from_text(math.nan) == {}
