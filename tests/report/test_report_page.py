"""The page: it stands alone, names what it shows and on what that was measured, and labels what differs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pandas as pd
import pytest
from made_up_results import CONFIG, LAPTOP, TWO_GPUS, call, failed, run, runs, write_result
from reports import Page, report

from mgpu_utils.report import privacy
from mgpu_utils.report.embedding import from_file
from mgpu_utils.report.tables import from_summary
from mgpu_utils.report.views import in_parts

BUSY = {"seconds": 3.0, "other_cpu_share": 0.42, "steal_share": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite's folder on a laptop with a failure, busy runs and a benchmark nobody knows; the same on two GPUs."""
    folder = tmp_path_factory.mktemp("results")
    records = runs()
    records[2] = failed(run("ddp", 0, 1.0), "rank 1 ended with exit code 1: no file /home/alice/work/secret/data.bin")
    records[5]["machine"] = BUSY
    laptop = write_result(folder / "laptop", records)
    other = write_result(laptop / "made_up_kind", [call(1024, number, 1e-3) for number in range(5)])
    other.joinpath("summary.csv").write_text(
        "operation,bytes,rounds,seconds,seconds_low,seconds_high\na,1024,5,2,1,3\n"
    )
    draw_png(other / "latency.png")
    write_result(folder / "same", runs(1.1))
    write_result(folder / "workstation", runs(50, device_type="cuda"), TWO_GPUS)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    outcome = report(*(folder / name for name in ("laptop", "same", "workstation")), "--out", folder / "page.html")
    assert outcome.status == 0, outcome.err
    return Page(folder / "page.html")


def draw_png(path: Path) -> None:
    from matplotlib.figure import Figure

    Figure(figsize=(1, 1)).savefig(path, metadata={"Author": "alice"})


def test_the_page_loads_nothing_from_outside(page: Page) -> None:
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "iframe", "object", "embed", "base")]
    sources = [attributes.get("src") or "" for _, attributes in page.tags if "src" in attributes]
    assert sources
    assert all(source.startswith("data:image/") for source in sources)
    assert "srcset" not in page.text
    style = re.search("<style>(.*?)</style>", page.text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    targets = [str(attributes["href"]) for attributes in page.of("a")]
    assert all(target.startswith(("#", "https://")) for target in targets)


def test_every_figure_says_in_words_what_it_shows(page: Page) -> None:
    texts = [str(image.get("alt") or "") for image in page.of("img")]
    # Three of comparisons, one that lies in the folder, one of the comparison between folders.
    assert len(texts) == 5
    assert all(texts)
    assert "digits_cnn, weak, DataParallel (stand-in) on 2 700" in texts[0]
    assert "different environment or set-up" in texts[-1]


def test_the_table_of_contents_leads_to_headings_in_order(page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    inside = [str(link["href"])[1:] for link in page.of("a") if str(link["href"]).startswith("#")]
    assert inside
    assert set(inside) <= ids
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))


def test_a_failed_run_is_named_with_its_reason_but_without_the_path_in_it(page: Page) -> None:
    assert "digits_cnn, weak, DDP on 2: rank 1 ended with exit code 1: no file …/data.bin (round 1)" in page.words
    assert "alice" not in page.text


def test_busy_runs_are_named(page: Page) -> None:
    assert "The machine was busy during 1 of 20 runs." in page.words
    assert "DataParallel (stand-in) on 2, round 2: other processes used 42% of the cores" in page.words


def test_every_result_names_machine_date_and_the_command_that_repeats_it(page: Page) -> None:
    assert "Example Processor 9000, 2 cores, PyTorch 2.13.0+cpu" in page.words
    assert "2 x Example GPU 80GB, 16 cores, PyTorch 2.13.0+cu130" in page.words
    assert "2026-05-01 10:00 to 2026-05-05 10:00 UTC" in page.words
    assert "mgpu bench --config config.yaml --out workstation" in page.words
    assert CONFIG in page.text


def test_rows_of_another_environment_are_labelled_and_those_of_the_same_are_not(page: Page) -> None:
    compared = [row for row in page.rows if row[-1].startswith(("different: ", "same environment"))]
    by_folder = {name: [row[-1] for row in compared if name in row] for name in ("same", "workstation")}
    assert len(by_folder["same"]) == len(by_folder["workstation"]) == 4
    assert set(by_folder["same"]) == {"same environment and set-up"}
    assert all("environment A and B" in label and "device cpu and cuda" in label for label in by_folder["workstation"])
    assert "A and B: GPUs none and 2 x Example GPU 80GB" in page.words
    assert "These results come from different environments" in page.words


def test_an_unknown_benchmark_shows_the_table_and_the_pictures_of_its_folder(page: Page) -> None:
    assert "laptop/made_up_kind" in page.words
    assert ["a", "1024", "5", "2 [1, 3]"] in page.rows
    assert [text for image in page.of("img") if "figure of the benchmark made_up_kind" in (text := str(image["alt"]))]


