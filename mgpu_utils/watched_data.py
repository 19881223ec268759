"""A dataset that takes its time and writes down who loaded what and when; a loop that watches it being used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset


class WatchedDataset(Dataset[Any]):
    """Any dataset, with a wait before each sample, and with a note of the visit: items are `(item, visit)`.

    A visit is a float64 tensor of 4: the process that loaded the sample, when that process began and ended with the
    batch (seconds of `time.monotonic`, which all processes of a machine share), and a random number drawn for the
    sample, as an augmentation would draw one.

    Args:
        seconds: how long each sample takes to load; the process sleeps, as it does when it waits for a disk.
    """

    def __init__(self, dataset: Any, seconds: float = 0.0) -> None:
        self.dataset = dataset
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Tensor]]:
        # A DataLoader asks for a whole batch here. One long sleep is exact; many short ones are not, least of all
        # on a busy machine.
        began = time.monotonic()
        if self.seconds:
            time.sleep(self.seconds * len(indices))
        loaded = [(self.dataset[index], torch.rand(()).item()) for index in indices]
        process, ended = os.getpid(), time.monotonic()
        return [(item, torch.tensor([process, began, ended, d], dtype=torch.float64)) for item, d in loaded]


@dataclass
class Recording:
    """One epoch as it happened, on the clock of `time.monotonic`.

    Attributes:
        process: the process that trained.
        started: when the loop was entered.
        loads: `(process, began, ended)` of each batch, in the order of the steps.
        steps: `(began, ended)` of each training step.
    """

    process: int
    started: float
    loads: list[tuple[int, float, float]] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)

    @property
    def workers(self) -> list[int]:
        """The processes that loaded and are not the one that trained, in the order in which they first did."""
        return list(dict.fromkeys(process for process, _, _ in self.loads if process != self.process))

    @property
    def seconds(self) -> float:
        """From entering the loop to the end of the last step."""
        return self.steps[-1][1] - self.started if self.steps else 0.0

    @property
    def training_seconds(self) -> float:
        """The part of `seconds` in which a step was computed; in the rest the device waited for data."""
        return sum(ended - began for began, ended in self.steps)


def watch_epoch(loader: Iterable[Any], step: Callable[[Any], object]) -> Recording:
    """Call `step(batch)` for each batch of a loader over a `WatchedDataset`, and record the epoch.

    The step has to wait for its device (`loss.item()` does), else its end is noted too early.
    """
    recording = Recording(os.getpid(), time.monotonic())
    for batch, visits in loader:
        began = time.monotonic()
        step(batch)
        recording.steps.append((began, time.monotonic()))
        recording.loads.append((int(visits[0, 0]), float(visits[:, 1].min()), float(visits[:, 2].max())))
    return recording
