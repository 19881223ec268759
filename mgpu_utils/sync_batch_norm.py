"""SyncBatchNorm where it works; on a CPU, BatchNorm left as it is, and one notice."""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist
from torch import nn

_noticed = False


def convert_sync_batch_norm(module: nn.Module, device: torch.device | str) -> nn.Module:
    """The module with BatchNorm replaced by SyncBatchNorm where that works: on CUDA and other GPUs, not on a CPU.

    On a CPU the module comes back unchanged, with one notice in the life of the process (on rank 0 alone where there
    is a group), because DDP refuses to wrap a SyncBatchNorm there. Collectives of a converted layer: one all-gather
    of the statistics in forward, one all-reduce of their gradients in backward.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html
    """
    layers = [child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm)]
    if not any(not isinstance(layer, nn.SyncBatchNorm) for layer in layers):
        return module
    if torch.device(device).type not in ("cpu", "mps", "meta"):
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    global _noticed
    main = not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0
    if main and not _noticed:
        _noticed = True
        warnings.warn(
            f"SyncBatchNorm needs GPUs: the {len(layers)} BatchNorm layers stay as they are, and each rank computes "
            "statistics of its own shard.",
            stacklevel=2,
        )
    return module
