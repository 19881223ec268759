"""Checks of lesson 09: the learner's own DDP, gradient accumulation, and parameters that nobody used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.lesson_checks.rank_side import get_ready, rank_device
from mgpu_utils.models import digits_cnn
from mgpu_utils.traffic import Traffic

_TOLERANCE = 1e-5
_MICRO_BATCHES = 4


class OneBackward(NamedTuple):
    """A rank's gradients after one backward, those of its own shard and of one device, by parameter."""

    found: dict[str, Tensor | None]
    own: dict[str, Tensor]
    wanted: dict[str, Tensor]


class OwnDdp(NamedTuple):
    """What the learner's `my_ddp` left behind: what it returned, whether it asked rank 0, and two backwards."""

    returned: str
    at_start: tuple[int, ...]
    kept: bool
    backwards: tuple[OneBackward, ...]


class Accumulated(NamedTuple):
    """What `accumulate` did: sizes of its forward passes, number of all-reduces, and the gradients."""

    sizes: tuple[int, ...]
    sums: int
    gradients: OneBackward


@exercise(
    "09/own-ddp",
    minutes=15,
    difficulty=3,
    hints=[
        "Two things are wanted: equal weights now, and equal gradients later. `dist.broadcast(tensor, src=0)` gives "
        "every rank the tensor of rank 0.",
        "`parameter.register_post_accumulate_grad_hook(function)` calls `function(parameter)` in each backward, once "
        "its gradient is there. What should it do with `parameter.grad`?",
        "Sum over the ranks with `all_reduce`, then divide by `world_size`. Broadcast `parameter.data`, so that "
        "autograd does not object.",
    ],
    explain="Equal weights at the start, and the mean gradient after each backward: this is DDP, without buckets.",
)
def own_ddp(answer: Callable[[nn.Module], object], ranks: Any) -> None:
    """After `answer(model)` weights are those of rank 0, and each backward leaves the single-device gradient."""
    get_ready(ranks)
    results: list[OwnDdp] = run_answer(ranks, call_own_ddp, answer)
    if any("DistributedDataParallel" in result.returned for result in results):
        raise Wrong("this is PyTorch's DistributedDataParallel; build yours without it")
    for rank, result in enumerate(results):
        if 0 not in result.at_start:
            same = [owner for owner in result.at_start if owner != rank]
            whose = f"those of rank {same[0]}" if same else "still its own" if result.at_start else "a mixture"
            raise Wrong(f"after your function the weights of rank {rank} are {whose}; those of rank 0 are wanted")
        if not result.kept:
            raise Wrong(f"the weights of rank {rank} changed during backward(); only gradients were to be averaged")
    for number in range(2):
        _explain_gradients([result.backwards[number] for result in results], ("first", "second")[number] + " backward")


@exercise(
    "09/accumulate",
    minutes=8,
    difficulty=2,
    hints=[
        "Which of the 4 backward passes has to run the sum? `net.no_sync()` is for the others.",
        "DDP decides in `forward`. So `net(part)` and `backward()` of the first three both stand inside `no_sync()`.",
        "Gradients add up over the micro-batches. To get the mean over 32 samples, divide each mean of 8 by 4.",
    ],
    explain="One sum for four backward passes, and the gradient of one device.",
)
def accumulate(answer: Callable[[nn.Module, Tensor, Tensor], object], ranks: Any) -> None:
    """`answer(net, images, labels)` has to use 4 micro-batches, one all-reduce, and give the true gradient."""
    get_ready(ranks)
    results: list[Accumulated] = run_answer(ranks, call_accumulate, answer)
    for result in results:
        if not result.sizes:
            raise Wrong("`net` was never called; the forward pass has to go through DDP, and not through `net.module`")
        if sum(result.sizes) != 32:
            raise Wrong(f"{sum(result.sizes)} samples went through the model; each of the 32 is used once")
        if result.sizes != (8,) * _MICRO_BATCHES:
            listed = ", ".join(map(str, result.sizes))
            raise Wrong(f"the micro-batches had {listed} samples; 4 of 8 are wanted")
        if any(value is None for value in result.gradients.found.values()):
            raise Wrong("there is no gradient in the model: was `backward()` called?")
    sums = results[0].sums
    if sums == 0:
        raise Wrong("there was no all_reduce at all; the last micro-batch has to run one, for the sum of all four")
    if sums > 1:
        raise Wrong(
            f"there were {sums} all_reduces; one is wanted. What DDP does in backward() it decides in forward()"
        )
    _explain_gradients([result.gradients for result in results], "accumulation", _MICRO_BATCHES)


