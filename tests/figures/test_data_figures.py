"""The pictures of feeding and placing show the values that they are given."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from mgpu_utils import plots
from mgpu_utils.parameter_hashes import HashTable
from mgpu_utils.shard_map import ShardMap
from mgpu_utils.watched_data import Recording

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def test_each_visit_is_a_square_with_its_sample_and_repeats_are_hatched() -> None:
    ax = plots.shard_map(ShardMap([[[0, 2], [4]], [[1, 3], [0]]], samples=6))
    squares = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    numbers = {(round(t.get_position()[0], 2), round(t.get_position()[1], 2)): t.get_text() for t in ax.texts}
    assert len(squares) == 6
    assert sorted(numbers.values()) == ["0", "0", "1", "2", "3", "4"]
    hatched = [s for s in squares if s.get_hatch()]
    assert len(hatched) == 1
    x, y = hatched[0].get_xy()
    assert numbers[round(x + 0.46, 2), round(y + 0.44, 2)] == "0"
    assert y < -1, "the repeat is in the row of rank 1"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["step 0", "step 1"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 0", "rank 1"]
    assert ax.get_title(loc="left") == "6 samples: 5 loaded, 1 repeat, 1 never loaded"
    assert ax.get_legend() is not None
    assert plots.shard_map(ShardMap([[[0]], [[1]]], samples=2)).get_legend() is None


def test_a_wide_map_leaves_the_numbers_out() -> None:
    assert not plots.shard_map(ShardMap([[list(range(64))]], samples=64)).texts


def test_the_timeline_has_a_lane_for_each_process_and_bars_in_milliseconds() -> None:
    alone = Recording(7, 100.0, [(7, 100.0, 100.03), (7, 100.05, 100.08)], [(100.03, 100.05), (100.08, 100.1)])
    helped = Recording(7, 200.0, [(8, 200.0, 200.03), (9, 200.0, 200.03)], [(200.03, 200.05), (200.05, 200.07)])
    ax = plots.loading_timeline({"0 workers": alone, "2 workers": helped})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["notebook", "notebook", "worker 1", "worker 2"]
    bars = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert sorted(round(bar.get_width()) for bar in bars) == [20] * 4 + [30] * 4
    assert sorted({round(bar.get_x()) for bar in bars if not bar.get_hatch()}) == [30, 50, 80]
    lanes = {round(bar.get_y() + 0.4, 2) for bar in bars}
    assert lanes == {round(float(tick), 2) for tick in ax.get_yticks()}
    assert {t.get_text().strip() for t in ax.texts} == {"0 workers: 100 ms", "2 workers: 70 ms", "0", "1"}
    assert "milliseconds" in ax.get_xlabel()
    legend = ax.get_legend()
    assert legend is not None
    assert {t.get_text() for t in legend.get_texts()} == {"loads a batch", "trains on it"}


def test_shares_seen_are_percent_over_epochs() -> None:
    ax = plots.samples_seen({"with": [0.5, 0.75], "without": [0.5, 0.5]}, rank=1)
    assert [list(line.get_ydata()) for line in ax.lines] == [[50, 75], [50, 50]]
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--"]
    assert {t.get_text() for t in ax.texts} == {"with: 75 %", "without: 50 %"}
    assert "rank 1" in ax.get_ylabel()


def test_hashes_that_differ_are_hatched_and_all_are_written() -> None:
    ax = plots.hash_table(HashTable([{"a": "00000000", "b": "11111111"}, {"a": "00000000", "b": "22222222"}]))
    cells = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert [bool(cell.get_hatch()) for cell in cells] == [False, False, True, True]
    assert [t.get_text() for t in ax.texts] == ["00000000", "00000000", "11111111", "22222222"]
    assert ax.get_title(loc="left") == "Hashes of the tensors: 1 of 2 equal, hatched: different"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]


def test_drift_shows_losses_from_step_1_and_distances_from_step_0_and_no_line_hides_on_the_axis() -> None:
    left, right = plots.replica_drift({"one": [0.0, 0.0, 0.0], "two": [1.0, 2.0, 3.0]}, {"one": [2, 1], "two": [2, 1]})
    assert list(left.lines[0].get_xdata()) == [1, 2]
    assert list(right.lines[1].get_xdata()) == [0, 1, 2]
    assert list(right.lines[1].get_ydata()) == [1, 2, 3]
    assert right.get_ylim()[0] < 0
    looks = {(to_hex(line.get_color()), line.get_linestyle()) for line in right.lines}
    assert len(looks) == 2
    assert left.get_xlabel() == right.get_xlabel() == "steps"
    assert left.get_ylabel()
    assert right.get_ylabel()
