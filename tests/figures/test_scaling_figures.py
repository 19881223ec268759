"""Figures of predictions: what is predicted never looks like what was measured."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from figure_examples import PREDICTED

from mgpu_utils.figures import scaling as figures
from mgpu_utils.scaling.curves import preset_curves
from mgpu_utils.scaling.overlap import simulate
from mgpu_utils.scaling.published import validate_v100


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


def test_predictions_are_hollow_and_the_fitted_step_is_crossed_out() -> None:
    ax = figures.predicted_beside_measured(PREDICTED)
    by_label = {line.get_label(): line for line in ax.get_lines()}
    assert by_label["DDP, small_resnet"].get_markerfacecolor() == "white"
    assert by_label["DataParallel (stand-in), digits_cnn"].get_ydata()[0] == pytest.approx(8)
    assert list(by_label["fitted to this one"].get_xdata()) == pytest.approx([2])
    assert "ms" in ax.get_xlabel()
    assert ax.get_xlim() == ax.get_ylim()


def test_no_records_still_give_a_figure() -> None:
    ax = figures.predicted_beside_measured(PREDICTED.iloc[:0])
    assert "nothing was measured" in ax.texts[0].get_text()


def test_published_numbers_are_filled_and_predictions_dashed() -> None:
    ax = figures.published_beside_predicted(validate_v100())
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--" and len(line.get_xdata()) == 5]
    filled = [line for line in ax.get_lines() if line.get_linestyle() == "None" and len(line.get_xdata()) == 5]
    assert len(dashed) == len(filled) == 4
    assert filled[0].get_label() == "ResNet-50"
    assert filled[0].get_ydata()[0] == pytest.approx(100 * 319 / 329)


def test_what_is_exposed_has_a_colour_and_a_number_of_its_own() -> None:
    ax = figures.bucket_timeline(simulate(0.010, [0.4, 1.0], [0.003, 0.002]))
    assert "exposed: 2 ms" in [text.get_text() for text in ax.get_legend().get_texts()]
    buckets = [bar for bar in ax.patches if bar.get_y() < 0.5]
    assert len(buckets) == 2
    assert len({bar.get_facecolor() for bar in buckets}) == 2


def test_curves_are_dashed_and_say_that_they_are_predicted() -> None:
    curves = preset_curves((1, 8, 64, 4096), fast=True)
    ax = figures.predicted_scaling(curves)
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 4]
    assert {line.get_linestyle() for line in lines} == {"--"}
    assert len(lines) == len(curves)
    assert ax.get_legend().get_title().get_text() == "predicted, not measured"
    assert "devices" in ax.get_xlabel()
    assert ax.get_ylim()[0] >= 90
    assert figures.predicted_scaling(preset_curves((1, 8, 64), fast=False)).get_ylim()[0] == 0


@pytest.mark.parametrize("name", ["predicted_beside_measured", "published_beside_predicted"])
def test_a_given_axes_is_drawn_on(name: str) -> None:
    table = PREDICTED if name == "predicted_beside_measured" else validate_v100()
    _, ax = plt.subplots()
    assert getattr(figures, name)(table, ax) is ax
