"""Tuning: one knob at a time, equal budgets, and a knee that is the first value as good as the best."""

from __future__ import annotations

from typing import Any

import pytest
from made_up_records import plain_config

from mgpu_utils.benchmark.config import validate
from mgpu_utils.benchmark.kinds import get
from mgpu_utils.benchmark.schema import ConfigError
from mgpu_utils.planning import Hardware

MODEL = plain_config()["models"][0]
TUNE = get("tune")


def planned(hardware: Hardware | None = None, **section: Any) -> list[Any]:
    config = validate({"tune": {"model": MODEL} | section}, source="test.yaml")
    return list(TUNE.configurations(config.section("tune"), config, hardware or Hardware(cores=4), {}))


def test_each_run_differs_from_the_base_by_its_knob_alone() -> None:
    items = planned(per_device_batch=[16, 64], bucket_cap_mb=[1.0], precision=["bfloat16"], num_workers=[0, 2])
    found = {(item.knob, item.value): item.to_dict() for item in items}
    base = found["bucket_cap_mb", 1.0] | {"bucket_cap_mb": None}
    for (knob, value), row in found.items():
        assert row[knob] == value
        allowed = {"knob", "value", knob, "global_batch", "load_ms"}
        assert all(row[name] == base[name] for name in row if name not in allowed), (knob, value)
    assert found["per_device_batch", 64]["global_batch"] == 64 * base["world_size"]


def test_more_threads_a_rank_means_fewer_ranks_on_the_same_cores() -> None:
    config = {"tune": {"model": MODEL, "threads_per_process": [1, 2, 4]}, "world_sizes": [4]}
    checked = validate(config, source="test")
    items = TUNE.configurations(checked.section("tune"), checked, Hardware(cores=4), {})
    assert [(item.world_size, item.threads_per_process, item.total_threads) for item in items] == [  # type: ignore[attr-defined]
        (4, 1, 4),
        (2, 2, 4),
        (1, 4, 4),
    ]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "tune has no values to try; give at least one of per_device_batch"),
        ({"threads_per_process": [3]}, "3 does not divide the 2 threads of 2 ranks"),
        ({"bucket_cap_mb": [1.0], "strategy": "single"}, "single has no buckets"),
        ({"per_device_batch": [0]}, r"tune.per_device_batch must hold numbers of at least 1, not 0"),
        ({"bucket_cap_mb": [0.0]}, r"tune.bucket_cap_mb must hold numbers above 0"),
        ({"bucket_cap_mb": [float("nan")]}, r"tune.bucket_cap_mb must hold numbers above 0, not nan"),
        ({"bucket_cap_mb": [float("inf")]}, r"tune.bucket_cap_mb must hold numbers above 0, not inf"),
        ({"num_workers": [-1]}, r"tune.num_workers must hold numbers of at least 0"),
        ({"num_workers": [1, 1]}, r"tune.num_workers must not hold 1 twice"),
        ({"precision": ["float16"]}, r"tune.precision\[0\] is 'float16', but must be float32 or bfloat16"),
        ({"batch": [1]}, r"unknown key batch in tune \(allowed: model, strategy"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_sentence(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned(**section)


def measured(rates: dict[Any, list[float]], knob: str = "per_device_batch") -> list[dict[str, Any]]:
    records = []
    for item in planned(**{knob: list(rates)}):
        for number, rate in enumerate(rates[item.value]):
            records.append(item.to_dict() | {"round": number, "status": "ok", "samples_per_second": rate})
    return records


def test_the_knee_is_the_first_value_that_reaches_97_percent_of_the_best() -> None:
    table = TUNE.summarise(measured({16: [50.0] * 5, 32: [97.5, 98, 97.8, 98, 98], 64: [100.0] * 5, 128: [99.0] * 5}))
    assert list(table.loc[table["knee"], "value"]) == [32]
    assert TUNE.findings(table) == ["per_device_batch: 64 was best with 100 samples/s; 32 reaches 98% of it already"]


def test_fewer_than_five_rounds_have_no_best_and_no_knee() -> None:
    records = measured({16: [50.0] * 4, 32: [100.0] * 4})
    table = TUNE.summarise(records)
    assert not table["knee"].any()
    assert TUNE.findings(table) == ["per_device_batch: 4 rounds are too few to call a value the best"]
    assert not TUNE.figures(records, table)["tune"].axes[0].texts


def test_a_failed_value_stays_in_the_table_and_out_of_the_curve() -> None:
    records = measured({16: [50.0] * 5, 32: [60.0] * 5})
    for one in records:
        if one["value"] == 32:
            one |= {"status": "failed", "reason": "out of memory"}
            del one["samples_per_second"]
    table = TUNE.summarise(records)
    assert list(table["failed"]) == [0, 5]
    assert list(table["knee"]) == [True, False]
    ax = TUNE.figures(records, table)["tune"].axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["16"]


def test_each_knob_has_a_panel_with_units_and_its_knee() -> None:
    records = measured({16: [50.0] * 5, 32: [60.0] * 5}) + measured(
        {1.0: [60.0] * 5, 25.0: [59.0] * 5}, "bucket_cap_mb"
    )
    figure = TUNE.figures(records, TUNE.summarise(records))["tune"]
    assert [ax.get_xlabel() for ax in figure.axes] == ["batch of a device (samples)", "size of DDP's buckets (MiB)"]
    for ax in figure.axes:
        assert ax.get_ylabel() == "samples/s, all ranks"
        assert [text.get_text() for text in ax.texts] == ["knee: 97 % of the best"]
