"""`mgpu bench` end to end: interrupted, resumed, finished; and a run that fails beside one that does not."""

from __future__ import annotations

import getpass
import json
import math
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import psutil
import pytest

from mgpu_utils.benchmark.config import load
from mgpu_utils.benchmark.kinds import NAMES, get
from mgpu_utils.benchmark.records import read
from mgpu_utils.benchmark.settings import settle

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "benchmarks" / "configs" / "tiny.yaml"
OTHERS = NAMES[1:]


# One fixture runs all six notebooks.
pytestmark = pytest.mark.timeout(900)


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "mgpu_utils.cli", "bench", *map(str, arguments)]


def bench(*arguments: str | Path) -> Ended:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=800)
    return Ended(done.returncode, done.stdout, done.stderr)


class Interrupted(NamedTuple):
    ended: Ended
    kept: list[dict[str, Any]]
    left_alive: list[str]
    left_files: list[str]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "results"


@pytest.fixture(scope="module")
def interrupted(out: Path) -> Interrupted:
    """The smallest suite, interrupted in the middle of the third run of its comparison."""
    temporary = out.parent / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        command("--config", TINY, "--out", out),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    deadline = time.monotonic() + 120
    while len(read(out / "records.jsonl")) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT if sys.platform != "win32" else signal.SIGTERM)
    said, errors = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=3)
    left = [" ".join(child.cmdline()) for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    files = [path.name for path in temporary.iterdir()]
    return Interrupted(Ended(process.returncode, said, errors), read(out / "records.jsonl"), left, files)


@pytest.fixture(scope="module")
def finished(out: Path, interrupted: Interrupted) -> Ended:
    """The same suite, taken up again and finished, after a line that the interruption tore."""
    with (out / "records.jsonl").open("ab") as file:
        file.write(b'{"strategy": "ddp", "sam')
    return bench("--config", TINY, "--out", out, "--resume")


def test_an_interruption_keeps_what_was_measured_and_says_how_to_go_on(interrupted: Interrupted, out: Path) -> None:
    assert interrupted.ended.status == 130, interrupted.ended.err
    assert len(interrupted.kept) >= 2
    config = load(TINY)
    total = sum(len(settle(config, out, name).runs) for name in config.benchmarks)
    assert f"{len(interrupted.kept)} of {total} runs are kept" in interrupted.ended.err
    assert f"mgpu bench --config {TINY} --out {out} --resume" in interrupted.ended.err


def test_an_interruption_leaves_no_process_and_no_temporary_file(interrupted: Interrupted) -> None:
    assert interrupted.left_alive == []
    assert interrupted.left_files == []


def test_resuming_measures_the_rest_and_nothing_twice(finished: Ended, interrupted: Interrupted, out: Path) -> None:
    assert finished.status == 0, finished.err
    records = read(out / "records.jsonl")
    kept = len(interrupted.kept)
    assert f"compare: {10 - kept} of 10 runs to measure" in finished.err
    assert records[:kept] == interrupted.kept
    assert len(records) == 10
    runs = {(record["strategy"], record["total_threads"], record["round"]) for record in records}
    assert len(runs) == 10


def test_every_record_says_what_the_design_promises(finished: Ended, out: Path) -> None:
    for record in read(out / "records.jsonl"):
        assert record["status"] == "ok", record
        assert record["implementation"] == ("threaded stand-in" if record["strategy"] == "data_parallel" else "torch")
        assert (record["device_type"], record["model"], record["scaling"]) == ("cpu", "digits_cnn", "weak")
        assert record["backend"] == ("gloo" if record["strategy"] == "ddp" else None)
        assert (record["per_device_batch"], record["steps"]) == (32, 20)
        assert record["global_batch"] == 32 * record["world_size"]
        processes = 2 if record["strategy"] in ("ddp", "independent") else 1
        assert len(record["seconds_per_rank"]) == processes
        assert record["seconds"] == max(record["seconds_per_rank"]) > 0
        total = record["global_batch"] * record["steps"] / record["seconds"]
        assert record["samples_per_second"] == pytest.approx(total)
        assert record["startup_seconds"] > 0
        threads_each = record["threads_per_process"]
        expected = threads_each * (processes if record["strategy"] != "data_parallel" else 2)
        assert record["total_threads"] == expected


def test_the_results_are_all_there_and_complete(finished: Ended, out: Path) -> None:
    names = {path.name for path in out.iterdir()}
    assert names == {
        "01_compare_strategies.ipynb",
        "config.yaml",
        "environment.json",
        "records.jsonl",
        "summary.csv",
        "throughput.png",
        "throughput.svg",
        ".lock",
        *OTHERS,
    }
    assert (out / "throughput.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", OTHERS)
def test_every_benchmark_of_the_suite_leaves_a_complete_folder(finished: Ended, out: Path, name: str) -> None:
    folder, kind = out / name, get(name)
    assert load(folder / "config.yaml").benchmarks == [name]
    records = read(folder / "records.jsonl")
    assert records
    for record in records:
        assert (record["status"], record["benchmark"]) == ("ok", name), record
        assert record["key"]
        assert {"seconds", "other_cpu_share"} <= set(record["machine"])
    assert not pd.read_csv(folder / "summary.csv").empty
    pictures = {path.stem for path in folder.glob("*.png")}
    assert pictures == {path.stem for path in folder.glob("*.svg")} != set()
    cells = json.loads((folder / kind.notebook).read_text(encoding="utf-8"))["cells"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")
    assert f"{name}: " in finished.err
    for sentence in kind.findings(kind.summarise(records)):
        assert sentence in finished.out


def test_no_result_of_the_suite_holds_a_path_a_host_or_a_user(finished: Ended, out: Path) -> None:
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in out.rglob("*")
        if path.suffix in (".json", ".jsonl", ".yaml", ".csv", ".ipynb")
    }
    assert len(texts) > 4 * len(NAMES)
    for path, text in texts.items():
        assert str(ROOT) not in text, path
        assert str(out) not in text, path
        assert platform.node() not in text or len(platform.node()) < 5, path


def test_the_table_has_a_row_a_configuration_with_paired_ratios(finished: Ended, out: Path) -> None:
    table = pd.read_csv(out / "summary.csv")
    assert sorted(zip(table["strategy"], table["total_threads"], strict=True)) == [
        ("data_parallel", 2),
        ("ddp", 2),
        ("independent", 2),
        ("single", 1),
        ("single", 2),
    ]
    assert (table["rounds"] == 2).all()
    assert table["samples_per_second_low"].le(table["samples_per_second"]).all()
    assert table["samples_per_second"].le(table["samples_per_second_high"]).all()
    records = read(out / "records.jsonl")
    rate = {(one["strategy"], one["total_threads"], one["round"]): one["samples_per_second"] for one in records}
    ratios = [rate["ddp", 2, number] / rate["single", 1, number] for number in range(2)]
    ddp = table[table["strategy"] == "ddp"].iloc[0]
    # The table has six digits.
    assert ddp["speedup"] == pytest.approx(sum(ratios) / 2, rel=1e-5)
    limits = [rate["ddp", 2, number] / rate["independent", 2, number] for number in range(2)]
    assert ddp["limit_share"] == pytest.approx(sum(limits) / 2, rel=1e-5)


def test_the_figure_says_on_what_it_was_measured_and_at_which_threads(finished: Ended, out: Path) -> None:
    drawn = (out / "throughput.svg").read_text(encoding="utf-8")
    for words in (
        "2 CPU ranks, gloo",
        "range of 2 rounds",
        "one thread a rank; hatched: one process with 2 threads",
        "DataParallel is the threaded stand-in",
        "ideal: N x single",
        "limit: N independent jobs",
        "samples/s, all ranks",
    ):
        assert words in drawn


def test_the_environment_names_versions_and_threads_but_no_host_user_or_path(finished: Ended, out: Path) -> None:
    text = (out / "environment.json").read_text(encoding="utf-8")
    environment = json.loads(text)
    assert environment["versions"]["torch"].startswith("2.")
    assert environment["cores_usable"] >= 1
    assert environment["threads_per_process"] == 1
    words = {str(value) for value in environment.values() if isinstance(value, str)}
    assert platform.node() not in words
    assert getpass.getuser() not in words
    assert str(ROOT) not in text
    assert str(Path.home()) not in text.replace('"/"', "")


def test_the_executed_notebook_holds_plain_output_and_no_path(finished: Ended, out: Path) -> None:
    text = (out / "01_compare_strategies.ipynb").read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert "application/vnd.jupyter.widget-view+json" not in text
    assert "TqdmWarning" not in text
    assert str(ROOT) not in text
    assert str(out) not in text
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])


