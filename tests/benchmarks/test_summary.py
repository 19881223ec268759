"""The arithmetic of the table: slowest rank, sums over ranks, ratios paired by round, equal threads, like with like."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_up_records import record

from mgpu_utils.benchmark.measuring import combine
from mgpu_utils.benchmark.statistics import rounds_from_text
from mgpu_utils.benchmark.summary import summarise, summarise_each


def rank(seconds: float, samples: int = 100, ready_at: float = 5.0) -> dict[str, Any]:
    return {"seconds": seconds, "samples": samples, "warmup_seconds": 0.2, "ready_at": ready_at}


def row_of(table: pd.DataFrame, strategy: str, threads: int = 2) -> pd.Series:
    found = table[(table["strategy"] == strategy) & (table["total_threads"] == threads)]
    assert len(found) == 1
    return found.iloc[0]


def test_two_ranks_with_a_hundred_samples_in_a_second_make_two_hundred_a_second() -> None:
    combined = combine([rank(1.0), rank(1.0)], started_at=2.0)
    assert combined["samples_per_second"] == 200
    assert combined["samples_per_second_per_rank"] == 100


def test_the_slowest_rank_sets_the_time() -> None:
    combined = combine([rank(1.0), rank(2.0)], started_at=2.0)
    assert combined["seconds"] == 2.0
    assert combined["samples_per_second"] == 100


def test_start_up_lasts_until_the_last_rank_is_ready_and_is_not_in_the_seconds() -> None:
    combined = combine([rank(1.0, ready_at=4.0), rank(1.0, ready_at=6.5)], started_at=2.0)
    assert combined["startup_seconds"] == 4.5
    assert combined["seconds"] == 1.0


def test_ratios_are_taken_within_a_round() -> None:
    # The machine is twice as slow in the second round: within each round DDP is 1.8 times as fast, always.
    speed = [100.0, 50.0, 100.0]
    measured = [record("single", number, value) for number, value in enumerate(speed)]
    measured += [record("ddp", number, 1.8 * value) for number, value in enumerate(speed)]
    ddp = row_of(summarise(measured), "ddp")
    assert (ddp["speedup"], ddp["speedup_low"], ddp["speedup_high"]) == pytest.approx((1.8, 1.8, 1.8))
    assert (ddp["samples_per_second_low"], ddp["samples_per_second_high"]) == (90.0, 180.0)


def test_efficiency_is_given_against_n_devices_and_against_the_limit() -> None:
    measured = [record("single", 0, 100.0), record("ddp", 0, 144.0), record("independent", 0, 160.0)]
    table = summarise(measured)
    ddp = row_of(table, "ddp")
    assert ddp["speedup"] == pytest.approx(1.44)
    assert ddp["efficiency"] == pytest.approx(0.72)
    assert ddp["limit_share"] == pytest.approx(0.9)
    assert ddp["samples_per_second_per_rank"] == 72
    assert row_of(table, "independent")["efficiency"] == pytest.approx(0.8)


def test_speed_up_is_also_given_at_an_equal_total_of_threads() -> None:
    measured = [
        record("single", 0, 450.0),
        record("single", 0, 800.0, threads_per_process=2, total_threads=2),
        record("ddp", 0, 900.0),
    ]
    table = summarise(measured)
    ddp = row_of(table, "ddp")
    assert ddp["speedup"] == pytest.approx(2.0)
    assert ddp["speedup_equal_threads"] == pytest.approx(1.125)
    one_process = row_of(table, "single", threads=2)
    assert one_process["speedup"] == pytest.approx(800 / 450)
    assert one_process["speedup_equal_threads"] == 1.0
    assert row_of(table, "single", threads=1)["speedup"] == 1.0


def test_each_row_says_batches_threads_and_steps() -> None:
    ddp = row_of(summarise([record("ddp", 0, 100.0)]), "ddp")
    assert (ddp["per_device_batch"], ddp["global_batch"], ddp["steps_per_epoch"]) == (32, 64, 22)
    assert (ddp["threads_per_process"], ddp["total_threads"]) == (1, 2)


def test_a_table_refuses_to_mix_weak_and_strong_scaling() -> None:
    mixed = [record("ddp", 0, 100.0), record("ddp", 0, 100.0, scaling="strong")]
    with pytest.raises(ValueError, match="strong and weak scaling together"):
        summarise(mixed)
    assert {kind: set(table["scaling"]) for kind, table in summarise_each(mixed).items()} == {
        "weak": {"weak"},
        "strong": {"strong"},
    }


def test_models_are_compared_with_their_own_baseline_only() -> None:
    measured = [record("single", 0, 100.0), record("ddp", 0, 150.0)]
    measured += [record("single", 0, 10.0, model="small_resnet"), record("ddp", 0, 19.0, model="small_resnet")]
    table = summarise(measured)
    speedups = table[table["strategy"] == "ddp"].set_index("model")["speedup"]
    assert speedups.to_dict() == pytest.approx({"digits_cnn": 1.5, "small_resnet": 1.9})


def test_failed_runs_are_counted_and_measure_nothing() -> None:
    measured = [record("single", number, 100.0) for number in range(3)]
    measured += [record("ddp", 0, 190.0), record("ddp", 1, 180.0)]
    measured.append({**record("ddp", 2, 0.0), "status": "failed", "reason": "out of memory"})
    ddp = row_of(summarise(measured), "ddp")
    assert (ddp["rounds"], ddp["failed"]) == (2, 1)
    assert ddp["samples_per_second"] == 185


def test_a_configuration_that_only_failed_has_a_row_without_numbers() -> None:
    failed = {"status": "failed", "reason": "out of memory"}
    ddp = row_of(summarise([record("single", 0, 100.0), record("ddp", 0, 0.0) | failed]), "ddp")
    assert (ddp["rounds"], ddp["failed"]) == (0, 1)
    assert math.isnan(ddp["samples_per_second"])
    assert math.isnan(ddp["speedup"])


def test_without_single_or_limit_the_ratios_stay_empty() -> None:
    ddp = row_of(summarise([record("ddp", 0, 100.0)]), "ddp")
    assert math.isnan(ddp["speedup"])
    assert math.isnan(ddp["limit_share"])


def test_no_records_give_no_table() -> None:
    with pytest.raises(ValueError, match="no records"):
        summarise([])


def test_rows_of_another_precision_are_never_compared() -> None:
    measured = [record("single", 0, 100.0), record("ddp", 0, 150.0)]
    measured += [record("ddp", 0, 300.0, precision="bfloat16")]
    ddp = summarise(measured).set_index(["strategy", "precision"]).loc["ddp"]
    assert ddp["samples_per_second"].to_dict() == {"float32": 150.0, "bfloat16": 300.0}
    assert ddp.loc["float32", "speedup"] == 1.5
    assert math.isnan(ddp.loc["bfloat16", "speedup"])
    measured += [record("single", 0, 200.0, precision="bfloat16"), record("independent", 0, 400.0)]
    ddp = summarise(measured).set_index(["strategy", "precision"]).loc["ddp"]
    assert ddp["speedup"].to_dict() == {"float32": 1.5, "bfloat16": 1.5}
    assert math.isnan(ddp.loc["bfloat16", "limit_share"])


@pytest.mark.parametrize(
    "other", [{"accumulation": 4}, {"per_device_batch": 64}, {"device_type": "cuda"}, {"model": "small_resnet"}]
)
def test_a_baseline_that_differs_in_what_must_match_is_no_baseline(other: dict[str, Any]) -> None:
    ddp = row_of(summarise([record("single", 0, 100.0, **other), record("ddp", 0, 150.0)]), "ddp")
    assert math.isnan(ddp["speedup"])


def test_in_strong_scaling_the_global_batch_must_match_and_not_that_of_a_device() -> None:
    strong = {"scaling": "strong", "global_batch": 64}
    measured = [record("single", 0, 100.0, per_device_batch=64, **strong), record("ddp", 0, 150.0, **strong)]
    assert row_of(summarise(measured), "ddp")["speedup"] == 1.5


def test_records_of_an_earlier_version_without_new_fields_belong_to_their_defaults() -> None:
    new = {"precision": "float32", "accumulation": 1}
    measured = [record("single", 0, 100.0), record("single", 1, 110.0, **new), record("ddp", 1, 220.0, **new)]
    table = summarise(measured)
    assert row_of(table, "single", threads=1)["rounds"] == 2
    assert row_of(table, "ddp")["speedup"] == 2.0


def test_fields_that_are_no_part_of_the_configuration_split_nothing() -> None:
    measured = [record("ddp", number, 100.0, measured_at=f"{number} o'clock") for number in range(3)]
    assert list(summarise(measured)["rounds"]) == [3]


def test_a_strategy_of_another_version_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="hold strategy pipeline, but this version knows single, "):
        summarise([record("pipeline", 0, 100.0, total_threads=2)])


def test_a_ratio_says_how_many_rounds_it_has_when_the_baseline_failed_in_some() -> None:
    failed = {"status": "failed", "reason": "out of memory"}
    measured = [record("ddp", number, 150.0) for number in range(6)]
    measured += [record("single", number, 100.0) | (failed if number > 1 else {}) for number in range(6)]
    ddp = row_of(summarise(measured), "ddp")
    assert (ddp["rounds"], ddp["speedup_rounds"], ddp["limit_share_rounds"]) == (6, 2, 0)


def test_outlier_rounds_are_named_and_stay_in_the_numbers() -> None:
    speeds = [100.0, 101.0, 40.0, 99.0, 102.0, 98.0]
    ddp = row_of(summarise([record("ddp", number, speed) for number, speed in enumerate(speeds)]), "ddp")
    assert ddp["outlier_rounds"] == "3"
    assert ddp["rounds"] == 6
    assert ddp["samples_per_second"] == 99.5
    assert rounds_from_text(ddp["by_round"]) == dict(enumerate(speeds))


def test_runs_beside_other_work_and_runs_that_never_became_steady_are_counted() -> None:
    busy = {"machine": {"seconds": 4.0, "other_cpu_share": 0.4}}
    quiet = {"machine": {"seconds": 4.0, "other_cpu_share": 0.01}}
    measured = [record("ddp", number, 100.0, **busy) for number in range(2)]
    measured += [record("ddp", 2, 100.0, warmup_steady=False, **quiet), record("ddp", 3, 100.0, warmup_steady=None)]
    ddp = row_of(summarise(measured), "ddp")
    assert (ddp["disturbed_runs"], ddp["unsteady_runs"], ddp["rounds"]) == (2, 1, 4)


def test_a_table_survives_the_way_through_a_file(tmp_path: Path) -> None:
    measured = [record("single", number, 100.0 + number) for number in range(3)]
    measured += [record("ddp", number, 190.0, scaling=kind) for number in range(3) for kind in ("weak", "strong")]
    path = tmp_path / "summary.csv"
    pd.concat(summarise_each(measured).values()).to_csv(path, index=False)
    table = pd.read_csv(path)
    assert list(zip(table["scaling"], table["strategy"], strict=True)) == [
        ("weak", "single"),
        ("weak", "ddp"),
        ("strong", "ddp"),
    ]
    assert rounds_from_text(table["by_round"][0]) == {0: 100.0, 1: 101.0, 2: 102.0}


def test_peak_memory_is_told_for_each_process_or_device_not_for_the_first_alone() -> None:
    mib = 2**20
    records = [
        record("single", 0, 100.0, peak_memory=[{"cuda:0": 900 * mib}]),
        record("data_parallel", 0, 120.0, peak_memory=[{"cuda:0": 2500 * mib, "cuda:1": 700 * mib}]),
        record("data_parallel", 1, 120.0, peak_memory=[{"cuda:0": 2600 * mib, "cuda:1": 650 * mib}]),
        record("ddp", 0, 180.0, peak_memory=[{"cuda:0": 1000 * mib}, {"cuda:1": 1001 * mib}]),
    ]
    table = summarise(records).set_index("strategy")
    assert table.loc["single", "peak_memory"] == "900"
    assert table.loc["data_parallel", "peak_memory"] == "2600 700"
    assert table.loc["ddp", "peak_memory"] == "1000 1001"
