"""The pictures of measured collectives show each point, its line, and what the line misses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import pytest

from mgpu_utils.figures import collectives as figures

matplotlib.use("agg")

SIZES = [1024, 8192, 65536, 2**20]


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def rows(collective: str = "all_reduce", world_size: int = 2, rounds: int = 5) -> pd.DataFrame:
    """Points on the line 100 us + bytes / (1 GB/s), but for the third, which takes twice its time."""
    table = pd.DataFrame({"bytes": SIZES})
    table["line_seconds"] = 1e-4 + table["bytes"] / 1e9
    table["line_miss"] = [0.0, 0.0, 1.0, 0.0]
    table["seconds"] = table["line_seconds"] * (1 + table["line_miss"])
    table["seconds_low"], table["seconds_high"] = table["seconds"] * 0.8, table["seconds"] * 2
    table["busbw_gb_s"] = table["bytes"] / table["seconds"] / 1e9
    fields = {"collective": collective, "world_size": world_size, "backend": "gloo", "rounds": rounds}
    return table.assign(**fields, latency_us=100.0, bandwidth_gb_s=1.0)


def test_times_stand_beside_their_line_in_microseconds() -> None:
    ax = figures.times(rows())
    assert ax.get_xscale() == ax.get_yscale() == "log"
    sizes, times = ax.lines[0].get_data()
    assert (sizes[0], sizes[-1]) == pytest.approx((1024, 2**20))
    assert (times[0], times[-1]) == pytest.approx((101.024, 100 + 2**20 / 1e3))
    (points,) = [container for container in ax.containers if container.get_label() == "all_reduce"]
    assert list(points[0].get_ydata()) == pytest.approx(list(rows()["seconds"] * 1e6))
    assert "bars: 95 % interval" in ax.get_title(loc="left")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1 KiB", "8 KiB", "64 KiB", "1 MiB"]


def test_misses_are_multiples_of_the_line() -> None:
    ax = figures.misses(rows())
    assert list(ax.lines[1].get_ydata()) == [1, 1, 2, 1]
    assert ax.get_ylim()[0] == pytest.approx(1 / ax.get_ylim()[1])
    assert ax.get_ylim()[1] > 2


def test_bars_of_a_bandwidth_are_those_of_the_time_turned_round() -> None:
    table = rows()
    ax = figures.bus_bandwidth(table)
    segments = ax.collections[0].get_segments()
    ends = [(low, high) for (_, low), (_, high) in segments]
    for (low, high), middle in zip(ends, table["busbw_gb_s"], strict=True):
        assert low == pytest.approx(middle / 2)
        assert high == pytest.approx(middle / 0.8)
    assert ax.get_ylim()[0] == 0


def test_each_world_size_has_its_figures_and_marks_only_sizes_in_reach() -> None:
    table = pd.concat([rows(), rows("broadcast"), rows(world_size=4)])
    drawn = figures.draw(table, {"in reach": 40_104, "too large": 25 * 2**20})
    assert list(drawn) == ["times_2_ranks", "bus_bandwidth_2_ranks", "times_4_ranks", "bus_bandwidth_4_ranks"]
    labels = [text.get_text() for text in drawn["times_2_ranks"].legends[0].get_texts()]
    assert {"all_reduce", "broadcast", "in reach: 39.2 KiB"} <= set(labels)
    assert not any("too large" in label for label in labels)
    assert "broadcast" not in [text.get_text() for text in drawn["times_4_ranks"].legends[0].get_texts()]


def test_one_round_has_no_bars_and_an_infinite_bandwidth_a_flat_line() -> None:
    table = rows(rounds=1).assign(seconds_low=math.nan, seconds_high=math.nan, bandwidth_gb_s=math.inf)
    ax = figures.times(table)
    assert "bars" not in ax.get_title(loc="left")
    assert set(ax.lines[0].get_ydata()) == {100.0}


def test_several_world_sizes_do_not_go_into_one_panel_and_no_points_make_no_figure() -> None:
    both = pd.concat([rows(), rows(world_size=4)])
    for draw in (figures.times, figures.misses, figures.bus_bandwidth):
        with pytest.raises(ValueError, match="one world size"):
            draw(both)
    assert figures.draw(rows().assign(seconds=math.nan)) == {}
    assert figures.draw(pd.DataFrame()) == {}
