"""Fingerprints of a model's tensors, side by side for all ranks: shows at a glance whether replicas are equal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from mgpu_utils.strategies import unwrap

_DIGITS = 8
_LINES = 24


def parameter_hashes(module: nn.Module) -> dict[str, str]:
    """Eight hexadecimal digits for each parameter and buffer, from its shape, dtype and every bit of its values.

    Wrapped modules give the names of the plain module inside. No collective; call it on every rank.
    """
    plain = unwrap(module)
    tensors = {**dict(plain.named_parameters()), **dict(plain.named_buffers())}
    return {name: _hash(tensor) for name, tensor in tensors.items()}


def _hash(tensor: torch.Tensor) -> str:
    values = tensor.detach().to("cpu").contiguous()
    digest = hashlib.sha256(f"{values.dtype} {tuple(values.shape)} ".encode())
    digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:_DIGITS]


class HashTable:
    """The fingerprints of every rank, one row a tensor; from `ranks.run(...)`, which gives one dict a rank.

    Raises ValueError when there is no rank, or when the ranks do not name the same tensors.
    """

    def __init__(self, hashes: Sequence[Mapping[str, str]]) -> None:
        if not hashes:
            raise ValueError("a hash table needs the hashes of at least one rank.")
        for rank, names in enumerate(hashes):
            odd = sorted(set(names) ^ set(hashes[0]))
            if odd:
                raise ValueError(f"rank 0 and rank {rank} hold different models: only one of them has {odd[0]!r}.")
        self.rows = {name: [str(rank[name]) for rank in hashes] for name in hashes[0]}
        self.world_size = len(hashes)

    @property
    def different(self) -> list[str]:
        """Names of the tensors that are not the same on all ranks."""
        return [name for name, row in self.rows.items() if len(set(row)) > 1]

    @property
    def agree(self) -> bool:
        """Whether every tensor is the same on all ranks, bit by bit."""
        return not self.different

    def __repr__(self) -> str:
        equal = len(self.rows) - len(self.different)
        width = max([6, *map(len, self.rows)])
        lines = [f"{'tensor':{width}}  " + "".join(f"rank {rank:<6}" for rank in range(self.world_size)).rstrip()]
        for name, row in list(self.rows.items())[:_LINES]:
            mark = "" if len(set(row)) == 1 else "differs"
            lines.append(f"{name:{width}}  " + "".join(f"{digits:11}" for digits in row) + mark)
        if len(self.rows) > _LINES:
            lines.append(f"... and {len(self.rows) - _LINES} more")
        lines.append(f"{equal} of {len(self.rows)} tensors are the same on all {self.world_size} ranks")
        return "\n".join(line.rstrip() for line in lines)

    def _ipython_display_(self) -> None:
        from mgpu_utils.figures.data import hash_table
        from mgpu_utils.figures.showing import show_object

        show_object(self, hash_table(self))
