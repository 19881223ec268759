"""Bad input gets one sentence each, and what is whole is used."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from made_up_results import CONFIG, LAPTOP, failed, run, runs, write_result
from reports import Page, report

from mgpu_utils.report.folders import FORMAT, ReportError, find


def one_sentence(text: str) -> bool:
    return text.startswith("mgpu report: ") and text.count("\n") == 1 and "Traceback" not in text


def test_a_folder_that_is_not_there_ends_with_status_2(tmp_path: Path) -> None:
    outcome = report(tmp_path / "nowhere")
    assert outcome.status == 2
    assert one_sentence(outcome.err)
    assert "nowhere is not there" in outcome.err


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    outcome = report(tmp_path / "notes.txt")
    assert outcome.status == 2
    assert "is a file, but a folder of results is needed" in outcome.err


def test_an_empty_folder_says_how_results_are_made(tmp_path: Path) -> None:
    outcome = report(tmp_path)
    assert outcome.status == 2
    assert one_sentence(outcome.err)
    assert "holds no results" in outcome.err
    assert "mgpu bench --out" in outcome.err


def test_no_folder_at_all_is_said(tmp_path: Path) -> None:
    outcome = report()
    assert outcome.status == 2
    assert "name at least one folder" in outcome.err


def test_a_damaged_line_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    def damage(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join([lines[0], '{"strategy": "ddp", "rou\n', *lines[2:], '{"torn": '])

    folder = write_result(tmp_path / "one", runs(), change=damage)
    outcome = report(folder, "--out", tmp_path / "page.html")
    assert outcome.status == 0
    assert "one: Line 2 of records.jsonl is damaged and left out." in outcome.err
    assert "one: The last line of records.jsonl was torn by an interruption" in outcome.err
    assert "Line 2 of records.jsonl is damaged" in Page(tmp_path / "page.html").words
    assert len(find([folder])[0].records) == 19


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples_per_second": math.nan}, "line 1 (samples_per_second is nan)"),
        ({"startup_seconds": math.inf}, "line 1 (startup_seconds is inf)"),
        ({"seconds": -1.0}, "line 1 (seconds is -1.0)"),
        ({"model": None}, "line 1 (no model)"),
        ({"status": None}, "line 1 (no status)"),
    ],
)
def test_a_record_that_cannot_be_used_is_left_out_with_its_reason(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    records = runs()
    records[0] |= change
    result = find([write_result(tmp_path / "one", records)])[0]
    assert len(result.records) == 19
    assert any(said in problem for problem in result.problems)


def test_records_of_a_newer_format_are_refused(tmp_path: Path) -> None:
    records = [record | {"format": FORMAT + 1} for record in runs(rounds=1)]
    outcome = report(write_result(tmp_path / "one", records))
    assert outcome.status == 2
    assert one_sentence(outcome.err)
    assert "4 records were written in a newer format" in outcome.err
    assert "update mgpu-utils" in outcome.err


def test_two_kinds_of_device_in_one_folder_are_named(tmp_path: Path) -> None:
    result = find([write_result(tmp_path / "one", [*runs(rounds=1), run("ddp", 1, 1.0, device_type="cuda")])])[0]
    assert any("holds runs on cpu and on cuda" in problem for problem in result.problems)


def test_a_run_that_was_repeated_counts_once(tmp_path: Path) -> None:
    first, again = failed(run("ddp", 0, 1.0), "killed"), run("ddp", 0, 1400.0)
    result = find([write_result(tmp_path / "one", [first, again])])[0]
    assert [record["status"] for record in result.records] == ["ok"]


def test_a_page_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "one", runs(rounds=1))
    (tmp_path / "taken").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    outcome = report(folder, "--out", tmp_path / "taken")
    assert outcome.status == 2
    assert one_sentence(outcome.err)
    assert "cannot be written" in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_only_failures_make_a_page_without_a_table(tmp_path: Path) -> None:
    records = [failed(record, "out of memory") for record in runs(rounds=1)]
    outcome = report(write_result(tmp_path / "one", records), "--out", tmp_path / "page.html")
    assert outcome.status == 0
    page = Page(tmp_path / "page.html")
    assert "No run went well, so there is no table." in page.words
    assert "out of memory (round 1)" in page.words


def test_a_suite_is_found_from_its_folder_and_shares_its_configuration(tmp_path: Path) -> None:
    suite = write_result(tmp_path / "suite", runs(rounds=1))
    records = [row | {"benchmark": "scale_out", "key": row["strategy"]} for row in runs(rounds=1)]
    inner = write_result(suite / "scale_out", records, environment=None, config=None)
    found = find([suite, inner])
    assert [result.label for result in found] == ["suite", "suite/scale_out"]
    assert found[1].config == CONFIG
    assert found[1].environment == LAPTOP
    assert not found[1].problems


def test_two_folders_of_one_name_get_labels_that_differ(tmp_path: Path) -> None:
    folders = [write_result(tmp_path / place / "result", runs(rounds=1)) for place in ("a", "b")]
    assert [result.label for result in find(folders)] == ["result", "result (2)"]


def test_a_relative_folder_keeps_the_name_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_result(tmp_path / "results" / "laptop", runs(rounds=1))
    monkeypatch.chdir(tmp_path)
    assert find([Path("results/laptop")])[0].label == "results/laptop"


def test_a_damaged_environment_is_named(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "one", runs(rounds=1))
    (folder / "environment.json").write_text(json.dumps(["not", "an", "object"]))
    result = find([folder])[0]
    assert result.environment is None
    assert any("environment.json is damaged" in problem for problem in result.problems)


def test_a_folder_of_damaged_records_alone_raises(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"Lines 1, 2 of records.jsonl are damaged"):
        find([write_result(tmp_path / "one", [], change=lambda text: "no\njson\n")])


def test_old_records_get_what_was_no_choice_when_they_were_written(tmp_path: Path) -> None:
    result = find([write_result(tmp_path / "one", runs(rounds=1))])[0]
    assert {record["precision"] for record in result.records} == {"float32"}
    assert {record["accumulation"] for record in result.records} == {1}
