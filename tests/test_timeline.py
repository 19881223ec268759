"""When ranks worked: one clock, the idle share, and the layer that takes a given time."""

from __future__ import annotations

import pytest
import torch

from mgpu_utils.timeline import Span, Timeline, duration, idle_share, on_one_clock
from mgpu_utils.waiting_layer import WaitingLayer

TWO = [
    [Span("forward", 0, 100.0, 101.0), Span("backward", 0, 104.0, 106.0)],
    [Span("forward", 0, 101.0, 102.0), Span("backward", 0, 102.0, 104.0)],
]


def test_spans_are_numbered_by_kind_and_hand_the_result_on() -> None:
    timeline = Timeline()
    assert [timeline.note("forward", pow, 2, power) for power in (2, 3)] == [4, 8]
    timeline.note("backward", lambda: None)
    assert [(span.kind, span.micro_batch) for span in timeline.spans] == [
        ("forward", 0),
        ("forward", 1),
        ("backward", 0),
    ]
    starts_and_ends = [time for span in timeline.spans for time in (span.start, span.end)]
    assert starts_and_ends == sorted(starts_and_ends)
    timeline.clear()
    assert timeline.spans == []


def test_ranks_that_take_turns_are_idle_half_of_the_time() -> None:
    assert idle_share(TWO) == pytest.approx(0.5)
    assert idle_share([*TWO, []]) == pytest.approx(2 / 3)
    assert duration(TWO) == 6.0
    assert on_one_clock(TWO)[1][0] == Span("forward", 0, 1.0, 2.0)


def test_an_idle_rank_counts_and_no_work_at_all_is_refused() -> None:
    assert idle_share([[Span("forward", 0, 5.0, 7.0)], []]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no rank noted any work"):
        idle_share([[], []])


def test_a_waiting_layer_waits_for_each_sample_and_twice_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("mgpu_utils.waiting_layer.time.sleep", waits.append)
    x = torch.ones(4, 3, requires_grad=True)
    y = WaitingLayer(0.5)(x)
    (2 * y).sum().backward()
    assert waits == [2.0, 4.0]
    assert torch.equal(y, x)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((4, 3), 2.0))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_waiting_layer_needs_a_time_above_zero(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds_per_sample"):
        WaitingLayer(seconds)
