"""The breakdown of a step: what is measured, that its parts add up, and what is said and written of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trace_format import check_trace

from mgpu_utils.benchmark import breakdown
from mgpu_utils.benchmark.breakdown import KIND, combine, lanes
from mgpu_utils.benchmark.breakdown_summary import middle_mean
from mgpu_utils.benchmark.config import validate
from mgpu_utils.benchmark.schema import ConfigError
from mgpu_utils.planning import Hardware
from mgpu_utils.step_profile import COPIES, PARTS
from mgpu_utils.torchrun import Launcher

TWO_CORES = Hardware(cores=2)
MODEL = {"name": "digits_cnn", "per_device_batch": 8}


def planned(hardware: Hardware = TWO_CORES, **section: Any) -> list[Any]:
    config = validate({"breakdown": {"models": [MODEL]} | section}, source="test.yaml")
    return list(KIND.configurations(config.section("breakdown"), config, hardware, {}))


def test_every_strategy_is_planned_once_with_the_threads_of_one_device() -> None:
    items = planned(strategies=["single", "data_parallel", "ddp"])
    assert [(item.strategy, item.world_size, item.processes, item.global_batch) for item in items] == [
        *(("single", 1, 1, 8), ("data_parallel", 2, 1, 16), ("ddp", 2, 2, 16))
    ]
    assert {item.threads_per_process for item in items} == {1}
    assert len({item.key for item in items}) == 3


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"strategies": ["dpp"]}, "strategies"),
        ({"models": [MODEL, MODEL]}, "must not hold digits_cnn twice"),
        ({"world_sizes": [4]}, "world size 4 is above what this machine has"),
        ({"world_sizes": [0]}, "world_sizes"),
        ({"blocks": 0}, "blocks"),
        ({"models": [MODEL | {"name": "vgg"}]}, "model vgg is not known"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(**section)


def test_the_plan_is_described_in_lines() -> None:
    section = validate({"breakdown": {"models": [MODEL], "blocks": 3}}, source="test.yaml").section("breakdown")
    lines = KIND.description(section, planned())
    assert lines[0] == "models       digits_cnn (8 samples a device)"
    assert lines[2:] == ["world sizes  1, 2", "steps        3 blocks of 4 plain and 4 profiled ones"]


def test_quick_measures_one_block_of_one_round() -> None:
    section = KIND.quick(validate({"breakdown": {"models": [MODEL]}}, source="test.yaml").section("breakdown"))
    assert (section.rounds, section.blocks, section.steps) == (1, 1, 2)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        yield launcher


@pytest.fixture(scope="module")
def measured(launcher: Launcher) -> dict[str, dict[str, Any]]:
    items = planned(strategies=["data_parallel", "ddp"], steps=4, blocks=2, warmup=1)
    records = [KIND.measure_one(item, 0, launcher=launcher, seed=0, timeout=120) for item in items]
    assert [record.get("reason") for record in records] == [None, None]
    return {record["strategy"]: record for record in records}


def test_the_parts_of_a_real_step_add_up_to_the_profiled_step(measured: dict[str, dict[str, Any]]) -> None:
    for record in measured.values():
        assert sum(record["parts"].values()) == pytest.approx(record["profiled_step_seconds"], rel=0.05)
        assert record["missing_share"] == pytest.approx(1 - sum(record["parts"].values()) / record["step_seconds"])
        assert len(record["parts_per_rank"]) == (2 if record["strategy"] == "ddp" else 1)
        for part in ("data", "forward", "backward", "optimizer"):
            assert record["parts"][part] > 0


def test_ddp_waits_for_its_collectives_and_data_parallel_copies(measured: dict[str, dict[str, Any]]) -> None:
    ddp, data_parallel = measured["ddp"]["parts"], measured["data_parallel"]["parts"]
    assert any(parts["exposed_communication"] > 0 for parts in measured["ddp"]["parts_per_rank"])
    assert all(ddp[part] == 0 for part in (*COPIES, "parallel_apply"))
    assert all(data_parallel[part] > 0 for part in (*COPIES, "parallel_apply"))
    assert data_parallel["exposed_communication"] == 0


def test_the_timelines_of_all_ranks_are_on_one_clock(measured: dict[str, dict[str, Any]]) -> None:
    ranks = lanes(measured["ddp"]["timeline"])
    sums = [[piece for piece in held["communication"] if piece.name == "all_reduce"] for held in ranks]
    assert len(sums[0]) == len(sums[1]) == 2
    for first, second in zip(*sums, strict=True):
        # Nobody has the sum before everybody has begun.
        assert min(first.end, second.end) > max(first.start, second.start) - 1e-3
    assert {lane for held in lanes(measured["data_parallel"]["timeline"]) for lane in held} >= {
        *("main thread", "autograd", "communication", "replica thread 1", "replica thread 2")
    }


def test_traces_are_written_for_perfetto(measured: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    failed = measured["ddp"] | {"status": "failed", "reason": "it broke"}
    later = {name: value for name, value in measured["ddp"].items() if name != "timeline"} | {"round": 1}
    KIND.write_more([*measured.values(), failed, later], tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["trace-data_parallel-digits_cnn-2.json", "trace-ddp-digits_cnn-2.json"]
    for name in names:
        tracks = check_trace(json.loads((tmp_path / name).read_text(encoding="utf-8")))
        assert {process for process, _ in tracks} == ({0, 1} if "ddp" in name else {0})


def test_a_run_that_takes_too_long_is_a_record_with_its_reason(launcher: Launcher) -> None:
    (item,) = planned(strategies=["single"])
    record = KIND.measure_one(item, 0, launcher=launcher, seed=0, timeout=0.2)
    assert record["status"] == "failed"
    assert "did not finish within 0.2 s" in record["reason"]
    assert KIND.label(record) == "digits_cnn, single on 1"


def delivered(
    waited: float, plain: float = 0.010, origin_ns: int = 0, machine: int = 0, step: float = 0.010
) -> dict[str, Any]:
    """What a rank delivers, whose steps are in part waiting; one step of four was disturbed."""
    parts = {name: [0.0] * 4 for name in PARTS}
    parts["exposed_communication"] = [waited] * 4
    parts["forward"] = [step - waited] * 4
    parts["other"] = [0.0, 0.090, 0.0, 0.0]
    timeline = {
        "origin_ns": origin_ns,
        "machine": machine,
        "steps": [[0.5, 0.6]],
        "lanes": {"main thread": [["forward", 0.5, 0.6]]},
    }
    profiled = [step, step + 0.090, step, step]
    return {"plain_seconds": [plain] * 4, "profiled_seconds": profiled, "parts": parts, "timeline": timeline}


def test_the_slowest_rank_is_the_one_that_waits_least_and_a_disturbed_step_does_not_count() -> None:
    record = combine([delivered(0.004, step=0.0101), delivered(0.001, plain=0.008)])
    assert record["slowest_rank"] == 1
    assert record["parts"] == record["parts_per_rank"][1]
    assert record["parts"]["exposed_communication"] == pytest.approx(0.001)
    assert sum(record["parts"].values()) == pytest.approx(0.010)
    assert record["step_seconds"] == 0.008
    assert record["missing_share"] == pytest.approx(-0.25)


def test_ranks_of_one_machine_share_its_clock_and_machines_meet_at_the_barrier() -> None:
    ranks = [delivered(0, origin_ns=9_000_000), delivered(0, origin_ns=5_000_000)]
    ranks += [delivered(0, origin_ns=70_000_000, machine=1)]
    timeline = combine(ranks)["timeline"]
    assert [rank["steps"][0][0] for rank in timeline] == pytest.approx([0.504, 0.5, 0.5])
    assert [held["main thread"][0].end for held in lanes(timeline)] == pytest.approx([0.604, 0.6, 0.6])


def test_the_middle_half_is_averaged() -> None:
    assert middle_mean([1.0, 2.0, 3.0, 100.0]) == 2.5
    assert middle_mean([7.0]) == 7.0
    assert middle_mean([1.0, 2.0, 3.0, 4.0], by=[9, 1, 2, 0]) == 2.5
    assert math.isnan(middle_mean([]))


def made_up(number: int, *, step: float = 0.010, longer: float = 1.0, **fields: Any) -> dict[str, Any]:
    (item,) = planned(strategies=["ddp"])
    parts = dict.fromkeys(PARTS, 0.0)
    parts |= {"data": 0.001, "forward": 0.003, "backward": 0.004, "exposed_communication": 0.0015, "other": 0.0005}
    parts = {name: seconds * longer * step / 0.010 for name, seconds in parts.items()}
    record = {"benchmark": "breakdown", "key": item.key, "round": number, "status": "ok"} | item.to_dict()
    record |= {"parts": parts, "step_seconds": step, "profiled_step_seconds": step * longer}
    return record | {"missing_share": 1 - longer} | fields


def test_the_table_averages_the_middle_rounds_and_its_parts_add_up() -> None:
    steps = [0.010, 0.010, 0.5, 0.012]
    records = [made_up(number, step=step) for number, step in enumerate(steps)]
    # One round waited more and computed less than the others: its parts count or they do not, all of them.
    records[0]["parts"] |= {"backward": 0.001, "exposed_communication": 0.0045}
    records.append(made_up(4) | {"status": "failed", "reason": "it broke"})
    table = KIND.summarise(records)
    row = table.iloc[0]
    assert len(table) == 1
    assert (row["rounds"], row["failed"]) == (4, 1)
    assert row["step_seconds"] == pytest.approx(0.011)
    assert (row["step_seconds_low"], row["step_seconds_high"]) == (0.010, 0.5)
    assert sum(row[f"{part}_seconds"] for part in PARTS) == pytest.approx(0.011)
    assert row["backward_seconds"] == pytest.approx((0.004 + 0.0048) / 2)


def test_parts_that_add_up_are_said_to_and_parts_that_do_not_say_how_much_is_missing() -> None:
    (fine,) = KIND.findings(KIND.summarise([made_up(0, longer=1.02)]))
    assert "a step takes 10 ms. Of a profiled step: data 10 %, forward 30 %, backward 40 %" in fine
    assert "exposed communication 15 %" in fine
    assert "The parts add up to 1.020 of it (profiled steps took 2.0 % longer)." in fine
    (more,) = KIND.findings(KIND.summarise([made_up(0, longer=1.08)]))
    assert "do not add up: they make up 8.0 % more than the step" in more
    (less,) = KIND.findings(KIND.summarise([made_up(0, longer=0.93)]))
    assert (
        "do not add up: 7.0 % of the step is missing (profiled steps took 7.0 % less, so the machine was not steady"
        in less
    )


def test_a_configuration_that_always_failed_stays_in_the_table_and_out_of_the_sentences() -> None:
    table = KIND.summarise([made_up(0) | {"status": "failed", "reason": "it broke"}])
    assert math.isnan(table.iloc[0]["step_seconds"])
    assert KIND.findings(table) == []
    assert KIND.figures([], table) == {}
    assert KIND.findings(KIND.summarise([])) == []
    assert breakdown.write_traces([], ".") == []
