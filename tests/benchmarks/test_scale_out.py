"""Scaling out: which world sizes are measured, what is refused or marked, what the curves show."""

from __future__ import annotations

from typing import Any

import pytest
from made_up_records import plain_config, record

from mgpu_utils.benchmark.config import validate
from mgpu_utils.benchmark.kinds import get
from mgpu_utils.benchmark.scale_out import doubling
from mgpu_utils.benchmark.schema import ConfigError
from mgpu_utils.planning import Hardware

MODELS = plain_config()["models"]
SCALE_OUT = get("scale_out")


def planned(hardware: Hardware, **section: Any) -> list[dict[str, Any]]:
    config = validate({"scale_out": {"models": MODELS} | section}, source="test.yaml")
    return [item.to_dict() for item in SCALE_OUT.configurations(config.section("scale_out"), config, hardware, {})]


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_auto_doubles_up_to_all_that_there_are(most: int, sizes: list[int]) -> None:
    assert list(doubling(most)) == sizes
    rows = planned(Hardware(cores=most))
    assert sorted({row["world_size"] for row in rows if row["strategy"] == "ddp"}) == sizes


def test_on_gpus_auto_goes_up_to_the_gpus_not_the_cores() -> None:
    rows = planned(Hardware("cuda", 4, cores=64, nccl=True))
    assert sorted({row["world_size"] for row in rows if row["strategy"] == "ddp"}) == [1, 2, 4]
    assert sorted({row["world_size"] for row in rows if row["strategy"] == "data_parallel"}) == [2, 4]


def test_more_ranks_than_cores_are_refused_with_the_way_to_ask_for_them() -> None:
    with pytest.raises(ConfigError, match=r"world size 4 is above .* \(2 usable CPU cores\).* oversubscribe: true"):
        planned(Hardware(cores=2), world_sizes=[1, 4])


def test_more_ranks_than_cores_are_marked_when_they_are_asked_for() -> None:
    rows = planned(Hardware(cores=2), world_sizes=[2, 4], oversubscribe=True)
    assert {row["world_size"]: row["oversubscribed"] for row in rows if row["strategy"] == "ddp"} == {2: False, 4: True}


def test_without_one_device_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(ConfigError, match="must hold single"):
        planned(Hardware(cores=2), strategies=["ddp"])


def measured() -> list[dict[str, Any]]:
    records = []
    for number in range(5):
        records.append(record("single", number, 100.0 + number))
        for size, speed in ((1, 95.0), (2, 180.0), (4, 200.0)):
            shape = {"world_size": size, "total_threads": size, "global_batch": 32 * size}
            over = {"oversubscribed": size > 2}
            records.append(record("ddp", number, speed + number, **shape, **over))
            records.append(record("independent", number, 1.1 * (speed + number), **shape, **over))
    return records


def test_speed_up_and_efficiency_are_over_one_device() -> None:
    table = SCALE_OUT.summarise(measured())
    ddp = table[table["strategy"] == "ddp"].set_index("world_size")
    assert ddp.loc[2, "speedup"] == pytest.approx(182 / 102, rel=1e-3)
    assert ddp.loc[2, "efficiency"] == pytest.approx(182 / 102 / 2, rel=1e-3)
    assert ddp.loc[4, "efficiency"] == pytest.approx(202 / 102 / 4, rel=1e-3)


def test_words_and_figure_mark_oversubscribed_worlds() -> None:
    table = SCALE_OUT.summarise(measured())
    assert any("world size 4: more threads than cores" in line for line in SCALE_OUT.findings(table))
    figure = SCALE_OUT.figures(measured(), table)["scale_out"]
    left, right = figure.axes
    hollow = [line for line in left.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow]
    assert (left.get_ylabel(), right.get_ylabel()) == ("speed-up over one device", "efficiency")
    labels = left.get_legend_handles_labels()[1]
    assert labels == ["ideal: N x one device", "DDP", "limit: N independent jobs"]


def test_one_round_which_has_no_interval_is_drawn_up_to_the_ideal_and_above_every_point() -> None:
    once = [one for one in measured() if one["round"] == 0]
    figure = SCALE_OUT.figures(once, SCALE_OUT.summarise(once))["scale_out"]
    left, right = figure.axes
    assert left.get_ylim()[1] > 4
    assert right.get_ylim()[1] > 1.0


def test_nothing_measured_gives_a_figure_that_says_so() -> None:
    import pandas as pd

    figure = SCALE_OUT.figures([], pd.DataFrame())["scale_out"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["nothing was measured"]
