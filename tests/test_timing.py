"""Timing waits for the device, throws warm-up away, and gives an interval that means something."""

from __future__ import annotations

import math

import pytest

from mgpu_utils.timing import Stopwatch, Timing, interval_words, measure, median_interval


class FakeDevice:
    """Takes work at once and does it later, as a GPU does; every step is noted."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.now = 0.0
        self.queued = 0.0

    def launch(self, seconds: float) -> None:
        self.events.append("launch")
        self.queued += seconds

    def synchronize(self, device: object) -> None:
        self.events.append("synchronize")
        self.now += self.queued
        self.queued = 0.0

    def clock(self) -> float:
        self.events.append("clock")
        return self.now


def test_the_device_is_waited_for_before_each_look_at_the_clock() -> None:
    device = FakeDevice()
    watch = Stopwatch("any", synchronize=device.synchronize, clock=device.clock).start()
    device.launch(1.5)
    watch.stop()
    assert device.events == ["synchronize", "clock", "launch", "synchronize", "clock"]


def test_seconds_hold_the_measured_work_and_not_what_was_queued_before() -> None:
    device = FakeDevice()
    device.launch(10.0)
    with Stopwatch("any", synchronize=device.synchronize, clock=device.clock) as watch:
        device.launch(1.5)
    assert watch.seconds == 1.5


def test_stopping_a_stopwatch_that_does_not_run_says_what_to_do() -> None:
    watch = Stopwatch()
    watch.start()
    watch.stop()
    with pytest.raises(RuntimeError, match=r"call start\(\) before stop\(\)"):
        watch.stop()


def test_warmup_calls_are_made_but_not_counted() -> None:
    calls: list[int] = []
    timing = measure(lambda: calls.append(1), warmup=3, repeats=4)
    assert len(calls) == 7
    assert len(timing.seconds) == 4
    assert "4 repeats after 3 warm-up" in str(timing)


@pytest.mark.parametrize(("warmup", "repeats"), [(-1, 1), (0, 0)])
def test_a_measurement_without_repeats_is_refused(warmup: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="repeats at least 1"):
        measure(lambda: None, warmup=warmup, repeats=repeats)


def test_the_interval_of_two_values_reaches_from_one_to_the_other() -> None:
    # Resampling two values gives 1, 2 or 3 as the median with chances 1/4, 1/2, 1/4, so 95 % takes all of it.
    assert median_interval([1.0, 3.0]) == (2.0, 1.0, 3.0)


def test_the_interval_is_as_wide_as_its_confidence_says() -> None:
    # Of the 27 resamples of 1, 2, 3 seven have the median 1, thirteen 2, seven 3.
    assert median_interval([1.0, 2.0, 3.0], confidence=0.95) == (2.0, 1.0, 3.0)
    assert median_interval([1.0, 2.0, 3.0], confidence=0.20) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("count", [5, 7, 9, 11])
def test_the_interval_of_a_median_covers_what_interval_words_tell(count: int) -> None:
    # The ends are two of the sorted values, and how often two of them enclose the median needs no assumption:
    # the lower one is above it when fewer than that many values are below, as with tosses of a coin.
    _, low, high = median_interval([float(number) for number in range(1, count + 1)])
    assert low + high == count + 1
    too_high = sum(math.comb(count, below) for below in range(int(low))) / 2**count
    assert 1 - 2 * too_high >= 0.93


def test_the_same_values_give_the_same_interval() -> None:
    values = [1.0, 1.1, 0.9, 1.3, 1.05, 0.7, 1.2]
    assert median_interval(values) == median_interval(values)


def test_one_slow_outlier_does_not_move_the_median() -> None:
    assert Timing((1.0, 1.0, 1.0, 1.0, 50.0), warmup=1).median == 1.0


def test_one_value_has_no_interval() -> None:
    median, low, high = median_interval([4.0])
    assert median == 4.0
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_values_without_a_median_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="value"):
        median_interval(values)


def test_few_values_have_a_range_and_no_interval() -> None:
    assert [interval_words(n) for n in (2, 4, 5, 20)] == [
        "range of 2 rounds",
        "range of 4 rounds",
        "95 % interval",
        "95 % interval",
    ]
