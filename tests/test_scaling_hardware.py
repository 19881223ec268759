"""Named hardware: every number has a source, and the sliders start from them."""

from __future__ import annotations

import re

import pytest

from mgpu_utils.scaling import sliders
from mgpu_utils.scaling.curves import preset_curves
from mgpu_utils.scaling.hardware import PRESETS, preset


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_of_every_preset_has_its_source_and_how_it_was_taken(name: str) -> None:
    numbers = dict(preset(name).numbers())
    assert len(numbers) == 10
    for what, number in numbers.items():
        assert number.value > 0, what
        assert re.match(r"https://\S+$", number.source), what
        assert len(number.how) > 5, what
    assert list(preset(name).table().index) == list(numbers)
    assert preset(name)._repr_html_().count("<a href='https://") == len(numbers)


def test_units_become_seconds_and_bytes() -> None:
    cluster = preset("10gbe-cluster").cluster
    assert cluster.between is not None
    assert cluster.between.bandwidth == pytest.approx(10e9 / 8)
    assert cluster.inside.latency == pytest.approx(3.4e-6)
    work = preset("dgx-1-v100").workload()
    assert work.batch / work.compute == pytest.approx(329)


def test_an_unknown_preset_gets_one_sentence_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no hardware preset 'dgx-a10'; choose one of .*10gbe.*Did you mean dgx-a100"):
        preset("dgx-a10")


def test_slow_and_fast_presets_are_all_of_them() -> None:
    fast, slow = (preset_curves((1, 8, 4096), fast=fast) for fast in (True, False))
    assert {one.title for one in fast} | {one.title for one in slow} == {one.title for one in PRESETS.values()}
    assert min(one.middle[-1] for one in fast) > 0.9
    assert max(one.middle[-1] for one in slow) < 0.6


def test_sliders_change_the_prediction_in_the_right_direction() -> None:
    start = sliders.Choice("10gbe-cluster", devices=64)
    step = start.predict()[0].seconds
    assert sliders.Choice("10gbe-cluster", 64, bandwidth=1e11).predict()[0].seconds < step
    assert sliders.Choice("10gbe-cluster", 64, latency=1e-2).predict()[0].seconds > step
    assert sliders.Choice("10gbe-cluster", 1).predict()[0].seconds < step
    halved = sliders.Choice("10gbe-cluster", 64, batch=16).predict()[0]
    assert halved.batch == 16
    assert halved.seconds < step


def test_without_a_notebook_the_sliders_are_one_figure() -> None:
    figure = sliders.explore(sliders.Choice(devices=4))
    assert len(figure.axes) == 2
    assert "4 devices" in figure.axes[1].get_title(loc="left")


def test_moving_a_slider_redraws_and_another_preset_brings_its_own_link() -> None:
    widgets = pytest.importorskip("ipywidgets")
    made = sliders._sliders(sliders.Choice("pcie-workstation"), widgets)
    shown: list[sliders.Choice] = []
    sliders._connect(made, shown.append)
    made["devices"].value = 256
    assert shown[-1].devices == 256
    assert shown[-1].bucket_cap_mb is None
    made["hardware"].value = "dgx-a100"
    assert shown[-1].hardware == "dgx-a100"
    assert shown[-1].batch == 256
    assert shown[-1].bandwidth == pytest.approx(192e9)
    made["bucket_cap_mb"].value = 1.0
    assert shown[-1].bucket_cap_mb == pytest.approx(1.0)
