"""Make sure that a model lies where it is to run."""

from __future__ import annotations

from itertools import chain

import torch
from torch import nn


def require_device(module: nn.Module, device: torch.device | str) -> None:
    """Raise RuntimeError, naming the tensor and both devices, unless every parameter and buffer is on `device`."""
    wanted = torch.device(device)
    if wanted.type not in ("cpu", "meta") and wanted.index is None:
        wanted = torch.device(wanted.type, torch.accelerator.current_device_index())
    named = chain(
        (("parameter", name, p) for name, p in module.named_parameters()),
        (("buffer", name, b) for name, b in module.named_buffers()),
    )
    misplaced = [(kind, name, tensor.device) for kind, name, tensor in named if tensor.device != wanted]
    if not misplaced:
        return
    kind, name, found = misplaced[0]
    more = f", and {len(misplaced) - 1} more are not on {wanted} either" if len(misplaced) > 1 else ""
    cure = "module.to_empty(device=...) and then load or initialise it" if found.type == "meta" else "module.to(...)"
    raise RuntimeError(f"{kind} {name!r} is on {found}, but has to be on {wanted}{more}. Move the model with {cure}.")
