"""The comparison figure shows what the table holds: bars, intervals, ideal, limit, and who is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
from made_up_records import record

from mgpu_utils import plots
from mgpu_utils.benchmark import report, results
from mgpu_utils.benchmark.summary import summarise, summarise_each


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def measured(**changes: Any) -> list[dict[str, Any]]:
    """Two rounds of every strategy, the second a tenth faster."""
    rates = {"single": 100.0, "data_parallel": 120.0, "ddp": 180.0, "independent": 190.0}
    made = [
        record(name, number, rate * (1 + 0.1 * number), **changes)
        for name, rate in rates.items()
        for number in range(2)
    ]
    threads = {"threads_per_process": 2, "total_threads": 2}
    made += [record("single", number, 150.0 * (1 + 0.1 * number), **threads, **changes) for number in range(2)]
    return made


def bars(ax: Axes) -> list[Rectangle]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def levels(ax: Axes) -> dict[str, float]:
    """Heights of the labelled horizontal lines."""
    return {
        str(lines.get_label()): float(lines.get_segments()[0][0][1])
        for lines in ax.collections
        if hasattr(lines, "get_segments") and not str(lines.get_label()).startswith("_")
    }


def test_bars_are_as_high_as_the_measured_medians() -> None:
    ax = plots.throughput(summarise(measured()))
    assert [bar.get_height() for bar in bars(ax)] == pytest.approx([105.0, 157.5, 126.0, 189.0])


def test_ideal_is_n_times_single_and_the_limit_is_what_independent_jobs_reach() -> None:
    heights = levels(plots.throughput(summarise(measured())))
    assert heights["ideal: N x single"] == pytest.approx(210.0)
    assert heights["limit: N independent jobs, range of 2 rounds"] == pytest.approx(199.5)


def test_the_process_with_all_threads_is_hatched_and_the_others_are_not() -> None:
    ax = plots.throughput(summarise(measured()))
    labels = [label.get_text() for label in ax.get_xticklabels()]
    hatched = [label for label, bar in zip(labels, bars(ax), strict=True) if bar.get_hatch()]
    assert hatched == ["single\n2 threads"]


def test_the_stand_in_is_called_one_and_the_real_class_is_not() -> None:
    on_cpu = plots.throughput(summarise(measured()))
    assert "DataParallel\nstand-in\n2 threads" in [label.get_text() for label in on_cpu.get_xticklabels()]
    real = [one | {"implementation": "torch", "device_type": "cuda"} for one in measured()]
    on_gpu = plots.throughput(summarise(real))
    assert "DataParallel\n2 devices" in [label.get_text() for label in on_gpu.get_xticklabels()]


def test_axes_name_their_unit_and_the_panel_its_batch() -> None:
    weak = plots.throughput(summarise(measured()))
    assert weak.get_ylabel() == "samples/s, all ranks"
    assert weak.get_title(loc="left") == "digits_cnn, weak scaling (32 samples a device)"
    strong = plots.throughput(summarise(measured(scaling="strong", global_batch=64)))
    assert strong.get_title(loc="left") == "digits_cnn, strong scaling (64 samples in all)"


def test_a_strategy_that_only_failed_is_shown_as_failed() -> None:
    failed = {"status": "failed", "reason": "out of memory"}
    records = [one | failed if one["strategy"] == "ddp" else one for one in measured()]
    ax = plots.throughput(summarise(records))
    assert [text.get_text() for text in ax.texts].count("failed") == 1
    assert len(bars(ax)) == 3


@pytest.mark.parametrize("column", ["model", "scaling"])
def test_a_panel_refuses_rows_that_do_not_belong_together(column: str) -> None:
    table = summarise(measured())
    other = table.assign(**{column: "other"})
    with pytest.raises(ValueError, match=f"One panel shows one {column}"):
        plots.throughput(pd.concat([table, other]))


def test_no_label_runs_into_another_with_many_world_sizes() -> None:
    many = measured()
    for size in (4, 8):
        sizes = {"world_size": size, "total_threads": size, "global_batch": 32 * size}
        many += [record(name, 0, 90.0 * size, **sizes) for name in ("data_parallel", "ddp", "independent")]
    figure = report.draw({"weak": summarise(many)})
    figure.canvas.draw()
    for ax in figure.axes:
        if ax.get_xticklabels()[0].get_rotation():
            continue
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert all(one.x1 <= other.x0 for one, other in pairwise(boxes))


def test_nothing_is_cut_off_at_the_edge_of_the_figure() -> None:
    records = measured() + measured(model="small_resnet") + measured(scaling="strong")
    for some in (records, measured()):
        figure = report.draw(summarise_each(some))
        figure.canvas.draw()
        whole = figure.bbox
        assert figure._suptitle is not None
        for text in [figure._suptitle, *[ax.yaxis.label for ax in figure.axes if ax.has_data()]]:
            box = text.get_window_extent()
            assert box.x0 >= whole.x0
            assert box.x1 <= whole.x1
            assert box.y1 <= whole.y1


def test_the_title_says_on_what_it_was_measured() -> None:
    title = report.title(summarise_each(measured()))
    assert title.splitlines() == [
        "Training throughput on 2 CPU ranks, gloo: median and range of 2 rounds",
        "one thread a rank; hatched: one process with 2 threads; in each bar: speed-up over single",
        "DataParallel is the threaded stand-in: nn.DataParallel itself needs two GPUs",
    ]
    on_gpus = [
        one | {"device_type": "cuda", "implementation": "torch", "backend": one["backend"] and "nccl"}
        for one in measured()
    ]
    title = report.title(summarise_each(on_gpus))
    assert title.startswith("Training throughput on 2 GPU ranks, nccl: ")
    assert "stand-in" not in title
    assert "thread" not in title


def test_findings_are_said_beside_equal_threads_and_the_limit() -> None:
    said = report.findings(summarise(measured()))
    assert said[1] == (
        "digits_cnn, weak: DDP on 2: 1.80 x single (range of 2 rounds 1.80 to 1.80): 2 rounds are too few to tell; "
        "1.20 x one process with the same 2 threads (range of 2 rounds 1.20 to 1.20): 2 rounds are too few to tell; "
        "95% of this machine's limit (range of 2 rounds 95% to 95%)"
    )
    assert said[0].startswith("digits_cnn, weak: DataParallel (stand-in) on 2: 1.20 x single")
    assert not any("busy" in line for line in said)


def test_a_process_that_more_threads_made_slower_is_pointed_out() -> None:
    slow = [
        one | {"samples_per_second": one["samples_per_second"] / 20}
        if one["total_threads"] > one["world_size"]
        else one
        for one in measured()
    ]
    assert all(
        "one process was slower with 2 threads than with fewer" in line for line in report.findings(summarise(slow))
    )


def test_strategies_are_told_apart_without_seeing_colours_as_most_do() -> None:
    def lightness(color: str) -> float:
        red, green, blue = (int(to_hex(color)[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = sorted(lightness(color) for name, color in plots.STRATEGY_COLORS.items() if name != "independent")
    assert all(lighter - darker > 0.04 for darker, lighter in pairwise(shades))


def test_a_failure_is_said_once_with_all_its_rounds() -> None:
    failed = {"status": "failed", "reason": "rank 1: RuntimeError: out of memory"}
    records = [one | failed if one["strategy"] == "ddp" else one for one in measured()]
    assert results.failures(records) == [
        "digits_cnn, weak, ddp on 2 (2 threads): rank 1: RuntimeError: out of memory (round 1, 2)"
    ]
    assert results.failures(measured()) == []
