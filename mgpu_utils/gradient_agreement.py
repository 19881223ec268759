"""Are the gradients of all ranks the same after a step, and if not, which parameter is the reason?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mgpu_utils.rank_errors import number_ranks


@dataclass(frozen=True)
class GradientAgreement:
    """What a comparison of all ranks' gradients found.

    Attributes:
        world_size: number of ranks compared.
        parameters: number of parameters that can have a gradient.
        differing: names of the parameters whose gradients are not the same bits on every rank.
        unused: names of parameters without a gradient, each with the ranks on which it has none.
    """

    world_size: int
    parameters: int
    differing: tuple[str, ...]
    unused: dict[str, tuple[int, ...]]

    @property
    def agree(self) -> bool:
        """Whether every rank holds the same gradients."""
        return not self.differing

    def __str__(self) -> str:
        if self.agree and not self.unused:
            return f"all {self.parameters} gradients are the same on {self.world_size} ranks"
        lines = []
        if self.differing:
            lines.append(
                f"{len(self.differing)} of {self.parameters} gradients differ between the ranks: "
                f"{_listed(self.differing)}"
            )
        else:
            lines.append(f"the gradients are the same on {self.world_size} ranks")
        for ranks in dict.fromkeys(self.unused.values()):
            names = [name for name, where in self.unused.items() if where == ranks]
            where = "on any rank" if len(ranks) == self.world_size else f"on {number_ranks(list(ranks))}"
            lines.append(f"no gradient {where}: {_listed(names)} (the loss does not use {_them(names)} there)")
        return "\n".join(lines)


def gradient_of(module: nn.Module) -> Tensor:
    """All gradients of a module, one after the other, as one tensor of shape (parameters,) on their device.

    Raises ValueError when a parameter that can have a gradient has none.
    """
    missing = [name for name, p in module.named_parameters() if p.requires_grad and p.grad is None]
    if missing:
        raise ValueError(f"{missing[0]} has no gradient: call backward() first, on a loss that uses it.")
    return torch.cat([p.grad.detach().flatten() for p in module.parameters() if p.grad is not None])


def compare_gradients(module: nn.Module) -> GradientAgreement:
    """Compare the gradients of `module`, plain or wrapped in DDP, over all ranks, bit by bit.

    Call it on every rank, after `backward` and before the next one. Collective: two all-gathers (one object a
    rank). Replicas which start equal stay equal only as long as this agrees after every step.
    """
    plain = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
    mine = {name: _digest(p.grad) for name, p in plain.named_parameters() if p.requires_grad}
    everybody: list[dict[str, str | None]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybody, mine)
    names = list(dict.fromkeys(name for held in everybody for name in held))
    unused = {
        name: tuple(rank for rank, held in enumerate(everybody) if held.get(name) is None)
        for name in names
        if any(held.get(name) is None for held in everybody)
    }
    differing = tuple(name for name in names if len({held.get(name) for held in everybody}) > 1)
    return GradientAgreement(len(everybody), len(names), differing, unused)


def _digest(gradient: Tensor | None) -> str | None:
    if gradient is None:
        return None
    raw = gradient.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
