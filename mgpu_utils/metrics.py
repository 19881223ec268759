"""Bring the metrics of all ranks together: the same names on every rank, one tensor, one sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from mgpu_utils.agreement import values_on_ranks


def reduce_metrics(metrics: Mapping[str, Any], weight: float = 1.0) -> dict[str, float]:
    """The mean of each metric over all ranks, weighted, the same on every rank and sorted by name.

    Call it on every rank, with the same names in any order; `weight` is what this rank's values count for, such as
    its number of samples. A rank of weight 0 takes part and counts for nothing; where all weights are 0 the means
    are nan. Outside a process group the values come back as they are. Collectives: an all-gather of the names,
    then one all-reduce of all values together.

    Raises: ValueError, on every rank, when the names differ between ranks or a value or weight is not one number.
    """
    names = sorted(map(str, metrics))
    _require_same_names(names, _complaint(metrics, weight))
    rows = [float(metrics[name]) * weight if weight else 0.0 for name in names]
    totals = torch.tensor([*rows, weight], dtype=torch.float64, device=_device())
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(totals)
    *sums, weights = totals.tolist()
    return {name: total / weights if weights else math.nan for name, total in zip(names, sums, strict=True)}


def _complaint(metrics: Mapping[str, Any], weight: object) -> str | None:
    for name, value in {**metrics, "weight": weight}.items():
        try:
            float(value)
        except (TypeError, ValueError, RuntimeError):
            shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
            return f"{name!r} is {shown}, not one number"
    return None


def _require_same_names(names: list[str], complaint: str | None) -> None:
    # A rank with bad values speaks up here: raising before would leave the others waiting.
    everybody = values_on_ranks((names, complaint))
    for rank, (_, said) in enumerate(everybody):
        if said is not None:
            raise ValueError(f"on rank {rank} {said}.")
    common = set(names).intersection(*(set(held) for held, _ in everybody))
    extra = [f"rank {rank} has also {sorted(set(held) - common)}" for rank, (held, _) in enumerate(everybody)]
    if any(set(held) != common for held, _ in everybody):
        raise ValueError(
            f"the ranks bring different metrics: all have {sorted(common)}, "
            + ", ".join(words for words, (held, _) in zip(extra, everybody, strict=True) if set(held) != common)
            + ". Give every rank the same names."
        )


def _device() -> torch.device:
    if dist.is_available() and dist.is_initialized() and dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
