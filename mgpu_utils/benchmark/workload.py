"""What a measured run trains on: made-up batches of a model's kind, in memory or through a DataLoader, and its loss."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from mgpu_utils.data import synthetic_images
from mgpu_utils.models import MODELS

_DIFFERENT_BATCHES = 4
Batch = tuple[Tensor, Tensor]


def samples(model: str, count: int, seed: int) -> TensorDataset:
    """Return `count` made-up samples for a model: images with labels (int64), or tokens with the tokens after them."""
    spec = MODELS[model]
    if spec.takes == "images":
        return synthetic_images(count, spec.sample_shape, spec.classes, seed)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(spec.classes, (count, spec.sample_shape[0] + 1), generator=generator)
    return TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def loss_sum(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy summed over the samples of a batch; of a sample of many tokens, the mean over its tokens."""
    tokens = targets[0].numel() if targets.dim() > 1 else 1
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="sum") / tokens


class BatchesInMemory:
    """The same few batches again and again, on the device already: a run measures compute and communication only."""

    def __init__(self, model: str, batch: int, seed: int, device: torch.device) -> None:
        inputs, targets = samples(model, batch * _DIFFERENT_BATCHES, seed).tensors
        pieces = zip(inputs.split(batch), targets.split(batch), strict=True)
        self._batches = [(some.to(device), wanted.to(device)) for some, wanted in pieces]
        self._next = 0

    def __call__(self) -> Batch:
        """The next batch."""
        self._next += 1
        return self._batches[self._next % len(self._batches)]


class BatchesFromLoader:
    """Batches from a DataLoader with `workers` processes, whose samples take `load_ms` each, copied to the device."""

    def __init__(
        self, model: str, batch: int, seed: int, device: torch.device, *, workers: int, load_ms: float, batches: int
    ) -> None:
        dataset = _SlowSamples(samples(model, batch * _DIFFERENT_BATCHES, seed), batch * batches, load_ms / 1e3)
        self._device = device
        self._loader: DataLoader[Batch] = DataLoader(
            dataset,
            batch_size=batch,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            # A process that has started threads must not fork: its child could wait for a lock that nobody holds.
            multiprocessing_context="spawn" if workers else None,
        )
        self._iterator: Iterator[Batch] = iter(self._loader)

    def __call__(self) -> Batch:
        """The next batch."""
        inputs, targets = next(self._iterator)
        return inputs.to(self._device, non_blocking=True), targets.to(self._device, non_blocking=True)


class _SlowSamples(Dataset[Batch]):
    def __init__(self, data: TensorDataset, length: int, seconds: float) -> None:
        self.data, self.length, self.seconds = data, length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        # A DataLoader asks for a whole batch here; one long sleep is exact where many short ones are not.
        if self.seconds:
            time.sleep(self.seconds * len(indices))
        return [self.data[index % len(self.data)] for index in indices]
