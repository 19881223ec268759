"""The comparison in words and in its figure: verdicts that the intervals hold, and every round in sight."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_up_records import record
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from mgpu_utils import plots
from mgpu_utils.benchmark import report
from mgpu_utils.benchmark.summary import summarise, summarise_each

RATES = {"single": 100.0, "data_parallel": 90.0, "ddp": 180.0, "independent": 190.0}
# Each round's own speed of the machine, and what a strategy's rounds differ by beside it.
MACHINE = [1.0, 0.9, 1.1, 0.95, 1.05, 1.0]
OWN = [0.99, 1.0, 1.01, 1.02, 0.98, 1.0]


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def measured(rounds: int = 6, rates: dict[str, float] = RATES, **changes: Any) -> list[dict[str, Any]]:
    return [
        record(name, number, rate * MACHINE[number] * (1.0 if name == "single" else OWN[number]), **changes)
        for name, rate in rates.items()
        for number in range(rounds)
    ]


def said(records: list[dict[str, Any]]) -> list[str]:
    return report.findings(summarise(records))


def dots(ax: Axes, label: str) -> np.ndarray[Any, Any]:
    found = [points for points in ax.collections if isinstance(points, PathCollection) and points.get_label() == label]
    return np.concatenate([np.asarray(points.get_offsets()) for points in found]) if found else np.empty((0, 2))


def test_faster_and_slower_are_said_with_their_interval() -> None:
    data_parallel, ddp = said(measured())
    assert ddp == (
        "digits_cnn, weak: DDP on 2: 1.80 x single (95 % interval 1.76 to 1.84): faster; "
        "95% of this machine's limit (95 % interval 95% to 95%)"
    )
    assert "(stand-in) on 2: 0.90 x single (95 % interval 0.88 to 0.92): slower; " in data_parallel


def test_neither_is_said_when_the_interval_holds_one() -> None:
    _, ddp = said(measured(rates=RATES | {"ddp": 100.0}))
    assert "1.00 x single (95 % interval 0.98 to 1.02): no difference seen" in ddp
    assert "faster" not in ddp
    assert "slower" not in ddp


def test_few_rounds_are_called_too_few() -> None:
    for line in said(measured(rounds=4)):
        assert "(range of 4 rounds " in line
        assert "4 rounds are too few to tell" in line
        assert "faster" not in line
        assert "slower" not in line


def test_rounds_without_a_baseline_do_not_count_for_a_verdict() -> None:
    failed = {"status": "failed", "reason": "out of memory"}
    some = [one | failed if one["strategy"] == "single" and one["round"] > 1 else one for one in measured()]
    assert "2 rounds are too few to tell" in said(some)[1]


def test_a_share_of_the_limit_whose_interval_holds_all_of_it_is_called_no_difference() -> None:
    at_the_limit = measured(rates=RATES | {"ddp": 190.0})
    for one in at_the_limit:
        if one["strategy"] == "independent":
            one["samples_per_second"] = 190.0 * MACHINE[one["round"]]
    assert said(at_the_limit)[1].endswith(
        "100% of this machine's limit (95 % interval 98% to 102%): no difference from it seen"
    )


def test_variants_precisions_and_too_many_ranks_are_named() -> None:
    rates = {"single": 100.0, "ddp_bf16_hook": 150.0}
    sizes = {"precision": "bfloat16", "accumulation": 4}
    some = measured(rates=rates, **sizes)
    some = [one | ({"oversubscribed": True, "world_size": 4} if one["strategy"] != "single" else {}) for one in some]
    assert said(some)[0].startswith(
        "digits_cnn, weak, bfloat16, 4 micro-batches: DDP, bf16 hook on 4 (more threads than cores): 1.50 x single"
    )


def test_an_outlier_round_is_named_and_kept() -> None:
    some = measured()
    for one in some:
        if one["strategy"] == "ddp" and one["round"] == 2:
            one["samples_per_second"] /= 3
    last = said(some)[-1]
    assert last == (
        "outliers, kept in all numbers: round 3 of DDP on 2 (digits_cnn, weak): 2.6x slower than the median"
    )
    assert not any("outliers" in line for line in said(measured()))


def test_many_outliers_do_not_make_a_page() -> None:
    some = []
    for model in "abcdefgh":
        for one in measured(rates={"ddp": 100.0}, model=model):
            some.append(one | ({"samples_per_second": 10.0} if one["round"] == 5 else {}))
    assert said(some)[-1].count("slower than the median") == 6
    assert said(some)[-1].endswith("; and 2 more, ringed in the figure")


def test_runs_measured_while_they_still_sped_up_are_named() -> None:
    some = measured()
    for one in some:
        one["warmup_steady"] = not (one["strategy"] == "ddp" and one["round"] < 2)
    assert said(some)[-1] == (
        "runs that were still speeding up when measuring began: 2 of 6 of DDP on 2 (digits_cnn, weak)"
    )


def test_the_short_table_tells_precisions_apart_only_where_there_are_several() -> None:
    one = report.short_table(summarise(measured()))
    assert "precision" not in one
    two = report.short_table(summarise(measured() + measured(precision="bfloat16")))
    assert list(two["precision"].unique()) == ["float32", "bfloat16"]


def test_every_round_is_a_dot_over_its_bar() -> None:
    records = measured()
    ax = plots.throughput(summarise(records))
    places = [patch.get_x() + patch.get_width() / 2 for patch in ax.patches]
    every = [points for points in ax.collections if isinstance(points, PathCollection)]
    assert [len(points.get_offsets()) for points in every] == [6, 6, 6]
    for place, points, name in zip(places, every, ("single", "data_parallel", "ddp"), strict=True):
        offsets = np.asarray(points.get_offsets())
        assert (abs(offsets[:, 0] - place) < 0.37).all()
        speeds = [one["samples_per_second"] for one in records if one["strategy"] == name]
        assert offsets[:, 1] == pytest.approx(speeds, rel=1e-5)


def test_outliers_are_ringed_and_named_once_in_the_legend() -> None:
    records = measured()
    for one in records:
        if one["strategy"] in ("ddp", "data_parallel") and one["round"] == 4:
            one["samples_per_second"] /= 2
    ax = plots.throughput(summarise(records))
    labels = ax.get_legend_handles_labels()[1]
    assert labels.count("one round") == 1
    assert labels.count("outlier round, kept in all numbers") == 1
    ringed = dots(ax, "outlier round, kept in all numbers")
    assert ringed[:, 1] == pytest.approx([90.0 * 1.05 * 0.98 / 2])
    figure = report.draw(summarise_each(records))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(texts) == len(set(texts)) == 4


def test_a_table_without_single_rounds_is_drawn_without_dots() -> None:
    table = summarise(measured()).drop(columns=["by_round", "precision", "accumulation", "oversubscribed"])
    assert not len(dots(plots.throughput(table), "one round"))
    empty = summarise(measured()).assign(by_round=math.nan)
    assert not len(dots(plots.throughput(empty), "one round"))


def test_precisions_and_micro_batches_have_panels_of_their_own() -> None:
    records = measured() + measured(precision="bfloat16") + measured(accumulation=4)
    figure = report.draw(summarise_each(records))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == [
        "digits_cnn, weak scaling (32 samples a device)",
        "digits_cnn, weak scaling (32 samples a device)\n4 micro-batches a step of so many samples each",
        "digits_cnn, weak scaling (32 samples a device)\nbfloat16",
    ]
    with pytest.raises(ValueError, match="One panel shows one precision"):
        plots.throughput(summarise(measured() + measured(precision="bfloat16")))


def test_variants_have_bars_whose_names_fit() -> None:
    more = dict.fromkeys(("ddp_bucket_view", "ddp_bf16_hook"), 170.0)
    size = {"world_size": 2, "total_threads": 2, "global_batch": 64}
    records = measured(rates={"single": 100.0, "ddp": 180.0}) + measured(rates=more, **size)
    figure = report.draw(summarise_each(records))
    figure.canvas.draw()
    labels = figure.axes[0].get_xticklabels()
    assert [label.get_text() for label in labels][2:] == [
        "DDP\ngradient_as_\nbucket_view\n2 ranks",
        "DDP\nbf16 hook\n2 ranks",
    ]
    boxes = [label.get_window_extent() for label in labels]
    assert all(one.x1 <= other.x0 for one, other in pairwise(boxes))


def test_bars_of_ranks_that_share_cores_are_marked() -> None:
    records = [one | ({"oversubscribed": True} if one["strategy"] == "ddp" else {}) for one in measured()]
    labels = [label.get_text() for label in plots.throughput(summarise(records)).get_xticklabels()]
    assert labels[-1] == "DDP\n2 ranks\noversubscribed"
