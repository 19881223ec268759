"""Datasets that need no download, and the sampler that splits one global batch over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler, TensorDataset, default_collate

TRAIN_DIGITS = 1437
TEST_DIGITS = 360


def digits(train: bool = True) -> TensorDataset:
    """The handwritten digits that ship with scikit-learn: 1437 to train on, 360 to test on.

    Each item is `(image, label)`: a float32 image of shape (1, 8, 8) with values in [0, 1], and an int64 label.
    The split is stratified and always the same. Source: UCI "Optical Recognition of Handwritten Digits".
    """
    # Copies: who changes a label of theirs must not change everybody's.
    return TensorDataset(*(tensor.clone() for tensor in _digit_tensors()[0 if train else 1]))


@cache
def _digit_tensors() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw = load_digits()
    parts = train_test_split(raw.images, raw.target, test_size=TEST_DIGITS, stratify=raw.target, random_state=0)
    x_train, x_test = (torch.from_numpy(part).float().div(16).unsqueeze(1) for part in parts[:2])
    y_train, y_test = (torch.from_numpy(part).long() for part in parts[2:])
    return (x_train, y_train), (x_test, y_test)


def synthetic_images(n: int, shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, seed: int = 0) -> TensorDataset:
    """`n` made-up images of the given shape, each its class's pattern under noise, so that they can be learned.

    Each item is `(image, label)`: float32 of `shape` and int64. The same seed gives the same images everywhere.
    """
    if n < 1 or classes < 1:
        raise ValueError(f"synthetic_images needs n >= 1 and classes >= 1, got n={n}, classes={classes}.")
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    patterns = torch.randn(classes, *shape, generator=generator)
    images = torch.randn(n, *shape, generator=generator).add_(patterns[labels])
    return TensorDataset(images, labels)


def split_sizes(batch: int, devices: int) -> list[int]:
    """How many samples each device gets when `batch` samples are scattered over `devices` devices.

    This is what `nn.DataParallel` (`torch.chunk`) does: pieces of ceil(batch / devices), so that the last device
    may get fewer, and the last devices none at all: 9 over 4 is [3, 3, 3], and the fourth device stays idle.
    """
    if batch < 0 or devices < 1:
        raise ValueError(f"split_sizes needs batch >= 0 and devices >= 1, got {batch} and {devices}.")
    if batch == 0:
        return [0] * devices
    piece = -(-batch // devices)
    return [min(piece, batch - start) for start in range(0, batch, piece)]


class ShardedBatchSampler(Sampler[list[int]]):
    """Batches of indices for one rank: its contiguous piece of each global batch.

    The order of the samples is the same for every world size, so the union of all ranks' pieces at step k is
    exactly the batch that a single device would take at step k, the last, smaller one included. Every rank takes
    the same number of steps: a rank for which nothing is left in a batch yields an empty list. Nothing is padded.

    Args:
        dataset_len: number of samples in the whole dataset.
        global_batch: samples in one step over all ranks together.
        rank, world_size: whose piece this is, of how many.
        shuffle: a new order each epoch (see `set_epoch`), drawn from `seed` alone.
        drop_last: leave out the last batch if it is smaller than `global_batch`.
    """

    def __init__(
        self,
        dataset_len: int,
        global_batch: int,
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if dataset_len < 1:
            raise ValueError("The dataset is empty: there is nothing to make batches of.")
        if global_batch < 1:
            raise ValueError(f"The global batch must hold at least one sample, got {global_batch}.")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not one of the {world_size} ranks 0 to {world_size - 1}.")
        self.dataset_len = dataset_len
        self.global_batch = global_batch
        self.rank = rank
        self.world_size = world_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration uses; call it with the same number on every rank."""
        self.epoch = epoch

    @property
    def global_sizes(self) -> list[int]:
        """Samples in each step of one epoch over all ranks together; known to every rank without asking."""
        full, rest = divmod(self.dataset_len, self.global_batch)
        last = [rest] if rest and not self.drop_last else []
        return [self.global_batch] * full + last

    def __len__(self) -> int:
        return len(self.global_sizes)

    def __iter__(self) -> Iterator[list[int]]:
        if self.shuffle:
            # Seed and epoch are mixed so that (seed 0, epoch 1) and (seed 1, epoch 0) are different orders.
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = torch.randperm(self.dataset_len, generator=generator).tolist()
        else:
            order = list(range(self.dataset_len))
        start = 0
        for size in self.global_sizes:
            piece = -(-size // self.world_size)
            first = min(self.rank * piece, size)
            last = min(first + piece, size)
            yield order[start + first : start + last]
            start += size


class CollateWithEmpty:
    """Stack samples into a batch as `default_collate` does, and no samples into a batch of length 0.

    The shapes and types of the empty batch are those of the dataset's first item.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __call__(self, samples: list[Any]) -> Any:
        if samples:
            return default_collate(samples)
        return _first_none(default_collate([self.dataset[0]]))


def _first_none(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch[:0]
    if isinstance(batch, dict):
        return {key: _first_none(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_first_none(item) for item in batch))
    if isinstance(batch, list | tuple) and not isinstance(batch[0], str | bytes):
        return type(batch)(_first_none(item) for item in batch)
    return batch[:0]
