"""The benchmark of the benchmark says what it found, and never more than the rounds allow."""

from __future__ import annotations

from mgpu_utils.benchmark.harness import Rates, clock_resolution, lines


def rates(plain: float = 100.0, rounds: int = 9) -> Rates:
    speeds = {"ddp": 100.0, "limit": 104.0, "plain script": plain, "data_parallel": 91.0, "ddp again": 100.0}
    # The machine slows down on the way: only ratios within a round are right.
    return {name: {n: speed * (1 - 0.02 * n) for n in range(rounds)} for name, speed in speeds.items()}


def test_the_clock_is_fine_enough_to_time_a_step() -> None:
    assert 0 < clock_resolution(200) < 1e-3


def test_each_ratio_is_paired_by_round_and_compared_with_its_aim() -> None:
    said = "\n".join(lines(rates(), stand_in=True))
    assert "ddp is 1.00 x plain script (95 % interval 1.00 to 1.00): no difference seen; aim 0.98: reached" in said
    assert "ddp is 0.96 x limit (95 % interval 0.96 to 0.96): slower; aim 0.98: missed" in said
    assert "ThreadedDataParallel is 0.88 x limit" in said
    assert "aim 0.90: missed" in said
    assert "ddp again is 1.00 x ddp" in said


def test_a_suite_that_costs_something_is_called_slower() -> None:
    said = "\n".join(lines(rates(plain=110.0), stand_in=False))
    assert "ddp is 0.91 x plain script (95 % interval 0.91 to 0.91): slower; aim 0.98: missed" in said
    assert "data_parallel is 0.88 x limit" in said


def test_two_rounds_tell_nothing() -> None:
    said = "\n".join(lines(rates(rounds=2), stand_in=True))
    assert "2 rounds are too few to tell" in said
    assert "reached" not in said
    assert "missed" not in said
