"""Records survive an interruption, and resuming does what is left and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_records import record

from mgpu_utils.benchmark import records
from mgpu_utils.benchmark.config import BenchmarkConfig
from mgpu_utils.benchmark.plan import Configuration, configurations, order
from mgpu_utils.planning import Hardware


@pytest.fixture
def runs(config: BenchmarkConfig) -> list[tuple[int, Configuration]]:
    return order(configurations(config, Hardware(cores=2), {}), rounds=2, seed=0)


def made(run: tuple[int, Configuration], status: str = "ok") -> dict[str, object]:
    number, configuration = run
    return configuration.to_dict() | {"round": number, "status": status}


def test_records_are_read_back_in_the_order_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    written = [record("ddp", number, 100.0 + number) for number in range(3)]
    for one in written:
        records.append(path, one)
    assert records.read(path) == written


def test_a_torn_last_line_is_left_out_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first, second = record("ddp", 0, 100.0), record("ddp", 1, 101.0)
    records.append(path, first)
    with path.open("ab") as file:
        file.write(b'{"strategy": "ddp", "rou')
    assert records.read(path) == [first]
    records.append(path, second)
    assert records.read(path) == [first, second]


def test_damage_in_the_middle_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, record("ddp", 0, 100.0))
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with pytest.raises(ValueError, match="line 1 is damaged"):
        records.read(path)


def test_a_file_that_is_not_there_holds_no_records(tmp_path: Path) -> None:
    assert records.read(tmp_path / "records.jsonl") == []


def test_resuming_leaves_out_what_went_well(runs: list[tuple[int, Configuration]]) -> None:
    done = [made(run) for run in runs[:4]]
    assert records.remaining(runs, done) == runs[4:]
    assert records.remaining(runs, [made(run) for run in runs]) == []


def test_resuming_repeats_what_failed(runs: list[tuple[int, Configuration]]) -> None:
    assert records.remaining(runs, [made(runs[0], "failed"), made(runs[1])]) == [runs[0], *runs[2:]]


def test_a_repeated_run_replaces_its_failure(runs: list[tuple[int, Configuration]]) -> None:
    newest = records.latest([made(runs[0], "failed"), made(runs[1]), made(runs[0])])
    assert [one["status"] for one in newest] == ["ok", "ok"]
    assert records.remaining(runs[:2], newest) == []


def test_the_same_configuration_in_another_round_is_another_run(
    runs: list[tuple[int, Configuration]],
) -> None:
    later = next(run for run in runs if run[0] == 1 and run[1] == runs[0][1])
    assert later in records.remaining(runs, [made(runs[0])])
