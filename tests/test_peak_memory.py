"""Peak memory: of this process on a CPU, and of each device by itself on accelerators."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mgpu_utils import peak_memory
from mgpu_utils.peak_memory import PeakMemory
from mgpu_utils.ranks import RankGroup

MIB = 2**20
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget an earlier peak")


def filled(mib: int) -> torch.Tensor:
    return torch.ones(mib * MIB // 4)


def test_what_was_freed_before_the_end_is_in_the_peak_of_the_process() -> None:
    with PeakMemory(["cpu"]) as peak:
        filled(200)
    assert list(peak.bytes) == list(peak.before) == ["cpu"]
    assert peak.bytes["cpu"] > peak.before["cpu"] + 150 * MIB
    assert "resident memory of this process" in peak.meaning


@ON_LINUX
def test_an_earlier_peak_is_forgotten() -> None:
    filled(300)
    with PeakMemory(["cpu"]) as small:
        filled(20)
    with PeakMemory(["cpu"]) as large:
        filled(250)
    assert small.bytes["cpu"] < small.before["cpu"] + 150 * MIB
    assert large.bytes["cpu"] > small.bytes["cpu"] + 100 * MIB
    assert "since the process started" not in small.meaning


def test_where_the_peak_cannot_be_forgotten_it_is_that_of_the_whole_life_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak_memory, "_RESET", tmp_path / "no folder" / "clear_refs")
    filled(400)
    with PeakMemory(["cpu"]) as peak:
        filled(1)
    assert peak.bytes["cpu"] > peak.before["cpu"] + 200 * MIB
    assert "its peak since the process started" in peak.meaning


def test_threads_that_stand_in_for_devices_share_one_number_of_their_process() -> None:
    with PeakMemory([torch.device("cpu", 0), torch.device("cpu", 1), "cpu"]) as peak:
        pass
    assert list(peak.bytes) == ["cpu"]


def test_each_rank_notes_its_own_process(two_ranks: RankGroup) -> None:
    def noted() -> int:
        from mgpu_utils.peak_memory import PeakMemory

        rank = torch.distributed.get_rank()
        with PeakMemory(["cpu"]) as peak:
            torch.ones((50 + 250 * rank) * 2**20 // 4)
        return peak.bytes["cpu"] - peak.before["cpu"]

    noted.__module__ = "__main__"
    first, second = two_ranks.run(noted)
    assert second > first + 100 * MIB


class Counters:
    """The allocator's counters of three devices, by PyTorch's names; `live` and `peak` in bytes."""

    def __init__(self) -> None:
        self.live = {0: 10, 1: 20, 2: 30}
        self.peak = dict.fromkeys(self.live, 999)

    def allocate(self, index: int, size: int) -> None:
        self.live[index] += size
        self.peak[index] = max(self.peak[index], self.live[index])

    def reset_peak_memory_stats(self, device: torch.device) -> None:
        self.peak[device.index] = self.live[device.index]

    def memory_allocated(self, device: torch.device) -> int:
        return self.live[device.index]

    def max_memory_allocated(self, device: torch.device) -> int:
        return self.peak[device.index]


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    made = Counters()
    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.accelerator, name, getattr(made, name))
    monkeypatch.setattr(peak_memory, "synchronize", lambda device: None)
    return made


def test_each_accelerator_has_its_own_peak_since_entering_under_its_own_name(counters: Counters) -> None:
    with PeakMemory(["cuda:0", torch.device("cuda", 2)]) as peak:
        counters.allocate(0, 500)
        counters.allocate(0, -500)
        counters.allocate(1, 70)
        counters.allocate(2, 7)
    assert peak.before == {"cuda:0": 10, "cuda:2": 30}
    assert peak.bytes == {"cuda:0": 510, "cuda:2": 37}
    assert peak.meaning == "memory that PyTorch allocated on each device, in this process"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_gpus_the_numbers_are_those_of_each_device() -> None:
    with PeakMemory(["cuda:0", "cuda:1"]) as peak:
        torch.ones(100 * MIB // 4, device="cuda:1")
    assert peak.bytes["cuda:1"] - peak.before["cuda:1"] == 100 * MIB
    assert peak.bytes["cuda:0"] == peak.before["cuda:0"]


def test_what_cannot_be_watched_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="at least one device"):
        PeakMemory([])
    with pytest.raises(ValueError, match="does not count the peak memory of mps:0"):
        PeakMemory(["mps:0"])
