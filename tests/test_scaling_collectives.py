"""The model of an all-reduce: what it must give where one of its parts is all there is."""

from __future__ import annotations

import math

import pytest

from mgpu_utils.scaling.collective_model import (
    TREE_SHARE,
    Cluster,
    Link,
    all_reduce_seconds,
    fit_link,
    ring_seconds,
    tree_seconds,
)

LATENCY, BANDWIDTH = 5e-6, 1e10
ONLY_LATENCY = Cluster(Link(LATENCY, math.inf))
ONLY_BANDWIDTH = Cluster(Link(0.0, BANDWIDTH))
TWO_KINDS = Cluster(Link(1e-6, 1e11), Link(1e-5, 1e9), devices_per_machine=4, launch=2e-5)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "auto"])
def test_one_device_has_nobody_to_talk_to(algorithm: str) -> None:
    assert all_reduce_seconds(1e9, 1, TWO_KINDS, algorithm) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("devices", [2, 3, 8, 64])
def test_a_ring_without_latency_sends_two_times_n_minus_1_over_n_of_the_bytes(devices: int) -> None:
    factor = ring_seconds(1e9, devices, ONLY_BANDWIDTH) * BANDWIDTH / 1e9
    assert factor == pytest.approx(2 * (devices - 1) / devices)


def test_a_ring_of_infinite_bandwidth_takes_its_steps_whatever_the_size() -> None:
    assert ring_seconds(1e12, 8, ONLY_LATENCY) == pytest.approx(14 * LATENCY)
    assert ring_seconds(0, 8, ONLY_LATENCY) == pytest.approx(14 * LATENCY)


def test_a_tree_grows_with_the_logarithm_of_the_machines_and_sends_the_bytes_up_and_down() -> None:
    latencies = Cluster(Link(0.0, math.inf), Link(LATENCY, math.inf), devices_per_machine=1)
    assert [tree_seconds(0, count, latencies) / LATENCY for count in (2, 4, 8, 1024)] == pytest.approx([2, 4, 6, 20])
    assert tree_seconds(1e9, 64, ONLY_BANDWIDTH) == pytest.approx(2 * 1e9 / (TREE_SHARE * BANDWIDTH))


def test_a_ring_over_machines_crosses_once_each_and_is_as_fast_as_its_narrowest_link() -> None:
    # 8 devices on 2 machines of 4: 14 steps, of which 2 leave a machine.
    expected = 2e-5 + 12 * 1e-6 + 2 * 1e-5 + 14 / 8 * 1e6 / 1e9
    assert ring_seconds(1e6, 8, TWO_KINDS) == pytest.approx(expected)
    assert ring_seconds(1e6, 4, TWO_KINDS) == pytest.approx(2e-5 + 6 * 1e-6 + 6 / 4 * 1e6 / 1e11)


def test_small_messages_between_many_machines_take_the_tree_and_large_ones_on_few_the_ring() -> None:
    assert (
        all_reduce_seconds(1e3, 512, TWO_KINDS) == tree_seconds(1e3, 512, TWO_KINDS) < ring_seconds(1e3, 512, TWO_KINDS)
    )
    assert all_reduce_seconds(1e9, 8, TWO_KINDS) == ring_seconds(1e9, 8, TWO_KINDS) < tree_seconds(1e9, 8, TWO_KINDS)


@pytest.mark.parametrize("devices", [2, 5])
def test_fitting_gives_back_the_link_that_made_the_times(devices: int) -> None:
    sizes = [1e3, 1e5, 1e6, 1e8]
    made = Cluster(Link(LATENCY, BANDWIDTH))
    found = fit_link(sizes, [ring_seconds(size, devices, made) for size in sizes], devices)
    assert found.latency == pytest.approx(LATENCY)
    assert found.bandwidth == pytest.approx(BANDWIDTH)


def test_times_that_do_not_grow_with_the_size_fit_a_link_of_no_negative_bandwidth() -> None:
    found = fit_link([1e3, 1e6], [2e-4, 1e-4], 2)
    assert found.bandwidth > 0
    assert found.latency > 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: all_reduce_seconds(1, 2, ONLY_LATENCY, "star"), "no algorithm 'star'; choose one of auto, ring, tree"),
        (lambda: all_reduce_seconds(-1, 2, ONLY_LATENCY), "at least 0 bytes"),
        (lambda: all_reduce_seconds(1, 0, ONLY_LATENCY), "at least one device, not 0"),
        (lambda: Link(-1, 1), "latency of at least 0"),
        (lambda: Link(0, 0), "bandwidth above 0"),
        (lambda: fit_link([1, 2], [1, 2], 1), "at least 2 devices"),
        (lambda: fit_link([1, 1], [1, 2], 2), "two different sizes"),
        (lambda: fit_link([1, 2], [1, math.nan], 2), "positive number of seconds"),
    ],
)
def test_numbers_that_make_no_sense_get_one_clear_sentence(call: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()  # type: ignore[operator]