@exercise(
    "09/unused",
    minutes=8,
    difficulty=2,
    hints=[
        "On one rank: which parameters still have `grad is None`? `named_parameters()` gives their names.",
        "A rank knows its own list only. `dist.all_gather_object(everybody, mine)` gives every rank all the lists.",
        "Used by nobody means: on the list of every rank. `set.intersection(*everybody)`.",
    ],
    explain="Every rank knows the names. DDP needs the same knowledge, for which it runs one more all_reduce.",
)
def unused(answer: Callable[[nn.Module], list[str]], ranks: Any) -> None:
    """Every rank has to return the sorted names of the parameters that no rank's loss has used."""
    results = run_answer(ranks, call_unused, answer)
    wanted = ["nobody.bias", "nobody.weight"]
    for rank, names in enumerate(results):
        if names is None:
            raise Wrong(f"rank {rank} returned nothing: end your function with `return`")
        if not isinstance(names, list | tuple | set) or any(not isinstance(name, str) for name in names):
            raise Wrong(f"rank {rank} returned {names!r}; a list of names is wanted")
        _explain_names(rank, set(names), set(wanted))
        if list(names) != wanted:
            raise Wrong("the names are right, but they have to be a sorted list, so that all ranks agree on it")


def call_own_ddp(answer: Callable[[nn.Module], object]) -> OwnDdp:
    """Run the learner's function and two backwards with it; runs on a rank."""
    device, rank, world_size = rank_device(), dist.get_rank(), dist.get_world_size()
    models = [digits_cnn(seed=100 + owner).to(device) for owner in range(world_size)]
    model = digits_cnn(seed=100 + rank).to(device)
    returned = answer(model)
    used = returned if isinstance(returned, nn.Module) else model
    at_start = tuple(owner for owner, other in enumerate(models) if _equal(model, other))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    backwards = []
    for number in range(2):
        used.zero_grad()
        model.zero_grad()
        images, labels = (tensor.to(device) for tensor in digits(train=True)[64 * number : 64 * number + 64])
        shards = (tensor.tensor_split(world_size)[rank] for tensor in (images, labels))
        x, y = shards
        share = len(y) * world_size / len(labels)
        (cross_entropy(used(x), y) * share).backward()
        backwards.append(_one_backward(model, digits_cnn(seed=100).to(device), (x, y, share), (images, labels)))
    kept = all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    return OwnDdp(type(returned).__name__ + str(type(used).__mro__), at_start, kept, tuple(backwards))


def call_accumulate(answer: Callable[[nn.Module, Tensor, Tensor], object]) -> Accumulated:
    """Run the learner's accumulation over this rank's 32 samples; runs on a rank."""
    device, rank, world_size = rank_device(), dist.get_rank(), dist.get_world_size()
    images, labels = (tensor.to(device) for tensor in digits(train=True)[: 32 * world_size])
    x, y = (tensor.chunk(world_size)[rank] for tensor in (images, labels))
    net = nn.parallel.DistributedDataParallel(digits_cnn(seed=7).to(device))
    sizes: list[int] = []
    net.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    with Traffic() as traffic:
        answer(net, x.clone(), y.clone())
    sums = sum(call.name == "all_reduce" for call in traffic.calls)
    gradients = _one_backward(net.module, digits_cnn(seed=7).to(device), (x, y, 1.0), (images, labels))
    return Accumulated(tuple(sizes), sums, gradients)


