"""Published numbers beside the reader's own: efficiencies of every metric, and reasons read from the data."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from made_up_results import LAPTOP, TWO_GPUS, runs

from mgpu_utils.benchmark.summary import summarise
from mgpu_utils.reference_points import load
from mgpu_utils.report.reference import Group, beside, efficiency

POINT: dict[str, Any] = {
    "source": "somewhere",
    "year": 2024,
    "hardware": "2 x Example GPU 80GB",
    "workload": "digits_cnn, batch 32 per GPU",
    "metric": "samples/s per GPU",
    "devices": 2,
    "single": 100.0,
    "data_parallel": None,
    "ddp": 90.0,
    "note": "PyTorch 2.13, nccl; 95 % interval given",
    "url": "https://example.org/numbers",
}


def groups(point: dict[str, Any], environment: dict[str, Any] = LAPTOP, **changes: Any) -> list[Group]:
    return beside(summarise(runs(**changes)), environment, pd.DataFrame([POINT | point]))


@pytest.mark.parametrize(
    ("metric", "single", "value", "devices", "expected"),
    [
        ("examples/s per GPU, p50", 329.0, 306.0, 16, 306 / 329),
        ("tokens/s", 142156.0, 419259.0, 4, 419259 / 142156 / 4),
        ("seconds per epoch", 1786.8, 239.4, 8, 1786.8 / 239.4 / 8),
        ("scaling efficiency from 8 to 256", None, 0.9, 256, 0.9),
        ("seconds", None, 101.9, 2, None),
    ],
)
def test_an_efficiency_follows_from_what_the_metric_counts(
    metric: str, single: float | None, value: float, devices: int, expected: float | None
) -> None:
    point = {"metric": metric, "single": single, "ddp": value, "devices": devices}
    found = efficiency(point, "ddp")
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_readers_own_rows_come_first_with_their_interval() -> None:
    own = groups({})[0]
    assert own.own
    assert [point.devices for point in own.points] == [2]
    assert own.points[0].ddp.text == "70%"
    assert own.points[0].ddp.spread
    assert any("threaded stand-in" in line for line in own.why)


def test_every_difference_between_a_laptop_and_gpus_is_named() -> None:
    why = groups({"workload": "ResNet-50, batch 64 per GPU", "devices": 8, "data_parallel": 50.0, "note": "nccl"})[
        1
    ].why
    assert why == [
        "hardware: processor cores here, 2 x Example GPU 80GB there",
        "devices: 2 here, 8 there",
        "model: digits_cnn here, ResNet-50 there",
        "batch a device: 32 here, 64 there",
        "backend: gloo here, nccl there",
        "DataParallel: the threaded stand-in here, nn.DataParallel there",
        "spread: 5 rounds here, none given there",
    ]


def test_the_same_measurement_has_no_reason_to_differ() -> None:
    assert groups({}, TWO_GPUS, device_type="cuda")[1].why == []


def test_words_without_a_number_are_shown_as_words() -> None:
    group = groups({"single": None, "ddp": None, "note": "near-linear"})[1]
    assert group.points[0].ddp.text == "not given"
    assert group.why[-1] == "it gives no number, only words: near-linear"


def test_of_each_series_the_most_alike_number_of_devices_is_shown() -> None:
    found = beside(summarise(runs()), LAPTOP, load())
    v100 = next(group for group in found if group.who.startswith("pytorch/pytorch"))
    assert {point.devices for point in v100.points} == {2}
    assert v100.url.startswith("https://")
    assert all(group.why for group in found)


def test_a_summary_without_several_devices_has_nothing_to_set_beside() -> None:
    assert beside(pd.DataFrame({"bytes": [1]}), LAPTOP, load()) == []
