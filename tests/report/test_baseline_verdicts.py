"""`mgpu report --baseline`: a regression ends with status 3, noise with 0, and what cannot be judged with 2."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from made_up_results import LAPTOP, TWO_GPUS, call, failed, run, runs, write_result
from reports import Outcome, Page, report

NEWER_TORCH = LAPTOP | {"versions": LAPTOP["versions"] | {"torch": "2.14.0+cpu"}}


def baseline(
    tmp_path: Path, old: list[Any], new: list[Any], *arguments: object, environment: dict[str, Any] | None = LAPTOP
) -> Outcome:
    before = write_result(tmp_path / "old", old)
    after = write_result(tmp_path / "new", new, environment)
    return report("--baseline", before, after, *arguments)


def line_of(outcome: Outcome, configuration: str) -> str:
    return next(line for line in outcome.out.splitlines() if line.startswith(configuration))


def test_a_slower_configuration_is_a_regression_and_the_others_are_not(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(), runs(slower={"ddp": 0.85}))
    assert outcome.status == 3
    assert line_of(outcome, "digits_cnn, weak, DDP on 2").endswith("slower beyond the intervals")
    assert "0.850 [0.8" in line_of(outcome, "digits_cnn, weak, DDP on 2")
    assert line_of(outcome, "digits_cnn, weak, single").endswith("no difference seen")
    assert "Regression: 1 of 4 judged configurations got worse" in outcome.out


def test_a_faster_configuration_is_no_regression(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(), runs(slower={"ddp": 1.2}))
    assert outcome.status == 0
    assert line_of(outcome, "digits_cnn, weak, DDP on 2").endswith("faster beyond the intervals")


def test_noise_is_not_reported(tmp_path: Path) -> None:
    alarms = 0
    for seed in range(10):
        chance = random.Random(seed)
        old, new = (
            [row | {"samples_per_second": 1000 * chance.lognormvariate(0, 0.04)} for row in runs()] for _ in range(2)
        )
        alarms += baseline(tmp_path, old, new).status != 0
    assert alarms <= 1


def test_a_change_within_the_tolerance_is_said_and_let_through(tmp_path: Path) -> None:
    old, new = runs(), runs(slower={"ddp": 0.95})
    outcome = baseline(tmp_path, old, new, "--tolerance", 0.06)
    assert outcome.status == 0
    assert line_of(outcome, "digits_cnn, weak, DDP on 2").endswith("slower, within the tolerance")
    assert baseline(tmp_path, old, new, "--tolerance", 0.01).status == 3


def test_for_seconds_more_is_worse(tmp_path: Path) -> None:
    chance = random.Random(0)
    old, more = ([call(1024, n, s * chance.lognormvariate(0, 0.01)) for n in range(5)] for s in (1.0, 1.5))
    outcome = baseline(tmp_path, old, more)
    assert outcome.status == 3
    assert "seconds" in line_of(outcome, "made_up_kind: all_reduce, 1024")
    assert baseline(tmp_path, more, old).status == 0


def test_a_configuration_that_fails_now_is_a_regression(tmp_path: Path) -> None:
    new = [failed(row, "rank 1 was killed") if row["strategy"] == "ddp" else row for row in runs()]
    outcome = baseline(tmp_path, runs(), new)
    assert outcome.status == 3
    assert line_of(outcome, "digits_cnn, weak, DDP on 2").endswith("fails now: rank 1 was killed")


def test_too_few_rounds_are_not_judged(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(rounds=4), runs(0.5, rounds=4))
    assert outcome.status == 2
    assert "too few rounds to tell (4 and 4, 5 needed)" in outcome.out
    assert "Not judged: no configuration has 5 rounds" in outcome.out


def test_another_machine_is_labelled_and_judged_only_when_asked_for(tmp_path: Path) -> None:
    slower = runs(0.5)
    outcome = baseline(tmp_path, runs(), slower, environment=LAPTOP | {"cpu": "Other Processor"})
    assert outcome.status == 2
    assert "another machine: CPU Example Processor 9000 and Other Processor" in outcome.out
    assert "Not judged: the two were measured on different machines" in outcome.out
    asked = report("--baseline", tmp_path / "old", tmp_path / "new", "--across-machines")
    assert asked.status == 3
    assert "another machine" in asked.out


def test_a_gpu_and_a_processor_are_paired_across_machines(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(), runs(20, device_type="cuda"), "--across-machines", environment=TWO_GPUS)
    assert outcome.status == 0
    assert "20.000 [" in line_of(outcome, "digits_cnn, weak, DDP on 2")


def test_other_versions_are_labelled_and_judged(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(), runs(0.8), environment=NEWER_TORCH)
    assert outcome.status == 3
    assert "other versions: torch 2.13.0+cpu and 2.14.0+cpu" in outcome.out


def test_what_only_one_side_measured_is_named(tmp_path: Path) -> None:
    old = [row for row in runs() if row["strategy"] != "independent"]
    new = [row for row in runs() if row["strategy"] != "data_parallel"]
    outcome = baseline(tmp_path, old, new)
    assert outcome.status == 0
    assert "only in OLD: digits_cnn, weak, DataParallel (stand-in) on 2" in outcome.out
    assert "only in NEW: digits_cnn, weak, independent on 2" in outcome.out


def test_nothing_in_common_is_one_sentence(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(), runs(model="small_resnet"))
    assert outcome.status == 2
    assert "No configuration is in both" in outcome.err
    other = report("--baseline", tmp_path / "old", write_result(tmp_path / "other", [call(1, 0, 1.0)]))
    assert other.status == 2
    assert "OLD holds compare, NEW holds made_up_kind" in other.err


@pytest.mark.parametrize("tolerance", [-0.1, 1.0])
def test_a_tolerance_out_of_range_is_refused(tmp_path: Path, tolerance: float) -> None:
    outcome = baseline(tmp_path, runs(rounds=1), runs(rounds=1), "--tolerance", tolerance)
    assert outcome.status == 2
    assert "--tolerance" in outcome.err


def test_a_missing_folder_ends_with_status_2(tmp_path: Path) -> None:
    outcome = report("--baseline", write_result(tmp_path / "old", runs(rounds=1)), tmp_path / "nowhere")
    assert outcome.status == 2
    assert "is not there" in outcome.err


def test_two_results_of_one_benchmark_on_a_side_are_refused(tmp_path: Path) -> None:
    write_result(tmp_path / "both" / "a", runs(rounds=1))
    write_result(tmp_path / "both" / "b", runs(rounds=1))
    outcome = report("--baseline", tmp_path / "both", tmp_path / "both" / "a")
    assert outcome.status == 2
    assert "OLD holds two results of compare" in outcome.err


def test_the_page_of_both_is_written_beside_the_verdict(tmp_path: Path) -> None:
    outcome = baseline(tmp_path, runs(), runs(slower={"ddp": 0.8}), "--out", tmp_path / "page.html")
    assert outcome.status == 3
    assert "old, new" in Page(tmp_path / "page.html").words


def test_records_of_before_a_new_field_are_still_paired(tmp_path: Path) -> None:
    new = [row | {"precision": "float32", "accumulation": 1} for row in runs()]
    assert baseline(tmp_path, runs(), new).status == 0


def test_one_configuration_with_another_number_of_steps_is_paired_only_across(tmp_path: Path) -> None:
    old, new = [run("ddp", number, 1000.0 + number) for number in range(5)], []
    new = [row | {"steps": 50} for row in old]
    assert "--across-machines pairs what differs only by machine or number of steps" in baseline(tmp_path, old, new).err


def collective(number: int, factor: float, large: float) -> dict[str, Any]:
    about = {"benchmark": "collectives", "key": "all_reduce/2", "collective": "all_reduce", "world_size": 2}
    points = [{"bytes": 1024, "seconds": 1e-3 * factor}, {"bytes": 65536, "seconds": 2e-3 * factor * large}]
    return about | {"round": number, "status": "ok", "sizes": [1024, 65536], "points": points}


def test_each_message_size_of_a_collective_is_judged_by_itself(tmp_path: Path) -> None:
    old, new = ([collective(n, 1 + n / 100, large) for n in range(5)] for large in (1.0, 1.5))
    outcome = baseline(tmp_path, old, new)
    assert outcome.status == 3
    assert line_of(outcome, "collectives: all_reduce on 2 ranks, 1,024 bytes").endswith("no difference seen")
    assert line_of(outcome, "collectives: all_reduce on 2 ranks, 65,536 bytes").endswith("slower beyond the intervals")
    gone = [failed(row, "killed") for row in old]
    assert baseline(tmp_path, old, [{k: v for k, v in row.items() if k != "points"} for row in gone]).status == 3


def test_records_without_a_number_to_compare_are_named(tmp_path: Path) -> None:
    rows = [{"benchmark": "predict", "key": "a", "round": 0, "status": "ok", "steps": [{"forward": 1.0}]}]
    before, after = write_result(tmp_path / "old" / "a", runs()), write_result(tmp_path / "new" / "a", runs())
    for folder in (before, after):
        write_result(folder / "predict", rows)
    outcome = report("--baseline", tmp_path / "old", tmp_path / "new")
    assert outcome.status == 0
    assert "predict: its records hold no single number to compare" in outcome.out
