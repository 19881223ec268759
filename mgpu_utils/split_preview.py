"""What DataParallel does with a batch: how many samples each device gets, and whether that goes well."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu_utils.data import split_sizes


@dataclass(frozen=True, repr=False)
class SplitPreview:
    """How a batch is scattered over devices. Draws itself as a table in a notebook and as text elsewhere.

    Attributes:
        batch: samples in the batch.
        devices: how many devices share it.

    Raises:
        ValueError: a batch below 0, or no device.
    """

    batch: int
    devices: int

    def __post_init__(self) -> None:
        split_sizes(self.batch, self.devices)

    @property
    def sizes(self) -> list[int]:
        """Samples of each device that gets any, as `split_sizes` gives them: 9 over 4 is [3, 3, 3]."""
        return split_sizes(self.batch, self.devices)

    @property
    def notice(self) -> str | None:
        """What is wrong with this split, and what to do; None where every device gets two samples or more."""
        return split_notice(self.sizes, self.devices)

    def __repr__(self) -> str:
        first = f"{_samples(self.batch)} over {_devices(self.devices)}: {self.sizes}"
        return f"{first}\n{self.notice}" if self.notice else first

    def _repr_html_(self) -> str:
        # Colours and borders are left to the notebook's theme, so that dark and light both stay readable.
        cell = 'style="text-align: right"'
        idle = self.devices - len(self.sizes)
        heads = "".join(f'<th scope="col" {cell}>device {number}</th>' for number in range(self.devices))
        cells = "".join(f"<td {cell}>{size}</td>" for size in [*self.sizes, *[0] * idle])
        row = f'<th scope="row" {cell}>samples of {self.batch}</th>'
        note = f"<p>{html.escape(self.notice)}</p>" if self.notice else ""
        return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody><tr>{row}{cells}</tr></tbody></table>{note}"


def split_notice(sizes: Sequence[int], devices: int, batch_norm: bool = False) -> str | None:
    """What is wrong when `devices` devices get `sizes` samples: one of them gets nothing, or one sample alone.

    None where nothing is wrong, where there is one device only, and where there is no sample at all. With
    `batch_norm` the words say what a single sample means for BatchNorm in training.
    """
    batch = sum(sizes)
    each = [*sizes, *[0] * (devices - len(sizes))]
    idle = [number for number, size in enumerate(each) if size == 0]
    alone = [number for number, size in enumerate(each) if size == 1]
    if devices < 2 or not batch or not (idle or alone):
        return None
    facts = []
    if idle:
        facts.append(f"{_numbered(idle)} {'gets' if len(idle) == 1 else 'get'} nothing")
    if alone:
        facts.append(f"{_numbered(alone)} {'gets' if len(alone) == 1 else 'get'} one sample")
    words = [f"A batch of {batch} over {_devices(devices)} is split into {list(sizes)}: {', and '.join(facts)}."]
    if alone and batch_norm:
        words.append(
            "BatchNorm in training needs more than one value per channel: it takes the statistics of that sample "
            "alone, and raises an error where the sample has one value per channel."
        )
    words.append(f"{_even_batches(batch, devices)}; `drop_last=True` leaves out a smaller last batch.")
    return " ".join(words)


def _even_batches(batch: int, devices: int) -> str:
    """The nearest batches that give every device the same number of samples, and at least two."""
    below = batch // devices * devices
    first, second = (max(size, 2 * devices) for size in (below, below + devices))
    if first == second:
        return f"A batch of {first} gives every device the same"
    return f"Batches of {first} or {second} give every device the same"


def _samples(count: int) -> str:
    return f"{count} sample{'' if count == 1 else 's'}"


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _numbered(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"device {numbers[0]}"
    if len(numbers) > 4:
        return _devices(len(numbers))
    return f"devices {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
