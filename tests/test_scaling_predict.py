"""The benchmark `predict`: what it plans, what it measures in real ranks, and what it makes of records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu_utils import torchrun
from mgpu_utils.benchmark import config, kinds
from mgpu_utils.benchmark.predict import KIND, Prediction, PredictSection, combine, fit, runs_of, short_table
from mgpu_utils.benchmark.schema import ConfigError
from mgpu_utils.planning import Hardware
from mgpu_utils.scaling.collective_model import ring_seconds
from mgpu_utils.scaling.fit import fit_cluster
from mgpu_utils.scaling.measured import run_of

SECTION = PredictSection.model_validate(
    {"models": [{"name": "digits_cnn", "batches": [4, 8], "steps": 1, "warmup": 1}]}
)
ITEM = Prediction("digits_cnn", 2, "cpu", "gloo", (4, 8), 2, 1, 1, 1, (4096, 1048576), 2)
PARTS = {"forward": 0.001, "backward": 0.002, "optimizer": 0.001}


def _record(model: str, world_size: int, batches: tuple[int, ...], wait: float, serial: float) -> dict[str, Any]:
    """A record of a machine that obeys the model exactly: latency 0.1 ms a step of the ring, 1 GB/s."""
    size, modules, own = 1_000_000, 10, 0.0002
    latency, bandwidth = 1e-4, 1e9
    steps = 2 * (world_size - 1)

    def collective(of: float) -> float:
        return steps * latency + steps / world_size * of / bandwidth

    copies = (world_size - 1) * size / 1e10
    points = []
    for batch in batches:
        single = 0.004 * batch
        data_parallel = single + 2 * copies + serial * modules * world_size
        points.append(
            {"batch": batch, "single": single, "ddp_alone": single + own, "independent": single}
            | {name: seconds * batch for name, seconds in PARTS.items()}
            | {"ddp": single + own + collective(size) + wait, "data_parallel": data_parallel}
        )
    return {
        "model": model,
        "world_size": world_size,
        "device_type": "cpu",
        "round": 0,
        "status": "ok",
        "points": points,
        "collectives": [{"size": of, "seconds": collective(of)} for of in (4096, 1_000_000)],
        "buckets": [{"parameters": [1, 0], "size": size}],
        "arrival": [1.0, 0.5],
        "parameter_bytes": size,
        "modules": modules,
        "sample_bytes": 0,
        "output_bytes": 0,
        "copy_bandwidth": 1e10,
    }


def _records() -> list[dict[str, Any]]:
    return [
        _record(model, size, (8, 16, 32), wait=0.003, serial=1e-4)
        for model in ("digits_cnn", "small_resnet")
        for size in (2, 4)
    ]


def test_a_machine_that_obeys_the_model_is_predicted_exactly_on_worlds_it_was_not_fitted_to() -> None:
    table = KIND.summarise(_records())
    assert len(table) == 2 * 2 * 3 * 2
    assert table["error"].abs().max() < 0.01
    fitted = table[table["role"] == "fitted"]
    assert set(fitted["world_size"]) == {2}
    assert set(fitted["model"]) == {"digits_cnn"}
    assert set(fitted["batch"]) == {16}
    found = fit(_records())
    assert found.ddp.wait == pytest.approx(0.003, rel=1e-3)
    assert found.data_parallel.serial == pytest.approx(1e-4)


def test_a_step_that_breaks_the_model_shows_its_error_and_stands_in_the_findings() -> None:
    records = _records()
    records[1]["points"][0]["ddp"] *= 2
    table = KIND.summarise(records)
    worst = table.loc[table["error"].abs().idxmax()]
    assert (worst["model"], worst["world_size"], worst["batch"]) == ("digits_cnn", 4, 8)
    assert worst["error"] == pytest.approx(-0.5, abs=0.01)
    said = KIND.findings(table)
    assert "11 predicted steps" in said[0]
    assert "50% at most" in said[0]
    assert list(short_table(table)["error"])[1:4] == ["+0% (fitted to it)", "+0%", "-50%"]


def test_links_of_a_larger_world_are_predicted_from_the_smaller_one() -> None:
    run = run_of(_records()[0])
    cluster = fit_cluster(run.collectives, 2)
    assert cluster.inside.latency == pytest.approx(1e-4, rel=1e-3)
    assert ring_seconds(1e6, 4, cluster) == pytest.approx(6e-4 + 1.5e-3, rel=1e-3)


def test_several_rounds_of_a_launch_become_their_median() -> None:
    rounds = [_record("digits_cnn", 2, (8,), 0.003, 1e-4) | {"round": number} for number in range(3)]
    for record, ddp in zip(rounds, (1.0, 2.0, 5.0), strict=True):
        record["points"][0]["ddp"] = ddp
    (run,) = runs_of([*rounds, {"status": "failed", "model": "digits_cnn", "world_size": 2}])
    assert run.points[0].ddp == 2.0


def test_nothing_measured_gives_an_empty_table_and_no_sentence() -> None:
    failed = {"status": "failed", "model": "digits_cnn", "world_size": 2, "reason": "it ended"}
    table = KIND.summarise([failed])
    assert table.empty
    assert KIND.findings(table) == []
    assert list(KIND.figures([failed], table)) == ["predicted"]


def test_a_step_of_all_ranks_is_as_long_as_that_of_its_slowest() -> None:
    alone = {name: [1.0] for name in ("forward", "backward", "optimizer", "single", "ddp_alone", "data_parallel")}
    ranks = [
        {
            "points": [{"batch": 4, "steps": {**only, "independent": times, "ddp": times}}],
            "collectives": [{"size": 8, "seconds": seconds}],
        }
        for only, times, seconds in ((alone, [1.0, 2.0, 9.0], 0.5), ({}, [3.0, 1.0, 1.0], 0.7))
    ]
    (point,) = combine(ranks)["points"]
    assert point["independent"] == point["ddp"] == 3.0
    assert point["single"] == 1.0
    assert combine(ranks)["collectives"] == [{"size": 8, "seconds": 0.7}]


def test_one_launch_measures_everything_on_two_real_ranks() -> None:
    with torchrun.Launcher() as launcher:
        record = KIND.measure_one(ITEM, 0, launcher=launcher, seed=0, timeout=120)
    assert record["status"] == "ok", record.get("reason")
    run = run_of(record)
    assert [point.batch for point in run.points] == [4, 8]
    for point in run.points:
        parts = (point.forward, point.backward, point.optimizer, point.single, point.ddp_alone)
        assert min(*parts, point.independent, point.ddp, point.data_parallel) > 0
    assert sum(bucket.size for bucket in run.buckets) == run.parameter_bytes == 4 * 10_026
    assert {size for size, _ in run.collectives} == {4096, 4 * 10_026, 1048576}
    # The last layer's gradient is there first.
    assert 0 < run.arrival[-1] < run.arrival[0] <= 1
    assert run.ready[-1] == pytest.approx(run.arrival[0], abs=0.2)
    table = KIND.summarise([record])
    assert len(table) == 4
    assert (table["predicted_seconds"] > 0).all()


def test_the_plan_has_one_launch_a_model_and_world_and_leaves_out_worlds_of_one() -> None:
    hardware = Hardware(cores=4)
    whole = config.validate({"predict": {"world_sizes": [1, 2, 4]}}, "here")
    items = KIND.configurations(whole.section("predict"), whole, hardware, {})
    assert [(item.model, item.world_size) for item in items] == [
        (model, size) for model in ("digits_cnn", "small_resnet") for size in (2, 4)
    ]
    assert len({item.key for item in items}) == 4
    assert kinds.get("predict") is KIND


def test_a_machine_with_one_core_is_told_what_is_missing() -> None:
    whole = config.validate({"predict": {}}, "here")
    with pytest.raises(ConfigError, match="at least 2 devices"):
        KIND.configurations(SECTION, whole, Hardware(cores=1), {})


def test_an_unknown_model_is_named_with_those_there_are() -> None:
    section = PredictSection.model_validate({"models": [{"name": "vgg", "batches": [1]}]})
    whole = config.validate({"predict": {}}, "here")
    with pytest.raises(ConfigError, match="model vgg is not known; the models are digits_cnn"):
        KIND.configurations(section, whole, Hardware(cores=2), {})


def test_quick_takes_one_step_of_each_kind() -> None:
    quick = KIND.quick(PredictSection())
    assert quick.blocks == quick.rounds == 1
    assert {model.steps for model in quick.models} == {1}


def test_a_record_of_another_version_gets_one_clear_sentence() -> None:
    record = _records()[0]
    del record["arrival"]
    with pytest.raises(ValueError, match="has no 'arrival': measure it again"):
        run_of(record)


def test_nothing_on_two_devices_cannot_be_fitted() -> None:
    from mgpu_utils.scaling.measured import fit_machine

    with pytest.raises(ValueError, match="two or more devices"):
        fit_machine([replace(run_of(_records()[0]), world_size=1)])
