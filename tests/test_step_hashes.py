"""Hashes step by step, and the pictures of updates."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
import torch

from mgpu_utils import plots
from mgpu_utils.models import digits_cnn
from mgpu_utils.step_hashes import StepHashes, model_hash
from mgpu_utils.strategies import DataParallel

PARTED = [["aa", "bb", "cc"], ["aa", "bb", "dd"], ["aa", "bb", "cc"]]


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def words_of(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_one_bit_of_one_weight_changes_the_hash_and_a_wrapper_does_not() -> None:
    model = digits_cnn(seed=0)
    before = model_hash(model)
    assert before == model_hash(digits_cnn(seed=0)) == model_hash(DataParallel(2).wrap(digits_cnn(seed=0)))
    assert len(before) == 8
    with torch.no_grad():
        model[0].bias[3] = torch.nextafter(model[0].bias[3], torch.tensor(2.0))
    assert model_hash(model) != before


def test_a_table_says_from_which_step_on_its_rows_are_different() -> None:
    table = StepHashes(PARTED, first=30)
    assert (table.agree, table.parted, table.usual(2)) == (False, 32, "cc")
    assert "different from step 32" in str(table)
    assert "rank 2" in str(table)
    same = StepHashes({"one": ["aa"], "other": ["aa"]})
    assert (same.agree, same.parted) == (True, None)
    assert "the same after each of 1 steps" in str(same)


@pytest.mark.parametrize("rows", [[], [[]], [["aa"], ["aa", "bb"]], {}])
def test_a_table_without_steps_or_with_uneven_rows_is_refused(rows: list[list[str]]) -> None:
    with pytest.raises(ValueError, match="step"):
        StepHashes(rows)


def test_the_picture_of_a_table_frames_what_differs_from_most() -> None:
    ax = plots.step_hashes(StepHashes(PARTED))
    hatched = [patch for patch in ax.patches if patch.get_hatch()]
    assert len(ax.patches) == 9
    assert [(int(patch.get_x()), round(patch.get_y() + 0.42)) for patch in hatched] == [(2, -1)]
    assert "different from step 3" in ax.get_title(loc="left")


def test_differences_are_drawn_from_their_first_step_and_equality_stays_visible() -> None:
    ax = plots.weight_difference({"one": [1e-3, 1e-2], "equal": [0.0, 0.0]}, "title", first=31, tolerance=1e-5)
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["one"].get_xdata()) == [31, 32]
    low, high = ax.get_ylim()
    assert all(low < value < high for value in lines["equal"].get_ydata())
    assert lines["1e-05"].get_ydata()[0] == 1e-5
    assert len({line.get_linestyle() for line in (lines["one"], lines["equal"])}) == 2


def test_broken_and_cured_share_one_scale_and_one_legend() -> None:
    axes = plots.broken_and_cured({"A": ([0.1], [1e-7]), "B": ([0.5], [1e-8])}, tolerance=1e-5)
    assert [ax.get_title(loc="left") for ax in axes] == ["A", "B"]
    assert axes[0].get_ylim() == axes[1].get_ylim()
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["cured", "broken", "1e-05"]


def test_accuracy_and_throughput_stand_side_by_side_with_their_numbers() -> None:
    accuracy = {"single": 0.975, "data_parallel": 0.975, "ddp": 0.975}
    speed = {"single": (1000.0, 900.0, 1100.0), "data_parallel": (800.0, 700.0, 900.0), "ddp": (1500.0, 1400.0, 1600.0)}
    names = {"data_parallel": "DataParallel (threaded stand-in)"}
    left, right = plots.accuracy_and_throughput(accuracy, speed, names, "on this machine")
    assert [label.get_text() for label in left.get_yticklabels()] == [
        "single",
        "DataParallel (threaded stand-in)",
        "DDP",
    ]
    assert [text.strip() for text in words_of(left)] == ["97.50"] * 3
    assert [text.strip() for text in words_of(right)] == ["1,000", "800", "1,500"]
    assert all("(" in ax.get_xlabel() for ax in (left, right))
    assert len({patch.get_hatch() for patch in right.patches}) == 3
