"""Which gradients travel together: DDP's buckets, from PyTorch's own function.

Source: https://docs.pytorch.org/docs/stable/notes/ddp.html ("Internal Design");
`torch/nn/parallel/distributed.py` (`_BucketCapacityConfig`) and `reducer.cpp` (`rebuild_buckets`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

MIB = 1024**2
DEFAULT_CAP_MB = 25
Rule = Literal["rebuilt", "registered"]


@dataclass(frozen=True)
class Bucket:
    """Gradients that one all-reduce sends: their places in the list of parameters, and their bytes."""

    parameters: tuple[int, ...]
    size: int


def assign(
    tensors: Sequence[Tensor],
    *,
    cap_mb: float | None = None,
    rule: Rule = "rebuilt",
    order: Sequence[int] | None = None,
) -> list[Bucket]:
    """Return DDP's buckets in the order in which they are sent.

    Args:
        tensors: the parameters in the order of registration. Only shapes and types matter; the meta device will do.
        cap_mb: `bucket_cap_mb`; by default PyTorch's 25, with a first bucket of 1 MiB so that sending starts early.
        rule: "rebuilt" is what DDP does from its second step on: buckets filled in the order in which gradients
            arrive, the small one first. "registered" is PyTorch 1.4: filled in the order of registration and sent
            backwards, so that the small one comes last.
        order: the places of the parameters in the order in which their gradients arrive; by default from last to
            first (see `arrival_order`).

    Raises: ValueError for a cap that is not positive.
    """
    if cap_mb is not None and not cap_mb > 0:
        raise ValueError(f"bucket_cap_mb must be above 0, not {cap_mb}.")
    if not tensors:
        return []
    cap = int((DEFAULT_CAP_MB if cap_mb is None else cap_mb) * MIB)
    first = dist._DEFAULT_FIRST_BUCKET_BYTES if cap_mb is None else cap
    limits = [first, cap] if first < cap else [cap]
    places = list(range(len(tensors)))
    if rule == "rebuilt":
        places = list(order) if order is not None else places[::-1]
    indices, _ = dist._compute_bucket_assignment_by_size(
        [tensors[place] for place in places], limits, [False] * len(places), [] if rule == "registered" else places
    )
    if rule == "registered":
        indices = indices[::-1]
    else:
        # PyTorch sorts buckets by their smallest parameter; they are sent in the order in which they were filled.
        arrival = {place: number for number, place in enumerate(places)}
        indices = sorted(indices, key=lambda bucket: min(arrival[place] for place in bucket))
    return [Bucket(tuple(bucket), sum(_bytes(tensors[place]) for place in bucket)) for bucket in indices]


def assign_module(module: nn.Module, **options: object) -> list[Bucket]:
    """Return the buckets of a module's parameters that need gradients; the options are those of `assign`."""
    return assign([parameter for parameter in module.parameters() if parameter.requires_grad], **options)  # type: ignore[arg-type]


def arrival_order(module: nn.Module, loss: Callable[[nn.Module], Tensor]) -> list[int]:
    """Return the places of the parameters in the order in which their gradients arrive in one real backward.

    ``loss`` gets the module and returns what `backward` is called on. It is nearly the order from last to first, but
    for instance a norm's weight arrives before its bias. Gradients are gone afterwards.
    """
    seen: list[int] = []
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    handles = [
        parameter.register_post_accumulate_grad_hook(lambda _, place=place: seen.append(place))
        for place, parameter in enumerate(parameters)
    ]
    try:
        loss(module).backward()
    finally:
        for handle in handles:
            handle.remove()
    module.zero_grad(set_to_none=True)
    return seen


def ready_shares(buckets: Sequence[Bucket], work: Sequence[float]) -> list[float]:
    """Return the share of backward's work after which each bucket can go.

    ``work`` holds each parameter's share of backward in any unit, in the order of registration; gradients
    arrive from last to first. A bucket waits for the last of its own, and for the buckets before it.
    """
    total = sum(work) or 1.0
    done = 0.0
    at = [0.0] * len(work)
    for place in range(len(work) - 1, -1, -1):
        done += work[place]
        at[place] = done / total
    shares: list[float] = []
    for bucket in buckets:
        latest = max(at[place] for place in bucket.parameters)
        shares.append(min(1.0, max([latest, *shares[-1:]])))
    return shares


def empty_tensors(shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return float32 tensors of these shapes that hold no memory."""
    return [torch.empty(tuple(shape), device="meta") for shape in shapes]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
