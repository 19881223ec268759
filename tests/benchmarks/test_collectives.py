"""Collectives are checked, timed on the slowest rank, counted as nccl-tests does, and told in words."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mgpu_utils.benchmark import collectives_table as tables
from mgpu_utils.benchmark.collectives import BUS_FACTORS, KIND, CollectiveRun
from mgpu_utils.benchmark.config import BenchmarkConfig, ConfigError, validate
from mgpu_utils.planning import Hardware
from mgpu_utils.ranks import RankGroup
from mgpu_utils.torchrun import Launcher

TWO_CORES, EIGHT_CORES = Hardware(cores=2), Hardware(cores=8)
FOUR_GPUS = Hardware("cuda", 4, cores=16, nccl=True)
SIZES = [1024 * 4**power for power in range(9)]


def config(**section: Any) -> BenchmarkConfig:
    return validate({"collectives": section}, source="mine.yaml")


def planned(hardware: Hardware = TWO_CORES, **section: Any) -> list[CollectiveRun]:
    whole = config(**section)
    return KIND.configurations(whole.section("collectives"), whole, hardware, {})


def times_on_a_line(latency: float, bandwidth: float) -> list[float]:
    """The seconds at the sizes of `SIZES`."""
    return [latency + size / bandwidth for size in SIZES]


def record(collective: str, number: int, times: list[float], **changes: Any) -> dict[str, Any]:
    """A record of a run with these seconds at the sizes of `SIZES`."""
    item = next(item for item in planned() if item.collective == collective)
    factor = BUS_FACTORS[item.collective](2)
    made = [
        {"bytes": size, "seconds": time, "repeats": 5, "algbw": size / time, "busbw": factor * size / time}
        for size, time in zip(SIZES, times, strict=True)
    ]
    head = {"benchmark": "collectives", "key": item.key, "round": number, "status": "ok"} | item.to_dict()
    return head | {"barrier": {"seconds": 1e-4}, "points": made} | changes


# --- What is measured where


def test_auto_takes_powers_of_two_up_to_all_cores_or_gpus() -> None:
    assert {item.world_size for item in planned(TWO_CORES)} == {2}
    assert {item.world_size for item in planned(Hardware(cores=6))} == {2, 4, 6}
    on_gpus = planned(FOUR_GPUS)
    assert {(item.world_size, item.device_type, item.backend) for item in on_gpus} == {
        (2, "cuda", "nccl"),
        (4, "cuda", "nccl"),
    }


def test_every_collective_is_measured_on_every_world_size_under_its_own_key() -> None:
    items = planned(EIGHT_CORES, world_sizes=[2, 3])
    assert [(item.collective, item.world_size) for item in items] == [
        (name, size) for size in (2, 3) for name in BUS_FACTORS
    ]
    assert len({item.key for item in items}) == 8


def test_sizes_of_shards_are_cut_to_whole_shards() -> None:
    items = planned(EIGHT_CORES, world_sizes=[3], sizes_bytes={"smallest": 1024, "largest": 65536, "factor": 4})
    sizes = {item.collective: item.sizes for item in items}
    assert sizes["all_reduce"] == sizes["broadcast"] == (1024, 4096, 16384, 65536)
    assert sizes["all_gather"] == sizes["reduce_scatter"] == (1008, 4080, 16368, 65520)


def test_in_place_is_what_pytorch_can_do() -> None:
    assert {item.collective: item.in_place for item in planned(in_place=False)} == {
        "all_reduce": True,
        "broadcast": True,
        "all_gather": False,
        "reduce_scatter": False,
    }


@pytest.mark.parametrize(
    ("hardware", "section", "words"),
    [
        (TWO_CORES, {"world_sizes": [4]}, ["collectives.world_sizes", "world size 4", "2 usable CPU cores"]),
        (Hardware(cores=1), {}, ["need 2 ranks", "room for 1"]),
        (TWO_CORES, {"world_sizes": [1]}, ["collectives.world_sizes must be 2 or more", "sends nothing"]),
        (TWO_CORES, {"collectives": ["allreduce"]}, ["collectives.collectives[0]", "did you mean all_reduce?"]),
        (TWO_CORES, {"collectives": ["broadcast", "broadcast"]}, ["must not hold broadcast twice"]),
        (TWO_CORES, {"sizes_bytes": {"smallest": 2048, "largest": 1024}}, ["collectives.sizes_bytes", "gives 0 sizes"]),
        (TWO_CORES, {"sizes_bytes": {"smallest": 16}}, ["smallest is 16", "all_gather on 2 ranks", "32 bytes"]),
        (TWO_CORES, {"seconds_per_point": 0.0}, ["collectives.seconds_per_point is 0.0", "more than 0"]),
        (TWO_CORES, {"size_bytes": {}}, ["unknown key size_bytes in collectives", "did you mean sizes_bytes?"]),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(
    hardware: Hardware, section: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(hardware, **section)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert all(word in sentence for word in words), sentence


def test_quick_keeps_enough_sizes_for_a_line() -> None:
    section = config(sizes_bytes={"smallest": 2**20, "largest": 2**30, "factor": 8}).section("collectives")
    quick = KIND.quick(section)
    assert KIND.rounds(quick, config()) == 1
    assert quick.sizes_bytes.all == [2**20, 2**23, 2**26]
    assert KIND.quick(config().section("collectives")).sizes_bytes.largest == 2**20


# --- Measuring


def of_checked(sizes: dict[str, int], in_place: bool) -> dict[str, int]:
    """The number of wrong elements of each collective, and of one that does nothing; runs on a rank."""
    import torch

    from mgpu_utils.benchmark.collectives_worker import check, prepare

    wrong = {}
    for name, size in sizes.items():
        made = prepare(name, size, in_place=in_place, dtype=torch.float32, device=torch.device("cpu"))
        wrong[name] = check(made)
        idle = prepare(name, size, in_place=in_place, dtype=torch.float32, device=torch.device("cpu"))
        wrong[f"{name} that does nothing"] = check(idle._replace(run=lambda: None))
    return wrong


@pytest.mark.parametrize("in_place", [True, False])
def test_every_collective_gives_the_right_result_and_a_wrong_one_is_seen(
    three_ranks: RankGroup, in_place: bool
) -> None:
    items = planned(EIGHT_CORES, world_sizes=[3])
    sizes = {item.collective: item.sizes[1] for item in items}
    for counted in three_ranks.run(of_checked, sizes, in_place):
        assert {name: counted[name] for name in BUS_FACTORS} == dict.fromkeys(BUS_FACTORS, 0)
        assert all(counted[f"{name} that does nothing"] > 0 for name in BUS_FACTORS)


def of_uneven_times() -> tuple[int, list[list[float]]]:
    """How often a call was timed where only rank 0 is in time, and the slowest of made-up times; runs on a rank."""
    import time

    import torch
    import torch.distributed as dist

    from mgpu_utils.benchmark.collectives_worker import seconds_of, slowest

    rank, device = dist.get_rank(), torch.device("cpu")
    # Rank 1 would settle for 5 repeats if it decided for itself.
    if rank == 1:
        time.sleep(0.2)
    repeats = len(seconds_of(lambda: None, calls=2, budget_seconds=0.05 if rank == 0 else 0.0, device=device))
    return repeats, slowest([[1.0 + rank, 5.0 - rank], [3.0]], device)


def test_all_ranks_repeat_equally_often_and_the_slowest_rank_counts(two_ranks: RankGroup) -> None:
    (first, times), (second, _) = two_ranks.run(of_uneven_times)
    assert first == second >= 5
    assert times == [[2.0, 5.0], [3.0]]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as started:
        yield started


def test_a_run_delivers_a_point_for_every_size(launcher: Launcher, note: Callable[[str], None]) -> None:
    (item,) = planned(
        collectives=["reduce_scatter"],
        seconds_per_point=0.02,
        sizes_bytes={"smallest": 1024, "largest": 65536, "factor": 8},
    )
    measured = KIND.measure_one(item, 3, launcher=launcher, seed=0, timeout=60)
    assert measured["status"] == "ok", measured
    assert (measured["benchmark"], measured["round"], measured["key"]) == ("collectives", 3, item.key)
    assert measured["call"] == "torch.distributed.reduce_scatter_single"
    assert [point["bytes"] for point in measured["points"]] == list(item.sizes)
    for point in measured["points"]:
        assert 0 < point["seconds_low"] <= point["seconds"] <= point["seconds_high"]
        assert point["repeats"] >= 5
        assert point["algbw"] == point["bytes"] / point["seconds"]
        assert point["busbw"] == point["algbw"] / 2
    assert measured["barrier"]["seconds"] > 0
    table = KIND.summarise([measured])
    assert len(table) == 3
    note("collectives: " + KIND.findings(table)[0])


def test_a_run_that_fails_is_a_record_with_its_reason(launcher: Launcher) -> None:
    (item,) = planned(collectives=["broadcast"])
    failed = KIND.measure_one(dataclasses.replace(item, dtype="float33"), 0, launcher=launcher, seed=0, timeout=60)
    assert failed["status"] == "failed"
    assert "float33" in failed["reason"]
    table = KIND.summarise([failed])
    assert table["seconds"].isna().all()
    assert (table["failed"] == 1).all()
    assert KIND.findings(table) == []
    assert KIND.figures([failed], table) == {}


# --- The table and the sentences


def test_bus_bandwidth_counts_what_the_busiest_link_carries() -> None:
    assert {name: factor(4) for name, factor in BUS_FACTORS.items()} == {
        "all_reduce": 1.5,
        "broadcast": 1.0,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
    }


def test_the_table_has_a_row_for_each_size_with_medians_over_rounds() -> None:
    base = times_on_a_line(1e-4, 1e9)
    records = [record("all_gather", number, [time * (1 + number) for time in base]) for number in range(3)]
    failed = record("all_gather", 3, base, status="failed", points=[], reason="it did not")
    table = KIND.summarise([*records, failed])
    assert list(table["bytes"]) == SIZES
    assert list(table["seconds"]) == pytest.approx([2 * time for time in base])
    assert table["busbw_gb_s"].iloc[-1] == pytest.approx(SIZES[-1] / base[-1] / 4e9)
    first = table.iloc[0]
    assert (first["rounds"], first["failed"], first["repeats"]) == (3, 1, 15)
    assert first["seconds_low"] < first["seconds"] < first["seconds_high"]
    assert first["latency_us"] == pytest.approx(200)
    assert first["bandwidth_gb_s"] == pytest.approx(0.5)
    assert first["half_bandwidth_bytes"] == pytest.approx(1e5)
    assert math.isnan(first["bend_bytes"])


def test_findings_say_where_the_line_misses_and_to_which_side() -> None:
    times = times_on_a_line(1e-4, 1e9)
    straight = KIND.findings(KIND.summarise([record("all_reduce", 0, times)]))
    assert "all_reduce on 2 ranks over gloo: 100 us" in straight[0]
    assert "1 GB/s" in straight[0]
    assert "about 97.7 KiB" in straight[0]
    assert "all within 20 %" in straight[0]
    assert "bend" not in straight[0]
    assert "A barrier of 2 ranks" in straight[-1]
    times[3] *= 2
    off = KIND.findings(KIND.summarise([record("all_reduce", 0, times)]))[0]
    assert re.search(r"misses by more than 20 % at 64 KiB \(\d+ % slower than the line\)", off)
    bent = [time + max(size - 2**20, 0) / 2e8 for time, size in zip(times, SIZES, strict=True)]
    bent[3] /= 2
    assert "bend at 1 MiB" in KIND.findings(KIND.summarise([record("all_reduce", 0, bent)]))[0]


def test_shares_say_which_cost_takes_the_time_and_how_far_the_line_is_to_trust() -> None:
    times = times_on_a_line(1e-4, 1e9)
    table = KIND.summarise([record("all_reduce", 0, times)])
    marks = tables.landmarks()
    assert marks["gradients of the digits network"] == 40_104
    rows = tables.shares(table, marks)
    assert list(rows["latency_share"]) == pytest.approx(
        [1e-4 / (1e-4 + size / 1e9) for size in marks.values()], rel=1e-4
    )
    assert list(rows["nearest_bytes"]) == [65536, 2**24]
    with pytest.raises(ValueError, match="broadcast was not measured on 2 ranks; there is all_reduce on 2"):
        tables.fit_of(table, "broadcast", 2)
