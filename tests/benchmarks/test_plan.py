"""What is measured on which machine, decided from plain data, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from made_up_records import plain_config

from mgpu_utils.benchmark.config import BenchmarkConfig, ConfigError, validate
from mgpu_utils.benchmark.plan import configurations, order
from mgpu_utils.planning import Hardware

TWO_CORES = Hardware(cores=2)
FOUR_GPUS = Hardware("cuda", 4, cores=16, nccl=True)
MAC = Hardware("mps", 1, cores=8)


def planned(hardware: Hardware = TWO_CORES, **changes: Any) -> list[dict[str, Any]]:
    config = validate(plain_config(**changes), source="test")
    return [item.to_dict() for item in configurations(config, hardware, {})]


def batches(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {row["strategy"]: (row["per_device_batch"], row["global_batch"]) for row in rows}


def test_weak_scaling_keeps_the_batch_of_each_device() -> None:
    assert batches(planned(scaling=["weak"])) == {
        "single": (32, 32),
        "data_parallel": (32, 64),
        "ddp": (32, 64),
        "independent": (32, 64),
    }


def test_strong_scaling_keeps_the_global_batch() -> None:
    assert batches(planned(scaling=["strong"])) == {
        "single": (50, 50),
        "data_parallel": (25, 50),
        "ddp": (25, 50),
        "independent": (25, 50),
    }


def test_single_is_measured_with_the_threads_of_one_rank_and_with_those_of_all() -> None:
    rows = planned()
    threads = [(row["threads_per_process"], row["total_threads"]) for row in rows if row["strategy"] == "single"]
    assert threads == [(1, 1), (2, 2)]
    assert {row["total_threads"] for row in rows if row["strategy"] != "single"} == {2}


def test_several_world_sizes_measure_one_process_once() -> None:
    rows = planned(Hardware(cores=4), world_sizes=[2, 4])
    assert [row["total_threads"] for row in rows if row["strategy"] == "single"] == [1, 2, 4]
    assert [row["world_size"] for row in rows if row["strategy"] == "ddp"] == [2, 4]


def test_without_gpus_data_parallel_is_the_stand_in_and_ranks_talk_over_gloo() -> None:
    rows = {row["strategy"]: row for row in planned()}
    assert rows["data_parallel"]["implementation"] == "threaded stand-in"
    assert rows["ddp"]["implementation"] == "torch"
    assert (rows["ddp"]["device_type"], rows["ddp"]["backend"]) == ("cpu", "gloo")


def test_on_gpus_the_real_classes_run_over_nccl() -> None:
    rows = planned(FOUR_GPUS, world_sizes="auto")
    assert {row["implementation"] for row in rows} == {"torch"}
    assert {row["device_type"] for row in rows} == {"cuda"}
    ddp = next(row for row in rows if row["strategy"] == "ddp")
    assert (ddp["world_size"], ddp["backend"]) == (4, "nccl")


def test_on_apple_silicon_ranks_stay_on_the_cpu() -> None:
    rows = planned(MAC)
    assert {row["device_type"] for row in rows} == {"cpu"}
    assert next(row["backend"] for row in rows if row["strategy"] == "ddp") == "gloo"


def test_auto_never_takes_more_ranks_than_cores() -> None:
    assert {row["world_size"] for row in planned(Hardware(cores=1), world_sizes="auto")} == {1}
    assert max(row["world_size"] for row in planned(TWO_CORES, world_sizes="auto")) == 2


@pytest.mark.parametrize(
    ("hardware", "changes", "words"),
    [
        (TWO_CORES, {"world_sizes": [3]}, "world size 3 is above what this machine has (2 usable CPU cores)"),
        (TWO_CORES, {"world_sizes": [4096]}, "world size 4096 is above what this machine has (2 usable"),
        (Hardware(cores=1), {"world_sizes": [2]}, "(1 usable CPU core); use world sizes up to 1"),
        (TWO_CORES, {"threads_per_process": 2}, "world size 2 with 2 threads each is above"),
        (TWO_CORES, {"device": "cuda"}, "device is 'cuda', but PyTorch finds no such device"),
        (FOUR_GPUS, {"world_sizes": [5], "device": "cuda"}, "only 4 GPUs can be used"),
        (
            Hardware("cuda", 1, cores=8, nccl=True),
            {"world_sizes": [1], "device": "cuda", "strategies": ["data_parallel"]},
            "strategy data_parallel cannot run with world sizes [1] on this machine's GPU",
        ),
        (Hardware(cores=2, gloo=False), {}, "built without gloo"),
        (
            TWO_CORES,
            {"models": [{"name": "resnet", "per_device_batch": 1, "global_batch": 2, "steps": 1}]},
            "model resnet is not known; the models are digits_cnn, small_resnet",
        ),
        (
            Hardware(cores=3),
            {"scaling": ["strong"], "world_sizes": [3]},
            "global_batch 50 of digits_cnn does not divide by world size 3",
        ),
    ],
)
def test_what_this_machine_cannot_run_is_said_before_anything_starts(
    hardware: Hardware, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(hardware, **changes)
    assert words in str(caught.value)


def test_each_round_holds_every_configuration_once_in_an_order_of_its_own(config: BenchmarkConfig) -> None:
    items = configurations(config, TWO_CORES, {})
    runs = order(items, rounds=5, seed=3)
    rounds = [[item.key for number, item in runs if number == wanted] for wanted in range(5)]
    assert all(sorted(keys) == sorted(item.key for item in items) for keys in rounds)
    assert [number for number, _ in runs] == sorted(number for number, _ in runs)
    assert len({tuple(keys) for keys in rounds}) > 1


def test_the_seed_alone_decides_the_order(config: BenchmarkConfig) -> None:
    items = configurations(config, TWO_CORES, {})
    assert order(items, 5, seed=3) == order(items, 5, seed=3)
    assert order(items, 5, seed=3) != order(items, 5, seed=4)
