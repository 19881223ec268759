"""Who loaded a sample and when is noted where it happened, also in worker processes and inside ranks."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch.utils.data import DataLoader

from mgpu_utils.data import digits
from mgpu_utils.ranks import RankGroup
from mgpu_utils.watched_data import WatchedDataset, watch_epoch


def test_items_are_those_of_the_dataset_with_a_note_beside() -> None:
    plain = digits(train=False)
    (image, label), visit = WatchedDataset(plain)[3]
    assert torch.equal(image, plain[3][0])
    assert label == plain[3][1]
    process, began, ended, drawn = visit.tolist()
    assert process == os.getpid()
    assert began <= ended <= time.monotonic()
    assert 0 <= drawn < 1
    assert len(WatchedDataset(plain)) == 360


def test_a_sample_takes_at_least_the_seconds_asked_for() -> None:
    _, (_, began, ended, _) = WatchedDataset(range(2), seconds=0.02)[0]
    assert ended - began >= 0.02


def test_a_batch_takes_at_least_the_seconds_of_all_its_samples_and_draws_one_number_for_each() -> None:
    loader: Any = DataLoader(WatchedDataset(range(6), seconds=0.01), batch_size=4)
    for (batch, visits), first in zip(loader, (0, 4), strict=True):
        assert batch.tolist() == list(range(first, first + len(batch)))
        assert (visits[:, 2] - visits[:, 1]).min() >= 0.01 * len(batch)
        assert len(set(visits[:, 3].tolist())) == len(batch)


def test_loaded_in_this_process_without_workers_and_by_others_with_them() -> None:
    def processes(workers: int) -> set[int]:
        loader: Any = DataLoader(WatchedDataset(range(8)), batch_size=2, num_workers=workers)
        recording = watch_epoch(loader, lambda batch: None)
        assert recording.workers == [p for p in dict.fromkeys(p for p, _, _ in recording.loads) if p != os.getpid()]
        return {process for process, _, _ in recording.loads}

    assert processes(0) == {os.getpid()}
    assert len(processes(2)) == 2
    assert os.getpid() not in processes(2)


def test_a_recording_follows_the_steps_and_tells_training_from_waiting() -> None:
    seen: list[list[int]] = []

    def step(batch: torch.Tensor) -> None:
        seen.append(batch.tolist())
        time.sleep(0.01)

    recording = watch_epoch(DataLoader(WatchedDataset(range(5), 0.005), batch_size=2), step)  # type: ignore[arg-type]
    assert seen == [[0, 1], [2, 3], [4]]
    assert len(recording.loads) == len(recording.steps) == 3
    for (_, began, ended), (start, stop) in zip(recording.loads, recording.steps, strict=True):
        assert recording.started <= began < ended <= start < stop
    assert 0.03 <= recording.training_seconds <= recording.seconds - 0.025


def test_an_epoch_without_batches_lasts_no_time() -> None:
    assert watch_epoch([], lambda batch: None).seconds == 0


def test_workers_inside_ranks_draw_alike_with_one_seed_and_apart_with_the_courses_loader(two_ranks: RankGroup) -> None:
    def drawn(own_loader: bool) -> float:
        import torch.distributed as dist
        from torch.utils.data import DataLoader

        import mgpu_utils as mgpu
        from mgpu_utils.watched_data import WatchedDataset

        torch.manual_seed(0)
        if own_loader:
            loader = mgpu.DistributedDataParallel().loader(WatchedDataset(range(4)), 2, num_workers=1)
        else:
            loader = DataLoader(WatchedDataset(range(4)), num_workers=1)  # type: ignore[arg-type]
        assert dist.get_world_size() == 2
        return float(next(visits[0, 3] for _, visits in loader))

    plain, course = two_ranks.run(drawn, False), two_ranks.run(drawn, True)
    assert plain[0] == plain[1]
    assert course[0] != course[1]
