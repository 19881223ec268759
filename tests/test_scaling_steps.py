"""Whole steps of DDP and DataParallel, and fitting them: made-up parameters have to come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu_utils.scaling.collective_model import Cluster, Link, ring_seconds
from mgpu_utils.scaling.curves import MIDDLE, curve
from mgpu_utils.scaling.data_parallel import DataParallelCost, DataParallelJob, predict_data_parallel
from mgpu_utils.scaling.fit import Observation, fit_bandwidth, fit_own_cost, fit_serial, fit_wait
from mgpu_utils.scaling.step_time import DDPCost, Workload, network_workload, predict_ddp, with_batch

WORK = Workload("made up", 32, 0.01, 0.02, 0.001, buckets=(1_000_000, 25_000_000), ready=(0.1, 1.0))
CLUSTER = Cluster(Link(1e-5, 5e9))
JOB = DataParallelJob(
    batch=16,
    forward=0.01,
    backward=0.02,
    optimizer=0.001,
    parameter_bytes=40_000_000,
    modules=100,
    sample_bytes=1_000,
    output_bytes=100,
)


def test_on_one_device_a_step_is_its_compute_and_what_ddp_costs_by_itself() -> None:
    assert predict_ddp(WORK, 1, CLUSTER).seconds == pytest.approx(WORK.compute)
    own = DDPCost(own=0.002, own_per_byte=1e-10, contention=3.0, interference=1.0, wait=1.0)
    assert predict_ddp(WORK, 1, CLUSTER, own).seconds == pytest.approx(WORK.compute + 0.002 + 26e6 * 1e-10)


def test_the_parts_of_a_step_add_up() -> None:
    cost = DDPCost(own=0.001, contention=1.2, interference=0.3)
    step = predict_ddp(WORK, 4, CLUSTER, cost, "ring")
    last = ring_seconds(25e6, 4, CLUSTER)
    first = ring_seconds(1e6, 4, CLUSTER)
    assert step.exposed == pytest.approx(last)
    assert step.overlap.slowed == pytest.approx(0.3 * first)
    assert step.seconds == pytest.approx(1.2 * WORK.compute + 0.001 + 0.3 * first + last)
    assert step.samples_per_second == pytest.approx(4 * 32 / step.seconds)


def test_a_larger_batch_hides_more_of_the_same_communication() -> None:
    slow = Cluster(Link(1e-5, 1e9))
    lost = [
        1 - work.compute / predict_ddp(work, 8, slow, DDPCost()).seconds
        for work in (WORK, with_batch(WORK, 64), with_batch(WORK, 256))
    ]
    assert lost[0] > lost[1] > lost[2] > 0
    assert with_batch(WORK, 64).optimizer == WORK.optimizer


def test_a_tiny_bucket_pays_latency_often_and_one_huge_bucket_hides_nothing() -> None:
    cluster = Cluster(Link(2e-4, 5e9))

    def lost(cap_mb: float | None) -> float:
        return predict_ddp(network_workload("ResNet-50", 32, 0.1, cap_mb=cap_mb), 8, cluster).exposed

    assert lost(25) < lost(1000)
    assert lost(25) < lost(0.01)


def test_the_curve_lies_between_perfect_and_no_overlap() -> None:
    found = curve("made up", WORK, Cluster(Link(1e-5, 5e9), Link(1e-4, 1e9), devices_per_machine=4), (1, 2, 4, 8, 1024))
    assert 0 < MIDDLE < 1
    assert found.with_overlap[0] == found.without_overlap[0] == pytest.approx(1.0)
    for high, middle, low in zip(found.with_overlap, found.middle, found.without_overlap, strict=True):
        assert high >= middle >= low > 0
    assert found.middle[3] < found.middle[2]


def test_fitting_finds_the_bandwidth_that_made_a_step() -> None:
    cost = DDPCost(interference=0.7)
    seen = Observation(4, predict_ddp(WORK, 4, CLUSTER, cost).seconds)
    start = Cluster(Link(1e-5, 1e12))
    assert fit_bandwidth(WORK, seen, start, cost).inside.bandwidth == pytest.approx(5e9, rel=1e-4)


def test_a_step_faster_than_compute_fits_the_fastest_link_and_not_a_negative_one() -> None:
    found = fit_bandwidth(WORK, Observation(4, WORK.compute / 2), Cluster(Link(0.0, 1e9)), DDPCost())
    assert found.inside.bandwidth > 1e13


def test_fitting_finds_what_ddp_costs_by_itself_and_how_long_collectives_wait() -> None:
    made = DDPCost(own_per_byte=2e-10, interference=1.0, wait=0.003)
    alone = predict_ddp(WORK, 1, CLUSTER, made).seconds
    own = fit_own_cost(WORK, alone)
    assert own == pytest.approx(2e-10)
    seen = Observation(2, predict_ddp(WORK, 2, CLUSTER, made).seconds)
    found = fit_wait(WORK, seen, CLUSTER, replace(made, wait=0.0))
    assert found.wait == pytest.approx(0.003, rel=1e-4)
    assert fit_wait(WORK, Observation(2, 1e-6), CLUSTER, made).wait == 0.0


def test_data_parallel_copies_the_model_to_every_other_device_and_sums_it_back() -> None:
    step = predict_data_parallel(JOB, 4, DataParallelCost(bandwidth=1e10))
    assert step.replicate == step.reduce == pytest.approx(3 * 40e6 / 1e10)
    assert step.scatter == pytest.approx(3 * 16 * 1_000 / 1e10)
    assert step.gather == pytest.approx(3 * 16 * 100 / 1e10)
    piped = predict_data_parallel(JOB, 4, DataParallelCost(bandwidth=1e10, pipelined=True))
    assert piped.replicate == pytest.approx(40e6 / 1e10)
    assert piped.scatter == step.scatter


def test_data_parallel_pays_python_for_every_replica_and_on_one_device_nothing() -> None:
    cost = DataParallelCost(bandwidth=1e10, serial=1e-5, contention=1.5)
    assert predict_data_parallel(JOB, 8, cost).serial == pytest.approx(8 * 100 * 1e-5)
    assert predict_data_parallel(JOB, 8, cost).backward == pytest.approx(0.03)
    assert predict_data_parallel(JOB, 1, cost).seconds == pytest.approx(0.031)


def test_fitting_finds_pythons_share_of_a_data_parallel_step() -> None:
    cost = DataParallelCost(bandwidth=1e10, serial=2e-5)
    seen = Observation(4, predict_data_parallel(JOB, 4, cost).seconds)
    assert fit_serial(JOB, seen, DataParallelCost(bandwidth=1e10)).serial == pytest.approx(2e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: replace(WORK, forward=-1.0), "positive time"),
        (lambda: replace(WORK, ready=(1.0,)), "2 buckets, but 1 shares"),
        (lambda: with_batch(WORK, 0), "batch must be at least 1, not 0"),
        (lambda: fit_bandwidth(WORK, Observation(1, 1.0), CLUSTER, DDPCost()), "at least 2 devices"),
        (lambda: predict_data_parallel(JOB, 0, DataParallelCost(1.0)), "a replica and a bandwidth above 0"),
    ],
)
def test_impossible_numbers_get_one_clear_sentence(call: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()  # type: ignore[operator]