def test_table_heads_have_units_shares_are_per_cent_and_short_times_milliseconds() -> None:
    frame = pd.DataFrame({"algbw_gb_s": [1.5, 2.0], "latency_us": [30.0, 40.0], "line_miss": [0.25, -0.1]})
    frame = frame.assign(half_bandwidth_bytes=[1024, 2048], bucket_cap_mb=[1, 25], samples_per_second=[10.0, 20.0])
    frame = frame.assign(seconds=[0.002, 0.003], seconds_low=[0.001, 0.002], seconds_high=[0.003, 0.004])
    table = from_summary(frame.assign(startup_seconds=[0.5, 2.5]), "")
    assert table.header == [
        "algbw (GB/s)", "latency (us)", "line miss", "half bandwidth (bytes)", "bucket cap (MiB)", "samples/s",
        "time (ms)", "startup (s)",
    ]  # fmt: skip
    assert [cell.text for cell in table.rows[0]] == ["1.5", "30", "25%", "1024", "1", "10", "2", "0.5"]
    assert table.rows[0][6].spread == "[1, 3]"
    assert table.rows[1][2].text == "-10%"


@pytest.mark.parametrize(
    ("line", "about", "parts"),
    [
        ("short: a; b", "short: a; b", []),
        (
            "net, weak: DDP on 2: 1.05 x single (95 % interval 0.99 to 1.26; 5 rounds): no difference seen; "
            "0.91 x one process with the same threads; 54% of this machine's limit",
            "net, weak: DDP on 2",
            [
                "1.05 x single (95 % interval 0.99 to 1.26; 5 rounds): no difference seen",
                "0.91 x one process with the same threads",
                "54% of this machine's limit",
            ],
        ),
        (
            "broadcast on 2 ranks over gloo: 174 us latency. It misses by more than 20 % at 4 KiB (22 % slower); "
            "64 MiB (24 % slower). The rest is near the line.",
            "broadcast on 2 ranks over gloo",
            [
                "174 us latency.",
                "It misses by more than 20 % at 4 KiB (22 % slower); 64 MiB (24 % slower).",
                "The rest is near the line.",
            ],
        ),
    ],
)
def test_a_long_finding_is_a_list_of_what_is_said_of_one_thing(line: str, about: str, parts: list[str]) -> None:
    assert in_parts(line) == (about, parts)


