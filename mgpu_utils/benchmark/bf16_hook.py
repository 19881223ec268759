"""A communication hook for DDP which averages gradients in bfloat16 over any backend."""

# Without `from __future__ import annotations`: PyTorch looks at a hook's annotations and refuses them as texts.
from typing import Any

import torch
import torch.distributed as dist


def mean_in_bf16(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket (one all-reduce of half the bytes): each rank's share is rounded before it is added.

    Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
    """
    buffer = bucket.buffer()
    small = buffer.to(torch.bfloat16).div_(dist.get_world_size())
    work: Any = dist.all_reduce(small, async_op=True)
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: buffer.copy_(done.value()[0]))
    return future
