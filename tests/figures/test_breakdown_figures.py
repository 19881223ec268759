"""The pictures of a broken-down step show its parts, and one step of every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from mgpu_utils.figures.breakdown import figures, step_parts, step_timeline
from mgpu_utils.step_lanes import Slice
from mgpu_utils.step_profile import PARTS

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def row(strategy: str, size: int, **parts: float) -> dict[str, Any]:
    fields = {"model": "digits_cnn", "strategy": strategy, "implementation": "torch", "world_size": size}
    fields |= {"per_device_batch": 8, "oversubscribed": False, "step_seconds": 0.009}
    return fields | {f"{name}_seconds": parts.get(name, 0.0) for name in PARTS}


def test_parts_are_stacked_and_the_plain_step_is_marked() -> None:
    ddp = row("ddp", 2, data=0.001, forward=0.002, backward=0.003, exposed_communication=0.004)
    threads = row("data_parallel", 2, forward=0.001, parallel_apply=0.005, replicate=0.002, gather=0.001)
    failed = row("single", 1) | {"step_seconds": float("nan")}
    ax = step_parts(pd.DataFrame([failed, threads, ddp]))
    bars = [(round(b.get_x(), 6), round(b.get_width(), 6), b.get_hatch()) for b in ax.patches if b.get_width()]
    assert [bar[:2] for bar in bars] == [(0, 6), (6, 3), (0, 1), (1, 2), (3, 3), (6, 4)]
    assert bars[1][2] != bars[5][2]
    assert "" not in (bars[1][2], bars[5][2])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DataParallel on 2", "DDP on 2"]
    assert [set(line.get_xdata()) for line in ax.lines] == [{9.0}, {9.0}]
    assert "milliseconds" in ax.get_xlabel()
    assert all(isinstance(bar, Rectangle) for bar in ax.patches)


def test_one_panel_shows_one_model() -> None:
    with pytest.raises(ValueError, match="shows one model"):
        step_parts(pd.DataFrame([row("ddp", 2), row("ddp", 2) | {"model": "small_resnet"}]))


def lanes() -> dict[str, list[Slice]]:
    return {
        "main thread": [Slice("forward", 1.0, 1.004), Slice("backward", 1.004, 1.01), Slice("forward", 1.02, 1.03)],
        "communication": [Slice("all_reduce", 1.005, 1.009)],
    }


def test_a_timeline_draws_the_step_of_each_rank_in_milliseconds() -> None:
    ax = step_timeline([lanes(), lanes()], (1.0, 1.01), "a title")
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [f"rank {rank}: {lane}" for rank in (0, 1) for lane in ("main thread", "communication")]
    spans = sorted(
        (round(min(path.vertices[:, 0]), 6), round(max(path.vertices[:, 0]), 6))
        for collection in ax.collections
        for path in collection.get_paths()
    )
    assert spans == [(0, 4), (0, 4), (4, 10), (4, 10), (5, 9), (5, 9)]
    assert ax.get_xlim() == (0, pytest.approx(10))


def test_many_ranks_are_cut_to_four_and_the_title_says_so() -> None:
    ax = step_timeline([lanes()] * 8, (1.0, 1.01), "a title")
    assert len(ax.get_yticklabels()) == 8
    assert ax.get_title(loc="left") == "a title (ranks 0 to 3 of 8)"


def test_each_model_has_a_timeline_of_its_largest_worlds_without_the_limit() -> None:
    held = {lane: [list(piece) for piece in pieces] for lane, pieces in lanes().items()}
    timeline = [{"steps": [[1.0, 1.01]], "lanes": held}] * 2
    records = [
        row(strategy, size) | {"timeline": timeline, "status": "ok"}
        for strategy, size in (("single", 1), ("ddp", 2), ("ddp", 3), ("independent", 2), ("data_parallel", 2))
    ]
    table = pd.DataFrame([row("single", 1, forward=0.01), row("ddp", 2, forward=0.01)])
    made = figures(records, table)
    assert list(made) == ["parts", "timeline-digits_cnn"]
    titles = [ax.get_title(loc="left") for ax in made["timeline-digits_cnn"].axes]
    assert titles == ["digits_cnn, DataParallel on 2", "digits_cnn, DDP on 3"]
    assert figures([], table.iloc[:0]) == {}
