"""The picture of a cell that failed shows who was where, and how each rank ended."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import Rectangle

from mgpu_utils.figures.fault_timeline import as_png, fault_timeline
from mgpu_utils.rank_errors import RankTimeout
from mgpu_utils.rank_history import CollectiveSpan, RankHistory

matplotlib.use("agg")

HISTORY = (
    RankHistory(1, "died", 1.5, (CollectiveSpan("all_reduce", 0.2, 0.4),)),
    RankHistory(0, "waits", 3.0, (CollectiveSpan("all_reduce", 0.1, 0.4), CollectiveSpan("barrier", 1.0, None))),
)


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def test_each_rank_has_a_lane_in_order_and_a_collective_that_never_ended_reaches_to_its_end() -> None:
    ax = fault_timeline(HISTORY)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1"]
    assert ax.get_xlabel() == "seconds since the cell began"
    endless = [bar for bar in ax.patches if isinstance(bar, Rectangle) and bar.get_hatch()]
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in endless] == [(1.0, 3.0)]
    assert {"barrier", "waits", "died"} <= {text.get_text() for text in ax.texts}


def test_a_figure_of_its_own_may_be_given_and_pyplot_is_not_needed() -> None:
    _, ax = plt.subplots()
    assert fault_timeline(HISTORY, ax) is ax
    before = plt.get_fignums()
    assert as_png(HISTORY).startswith(b"\x89PNG")
    assert plt.get_fignums() == before


def test_an_error_that_knows_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="nothing is known of what the ranks did"):
        RankTimeout("it took too long").timeline()
    assert RankTimeout("", history=HISTORY).timeline().get_title(loc="left") == "What each rank did"
