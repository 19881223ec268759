"""The line through measured collectives is found with honest errors, and a bend only where the data ask for one."""

from __future__ import annotations

import math
import random

import pytest

from mgpu_utils.benchmark.collective_fit import find_bend, fit

SIZES = [1024 * 4**power for power in range(9)]


def points(latency: float, bandwidth: float, noise: float = 0.0, seed: int = 0) -> list[dict[str, float]]:
    numbers = random.Random(seed)
    return [
        {"bytes": size, "seconds": (latency + size / bandwidth) * math.exp(numbers.gauss(0, noise))} for size in SIZES
    ]


@pytest.mark.parametrize(("latency", "bandwidth"), [(1e-4, 1e9), (2e-5, 2e11), (1e-3, 1e8)])
def test_a_perfect_line_is_found_and_fits(latency: float, bandwidth: float) -> None:
    line = fit(points(latency, bandwidth))
    assert line.latency == pytest.approx(latency, rel=1e-6)
    assert line.bandwidth == pytest.approx(bandwidth, rel=1e-6)
    assert line.worst_error < 1e-6
    assert line.latency_error < 1e-6 * latency
    assert line.half_bandwidth_bytes == pytest.approx(latency * bandwidth, rel=1e-6)
    assert line.latency_share(line.half_bandwidth_bytes) == pytest.approx(0.5)


def test_the_errors_of_the_parameters_are_as_large_as_the_parameters_are_wrong() -> None:
    found = [fit(points(1e-4, 1e9, noise=0.1, seed=seed)) for seed in range(100)]
    latency = [abs(line.latency - 1e-4) < 2 * line.latency_error for line in found]
    bandwidth = [abs(line.bandwidth - 1e9) < 2 * line.bandwidth_error for line in found]
    assert 80 <= sum(latency) <= 99
    assert 80 <= sum(bandwidth) <= 99


def test_a_point_off_the_line_is_named_as_the_worst_and_does_not_bend_it() -> None:
    data = points(1e-4, 1e9)
    data[3]["seconds"] *= 1.5
    line = fit(data)
    assert line.worst_bytes == SIZES[3]
    assert 0.3 < line.worst_error < 0.5
    assert line.median_error < 0.1
    assert find_bend(data) is None


def test_times_that_do_not_grow_have_no_bandwidth_and_two_points_no_error() -> None:
    flat = fit([{"bytes": size, "seconds": 1e-3} for size in SIZES])
    assert (flat.latency, flat.bandwidth) == (pytest.approx(1e-3), math.inf)
    assert flat.seconds(2**40) == pytest.approx(1e-3)
    two = fit(points(1e-4, 1e9)[3:5])
    assert two.bandwidth == pytest.approx(1e9, rel=1e-6)
    assert math.isnan(two.latency_error)
    assert math.isnan(two.bandwidth_error)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([], "two sizes"),
        ([{"bytes": 8, "seconds": 1.0}] * 2, "two sizes"),
        ([{"bytes": 8, "seconds": 1.0}, {"bytes": 16, "seconds": math.nan}], "positive number of seconds"),
        ([{"bytes": 0, "seconds": 1.0}, {"bytes": 16, "seconds": 1.0}], "positive number of bytes"),
    ],
)
def test_points_without_a_line_are_refused(bad: list[dict[str, float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(bad)


def test_a_bend_is_found_where_there_is_one_and_not_in_noise() -> None:
    bent = [{"bytes": size, "seconds": 1e-4 + min(size, 2**20) / 2e9 + max(size - 2**20, 0) / 4e8} for size in SIZES]
    bend = find_bend(bent)
    assert bend is not None
    assert bend.bytes == 2**20
    assert bend.bandwidth == pytest.approx(2e9, rel=1e-3)
    assert bend.bandwidth_beyond == pytest.approx(4e8, rel=1e-3)
    assert fit(bent).worst_error > 0.2 > bend.worst_error
    noise = [find_bend(points(1e-4, 1e9, noise=0.1, seed=seed)) for seed in range(50)]
    assert sum(found is not None for found in noise) <= 5
