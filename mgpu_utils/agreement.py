"""Ask all ranks whether they are about to do the same, before a collective that would hang or abort if not."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import torch.distributed as dist


def values_on_ranks(value: Any) -> list[Any]:
    """What each rank holds as `value`, in rank order, on every rank; outside a process group a list of one.

    Collective: an all-gather of one picklable object a rank.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, value)
    return everybody


def require_equal_steps(batches: int | Sized) -> int:
    """Return the number of steps of an epoch if it is the same on every rank; `batches` is it, or a loader.

    Call it on every rank before the epoch. Under DDP a rank with fewer steps leaves the others waiting in
    `backward()` (nccl), or aborts them (gloo). Collective: an all-gather of one object a rank.

    Raises: ValueError, on every rank, when the numbers differ; it names each rank's.
    """
    steps = batches if isinstance(batches, int) else len(batches)
    everybody = values_on_ranks(steps)
    if len(set(everybody)) == 1:
        return steps
    listed = ", ".join(f"rank {rank} takes {count}" for rank, count in enumerate(everybody))
    raise ValueError(
        f"the ranks would not take the same number of steps: {listed}. After step {min(everybody)} the others would "
        "wait for ever. Give every rank equally many batches, or put the loop into `with ddp_model.join():`."
    )
