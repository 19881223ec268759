"""Warm-up ends where the steps' own times say, and ranks that step together agree on it."""

from __future__ import annotations

import json
import math
import random

import pytest

from mgpu_utils.benchmark.warmup import WarmUp, WarmUpFound, agreed, find, is_steady, note, slowest, warmup_length
from mgpu_utils.ranks import RankGroup

SLOW = [1.0, 0.6, 0.4, 0.25]


def flat(count: int, noise: float = 0.0, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [0.1 * math.exp(rng.gauss(0, noise)) for _ in range(count)]


def test_a_jump_down_is_where_warm_up_ends() -> None:
    assert find([0.5] * 7 + flat(23)) == WarmUpFound(7, True)


def test_a_slow_fall_ends_when_it_is_within_a_twentieth_of_the_level() -> None:
    falling = [0.1 * (1 + 5 * math.exp(-number / 3)) for number in range(60)]
    length, steady = find(falling)
    assert steady
    assert falling[length] <= 0.105 < falling[length - 1]


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
def test_flat_steps_have_the_least_warm_up(noise: float) -> None:
    lengths = [warmup_length(flat(30, noise, seed), least=3) for seed in range(30)]
    assert sorted(lengths)[15] == 3
    assert max(lengths) <= 6


def test_noise_does_not_hide_the_end_of_the_warm_up() -> None:
    lengths = [warmup_length([*SLOW, *flat(26, 0.05, seed)]) for seed in range(30)]
    assert sorted(lengths)[15] == len(SLOW)
    assert max(lengths) <= len(SLOW) + 2


def test_a_slow_step_later_on_is_no_warm_up() -> None:
    steps = [*SLOW, *flat(26, 0.02)]
    for late in (9, 20, 29):
        steps[late] = 3.0
    assert find(steps) == WarmUpFound(len(SLOW), True)


def test_one_quick_step_within_the_warm_up_does_not_end_it() -> None:
    assert find([1.0, 1.0, 1.0, 0.1, 1.0, 1.0, 1.0, *flat(23)]).length == 7


def test_steps_that_become_slower_need_no_warm_up() -> None:
    assert find([0.1 + 0.002 * number for number in range(40)]) == WarmUpFound(2, True)


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_too_few_steps_are_not_called_steady(count: int) -> None:
    length, steady = find(flat(count))
    assert length == min(2, count)
    assert not steady
    assert "too few to tell" in str(note(WarmUpFound(length, steady), count))


@pytest.mark.parametrize("fall", [0.93, 0.8])
def test_steps_that_still_become_faster_are_said_to(fall: float) -> None:
    steps = [fall**number for number in range(20)]
    found = find(steps)
    assert not found.steady
    assert note(found, 20) == "still speeding up after 20 steps"
    assert note(WarmUpFound(2, True), 20) is None


@pytest.mark.parametrize("fast", range(2, 9))
def test_a_jump_anywhere_in_the_last_steps_is_seen(fast: int) -> None:
    assert not is_steady([0.15] * (10 - fast) + [0.1] * fast)


@pytest.mark.parametrize(("noise", "most"), [(0.03, 0.08), (0.2, 0.2)])
def test_few_of_the_flat_runs_are_called_unsteady(noise: float, most: float) -> None:
    unsteady = [not is_steady(flat(10, noise, seed)) for seed in range(400)]
    assert sum(unsteady) / len(unsteady) <= most


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_time_that_is_none_is_refused_with_its_step(value: float) -> None:
    with pytest.raises(ValueError, match=r"Step 1 took .* must be a number and not negative"):
        find([0.1, value])


def test_the_slowest_rank_sets_a_steps_time() -> None:
    assert slowest([[1.0, 0.2, 0.3], [0.5, 0.4, 0.1]]) == [1.0, 0.4, 0.3]
    with pytest.raises(ValueError, match="they took 2, 1"):
        slowest([[1.0, 0.2], [0.5]])


def run(warm_up: WarmUp, steps: list[float]) -> int:
    for number in warm_up:
        warm_up.add(steps[number])
    return len(warm_up.seconds)


def test_warming_up_goes_on_until_the_steps_are_steady() -> None:
    early, late = WarmUp(), WarmUp()
    assert run(early, flat(50)) == 10
    assert run(late, [0.5] * 7 + flat(43)) == 20
    assert early.steady
    assert late.steady
    assert json.loads(json.dumps(late.to_dict())) == {
        "warmup_steps": 20,
        "warmup_slow_steps": 7,
        "warmup_steady": True,
    }


def test_warming_up_has_a_least_and_a_most_number_of_steps() -> None:
    falling = [0.9**number for number in range(60)]
    patient = WarmUp(most=33)
    assert run(patient, falling) == 33
    assert not patient.steady
    assert run(WarmUp(least=17), flat(50)) == 20
    assert run(WarmUp(least=2, most=2), flat(50)) == 2
    assert run(WarmUp(least=0, most=0), []) == 0


def test_a_step_that_was_not_added_is_an_error_and_not_an_endless_loop() -> None:
    with pytest.raises(RuntimeError, match=r"call add\(seconds\) after each step"):
        for _ in WarmUp():
            pass


@pytest.mark.parametrize(("least", "most"), [(-1, 5), (6, 5)])
def test_impossible_numbers_of_steps_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="least must be at least 0"):
        WarmUp(least, most)


def test_without_a_process_group_a_process_decides_alone() -> None:
    assert agreed(True)
    assert not agreed(False)


def test_all_ranks_take_the_same_number_of_steps_although_one_is_steady_earlier(two_ranks: RankGroup) -> None:
    def warm_up_on_rank() -> tuple[int, bool]:
        import os

        from mgpu_utils.benchmark.warmup import WarmUp, agreed

        slow = 7 if os.environ["RANK"] == "1" else 0
        warm_up = WarmUp(agree=agreed)
        for number in warm_up:
            warm_up.add(0.5 if number < slow else 0.1)
        return len(warm_up.seconds), warm_up.steady

    assert two_ranks.run(warm_up_on_rank) == [(20, True), (20, True)]
