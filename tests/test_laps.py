"""The parts of a step are timed one by one."""

from __future__ import annotations

import time

import pytest

from mgpu_utils import laps as laps_module
from mgpu_utils.laps import Laps


def test_each_part_gets_its_own_median_and_warmup_does_not_count() -> None:
    laps = Laps(["cpu"])
    naps = iter([0.2, 0.0, 0.0, 0.0])
    calls: list[int] = []

    def step(number: int) -> None:
        calls.append(number)
        assert laps.lap("work", lambda value: value + 1, number) == number + 1
        laps.lap("sleep", time.sleep, next(naps))

    found = laps.medians(step, 7, warmup=1, repeats=3)
    assert list(found) == ["work", "sleep"]
    assert calls == [7] * 4
    assert [len(values) for values in laps.seconds.values()] == [3, 3]
    assert max(laps.seconds["sleep"]) < 0.2


def test_every_device_is_waited_for_before_and_after_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(laps_module, "synchronize", lambda device: events.append(f"wait {device}"))
    Laps(["a", "b"]).lap("work", events.append, "work")
    assert events == ["wait a", "wait b", "work", "wait a", "wait b"]


@pytest.mark.parametrize(("warmup", "repeats"), [(-1, 5), (0, 0)])
def test_impossible_counts_are_refused(warmup: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="warmup must be at least 0"):
        Laps(["cpu"]).medians(lambda: None, warmup=warmup, repeats=repeats)