def test_finished_results_are_not_measured_over_again(finished: Ended, out: Path) -> None:
    refused = bench("--config", TINY, "--out", out)
    assert refused.status == 2
    assert "holds results already; add --resume" in refused.err


def test_a_run_that_fails_is_recorded_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    # More bytes than any address space holds, so that this fails everywhere in the same way.
    config.write_text(
        "models:\n"
        "  - {name: small_resnet, per_device_batch: 1000000000000000, global_batch: 2, steps: 2}\n"
        "  - {name: digits_cnn, per_device_batch: 8, global_batch: 8, steps: 2}\n"
        "strategies: [single, ddp]\nscaling: [weak]\nworld_sizes: [1]\nrounds: 1\n",
        encoding="utf-8",
    )
    ended = bench("--config", config, "--out", tmp_path / "results")
    assert ended.status == 1
    by_status = {
        status: [one for one in read(tmp_path / "results" / "records.jsonl") if one["status"] == status]
        for status in ("ok", "failed")
    }
    assert {one["model"] for one in by_status["ok"]} == {"digits_cnn"}
    assert {one["model"] for one in by_status["failed"]} == {"small_resnet"}
    assert len(by_status["ok"]) == len(by_status["failed"]) == 2
    for one in by_status["failed"]:
        assert one["reason"].startswith("rank 0: RuntimeError: ")
        assert one["reason"] in ended.err
    table = pd.read_csv(tmp_path / "results" / "summary.csv")
    failed = table[table["model"] == "small_resnet"]
    assert list(failed["failed"]) == [1, 1]
    assert all(math.isnan(value) for value in failed["samples_per_second"])
    assert (tmp_path / "results" / "throughput.png").is_file()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rouns: 5\n", "unknown key rouns"),
        ("world_sizes: [4096]\n", "world size 4096"),
        ("device: cuda\n", "device is 'cuda'"),
    ],
)
def test_a_configuration_that_cannot_run_here_ends_before_anything_runs(tmp_path: Path, text: str, words: str) -> None:
    if "cuda" in text and __import__("torch").cuda.is_available():
        pytest.skip("this machine has a GPU")
    config = tmp_path / "config.yaml"
    config.write_text(
        "models: [{name: digits_cnn, per_device_batch: 8, global_batch: 8, steps: 2}]\n" + text, encoding="utf-8"
    )
    ended = bench("--config", config, "--out", tmp_path / "results")
    assert ended.status == 2
    assert words in ended.err
    assert ended.err.count("\n") == 1
    assert str(config) in ended.err
    assert not (tmp_path / "results").exists()