def call_unused(answer: Callable[[nn.Module], Any]) -> Any:
    """What the learner's function says of a model of which each rank used another part; runs on a rank."""
    device, rank = rank_device(), dist.get_rank()
    # In no alphabetical order, so that sorting shows.
    names = ("shared", "nobody", "frozen", "first", "silent", "other")
    model = nn.ModuleDict({name: nn.Linear(4, 2) for name in names}).to(device)
    model["frozen"].requires_grad_(False)
    x = torch.ones(3, 4, device=device)
    loss = model["shared"](x).sum() + model["frozen"](x).sum() + 0 * model["silent"](x).sum()
    (loss + model["first" if rank == 0 else "other"](x).sum()).backward()
    return answer(model)


def _one_backward(
    model: nn.Module, fresh: nn.Module, shard: tuple[Tensor, Tensor, float], batch: tuple[Tensor, Tensor]
) -> OneBackward:
    found = {name: None if p.grad is None else p.grad.detach().clone() for name, p in model.named_parameters()}
    x, y, share = shard
    # The gradient of the shard alone: of this rank's weights as they are now.
    (cross_entropy(fresh(x), y) * share).backward()
    own = {name: p.grad.clone() for name, p in fresh.named_parameters() if p.grad is not None}
    fresh.zero_grad()
    cross_entropy(fresh(batch[0]), batch[1]).backward()
    wanted = {name: p.grad for name, p in fresh.named_parameters() if p.grad is not None}
    return OneBackward(found, own, wanted)


def _explain_gradients(backwards: list[OneBackward], when: str, parts: int = 1) -> None:
    for rank, (found, own, wanted) in enumerate(backwards):
        missing = [name for name, gradient in found.items() if gradient is None]
        if missing:
            raise Wrong(f"after the {when} rank {rank} has no gradient for {missing[0]}")
        wrong = [name for name, gradient in found.items() if not _close(gradient, wanted[name])]
        if not wrong:
            continue
        if len(wrong) < len(found):
            raise Wrong(
                f"after the {when} {len(found) - len(wrong)} of {len(found)} gradients of rank {rank} are right, but "
                f"not that of {wrong[0]}"
            )
        alone, flat, right = (_flat(gradients) for gradients in (own, found, wanted))
        if _close(flat, alone):
            raise Wrong(f"after the {when} rank {rank} has the gradient of its own shard: nothing was added up")
        factor = float((flat @ right) / (right @ right))
        if _close(flat, factor * right, scale=max(1.0, abs(factor))):
            raise Wrong(f"after the {when} rank {rank}'s gradient is {_times(factor, len(backwards), parts)}")
        raise Wrong(
            f"after the {when} rank {rank}'s gradient differs from that of one device by up to "
            f"{float((flat - right).abs().max()):.2g}"
        )


def _times(factor: float, world_size: int, parts: int) -> str:
    said = f"{factor:.3g} times that of one device"
    if parts > 1 and abs(factor - parts) < 0.01:
        return f"{said}: four means were added, and the mean of them is wanted"
    if abs(factor - world_size) < 0.01:
        return f"{said}: a sum, where the mean is wanted"
    if abs(factor - 1 / world_size) < 0.01:
        return f"{said}: was it averaged twice, or not added up before it was divided?"
    return said


def _explain_names(rank: int, names: set[str], wanted: set[str]) -> None:
    if names == wanted:
        return
    frozen = sorted(name for name in names if name.startswith("frozen"))
    if frozen:
        raise Wrong(f"{frozen[0]} is frozen: it needs no gradient, and is not meant")
    silent = sorted(name for name in names if name.startswith("silent"))
    if silent:
        raise Wrong(f"{silent[0]} was used: its gradient is 0, but it has one")
    elsewhere = sorted(name for name in names - wanted if name.startswith(("first", "other")))
    if elsewhere:
        raise Wrong(f"rank {rank} names {elsewhere[0]}, which another rank has used")
    if names - wanted:
        raise Wrong(f"rank {rank} names {sorted(names - wanted)[0]}, which every rank has used")
    raise Wrong(f"rank {rank} misses {sorted(wanted - names)[0]}, which no rank has used")


def _equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def _flat(gradients: Any) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


def _close(found: Tensor | None, wanted: Tensor, scale: float = 1.0) -> bool:
    return found is not None and torch.allclose(found, wanted, atol=_TOLERANCE * scale, rtol=1e-4)