def test_results_are_named_by_their_benchmark_and_by_their_folder_where_two_have_the_same(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    assert "Compare strategies: laptop" in page.words
    assert report(folder / "same", "--out", tmp_path / "page.html").status == 0
    alone = Page(tmp_path / "page.html")
    assert "Compare strategies: same" not in alone.words
    assert "Benchmark report: Compare strategies" in alone.text


def test_what_is_long_is_folded_and_what_was_measured_here_is_not(folder: Path, tmp_path: Path) -> None:
    calls = [call(size, number, 1e-3) for number in range(2) for size in range(30)]
    many = write_result(tmp_path / "many", calls)
    rows = "\n".join(f"a,{size},2,1,1,1" for size in range(30))
    (many / "summary.csv").write_text("operation,bytes,rounds,seconds,seconds_low,seconds_high\n" + rows + "\n")
    assert report(folder / "same", many, "--out", tmp_path / "page.html").status == 0
    text = Page(tmp_path / "page.html").text
    folded = "".join(re.findall(r"<details>.*?</details>", text, re.DOTALL))
    assert "Show all 30 rows" in folded
    assert "published results</summary>" in folded
    assert "github.com" in folded
    shown = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert "this result" in shown
    assert shown.count("<table") >= 3


def test_the_comments_of_a_picture_are_left_out(tmp_path: Path) -> None:
    import base64

    draw_png(tmp_path / "picture.png")
    assert b"alice" in (tmp_path / "picture.png").read_bytes()
    kept = base64.b64decode(from_file(tmp_path / "picture.png", "", "").source.split(",")[1])
    assert b"alice" not in kept
    assert kept.endswith(b"IEND\xaeB`\x82")


def test_published_results_stand_beside_the_readers_own_with_links_and_reasons(page: Page) -> None:
    assert page.words.count("Beside published results") == 3
    assert any(str(link["href"]).startswith("https://") for link in page.of("a"))
    assert "hardware: processor cores here, V100" in page.words


def test_no_path_of_this_machine_gets_into_page_or_table(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy, "_host", lambda: "alices-desk")
    monkeypatch.setattr(privacy, "_user", lambda: "alice")
    reason = "alices-desk: ValueError of alice in file:///home/alice/x/y.py, see C:\\Users\\alice\\log.txt"
    write_result(tmp_path / "one", [*runs(rounds=1), failed(run("ddp", 1, 1.0), reason)], config="models: # by alice\n")
    outcome = report(tmp_path / "one", "--out", tmp_path / "page.html", "--csv", tmp_path / "all.csv")
    assert outcome.status == 0
    for path in ("page.html", "all.csv"):
        text = (tmp_path / path).read_text(encoding="utf-8")
        assert "alice" not in text
        assert str(tmp_path) not in text
    assert "HOST: ValueError of USER in …/y.py, see …/log.txt" in Page(tmp_path / "page.html").words


def test_the_csv_holds_every_configuration_once_with_folder_benchmark_and_environment(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    outcome = report(folder / "laptop", folder / "workstation", "--out", out, "--csv", tmp_path / "all.csv")
    assert outcome.status == 0
    table = pd.read_csv(tmp_path / "all.csv")
    assert dict(table.groupby("folder").size()) == {"laptop": 4, "laptop/made_up_kind": 1, "workstation": 4}
    assert set(table["benchmark"]) == {"compare", "made_up_kind"}
    assert dict(zip(table["folder"], table["environment"], strict=True))["workstation"] == "B"
    ddp = table[(table["folder"] == "workstation") & (table["strategy"] == "ddp")].iloc[0]
    assert ddp["samples_per_second"] == pytest.approx(70_000)
    assert ddp["machine"].startswith("2 x Example GPU")


def test_the_same_results_give_the_same_page_in_the_first_folder(tmp_path: Path) -> None:
    result = write_result(tmp_path / "one", runs(rounds=2))
    assert report(result).status == 0
    first = (result / "report.html").read_bytes()
    assert report(result).status == 0
    assert (result / "report.html").read_bytes() == first
    assert sorted(path.name for path in result.iterdir()) == [
        "config.yaml",
        "environment.json",
        "records.jsonl",
        "report.html",
    ]


def test_a_folder_that_keeps_only_its_summary_is_shown(tmp_path: Path) -> None:
    whole = write_result(tmp_path / "whole", runs())
    assert report(whole, "--out", tmp_path / "a.html", "--csv", tmp_path / "all.csv").status == 0
    bare = write_result(tmp_path / "bare", [])
    (bare / "records.jsonl").unlink()
    table = pd.read_csv(tmp_path / "all.csv").drop(columns=["folder", "benchmark", "environment", "machine"])
    table.to_csv(bare / "summary.csv", index=False)
    outcome = report(bare, "--out", tmp_path / "page.html")
    assert outcome.status == 0, outcome.err
    page = Page(tmp_path / "page.html")
    assert "single runs are not kept here, only their summary" in page.words
    assert [row for row in page.rows if "DDP" in row and "1,400 [1,372, 1,428]" in row]


def test_a_result_without_environment_is_not_mixed_with_others_in_silence(tmp_path: Path) -> None:
    known = write_result(tmp_path / "known", runs(), LAPTOP)
    unknown = write_result(tmp_path / "unknown", runs(), None)
    outcome = report(known, unknown, "--out", tmp_path / "page.html")
    assert "unknown: There is no environment.json." in outcome.err
    page = Page(tmp_path / "page.html")
    labels = [row[-1] for row in page.rows if "unknown" in row and row[-1].startswith("different")]
    assert labels == ["different: environment A and ?"] * 4


def test_a_known_benchmark_is_summarised_from_its_records(tmp_path: Path) -> None:
    records = [row | {"benchmark": "scale_out", "key": f"{row['strategy']}"} for row in runs()]
    suite = tmp_path / "suite"
    write_result(suite / "scale_out", records)
    outcome = report(suite, "--out", tmp_path / "page.html", "--csv", tmp_path / "all.csv")
    assert outcome.status == 0, outcome.err
    page = Page(tmp_path / "page.html")
    assert "could not be used" not in page.words
    assert [row for row in page.rows if "DDP" in row and "1.40" in row]
    assert "mgpu bench --config config.yaml --out suite" in page.words
    assert set(pd.read_csv(tmp_path / "all.csv")["benchmark"]) == {"scale_out"}


def test_a_figure_that_cannot_be_drawn_is_named_and_the_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no colour for this strategy")

    monkeypatch.setattr("mgpu_utils.benchmark.report.draw", refuse)
    outcome = report(write_result(tmp_path / "one", runs(rounds=2)), "--out", tmp_path / "page.html")
    assert outcome.status == 0
    page = Page(tmp_path / "page.html")
    assert "Not every figure could be made (ValueError: no colour for this strategy)." in page.words
    assert [row for row in page.rows if "DDP" in row]


def test_records_that_cannot_be_summarised_leave_what_the_folder_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KeyError("steps")

    monkeypatch.setattr("mgpu_utils.benchmark.summary.summarise_each", refuse)
    folder = write_result(tmp_path / "one", runs(rounds=2))
    (folder / "summary.csv").write_text("strategy,rounds\nddp,2\nsingle,1\n")
    assert report(folder, "--out", tmp_path / "page.html").status == 0
    page = Page(tmp_path / "page.html")
    assert "No summary could be made of the records (KeyError: 'steps')." in page.words
    assert ["ddp", "2"] in page.rows
