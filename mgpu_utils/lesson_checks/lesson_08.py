"""Checks of lesson 08: losses whose gradient under DDP is that of one device, and the loss that is logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.lesson_checks.rank_side import first_problem, get_ready, rank_device
from mgpu_utils.models import digits_cnn

IGNORED = -100
_TOLERANCE = 1e-5
_WEIGHTS = (0.5, 3.0, 1.0, 0.2, 2.0, 1.0, 0.7, 4.0, 1.0, 0.1)


@dataclass(frozen=True)
class Batch:
    """One global batch: how many samples each rank has, and how many of its labels each rank ignores."""

    sizes: tuple[int, ...]
    ignored: tuple[int, ...]
    seed: int

    def __str__(self) -> str:
        samples = " and ".join(map(str, self.sizes))
        if not any(self.ignored):
            return f"{samples} samples"
        counted = " and ".join(str(size - out) for size, out in zip(self.sizes, self.ignored, strict=True))
        return f"{counted} labels that count"


@dataclass(frozen=True)
class Gradients:
    """What the learner's loss gave on the ranks, what was wanted, and what known mistakes give."""

    found: Tensor
    wanted: Tensor
    mean_of_means: Tensor
    unweighted: Tensor
    counted: float
    weight: float


@exercise(
    "08/uneven",
    minutes=10,
    difficulty=2,
    hints=[
        "Let each sample count the same: start from `cross_entropy(..., reduction='sum')`. What is missing then?",
        "How many samples have all ranks together? Each rank knows its own number, and `dist.all_reduce` adds.",
        "DDP will divide by `world_size` after you. Undo it: multiply by `world_size`, divide by the total.",
    ],
    explain="Equal, uneven and empty shards all give the gradient of one device.",
)
def uneven(answer: Callable[[Tensor, Tensor], Tensor], ranks: Any) -> None:
    """The gradient of `answer(logits, labels)` under DDP has to be that of one device's mean loss."""
    get_ready(ranks)
    for batch in _batches(ranks.world_size, ((32, 32), (15, 14), (1, 0))):
        found = _gradients(ranks, answer, batch, None)
        _compare(found, batch, ranks.world_size)


@exercise(
    "08/log",
    minutes=6,
    difficulty=1,
    hints=[
        "A mean over all samples is one sum divided by one count. Which two numbers do all ranks have to add up?",
        "`all_reduce` changes its tensor in place. Make a new tensor for it: `torch.stack`, `clone`, ...",
        "Two numbers in one tensor are added by one `all_reduce`. Divide afterwards, and take `.item()`.",
    ],
    explain="The same number on every rank, whatever the shards hold.",
)
def log(answer: Callable[[Tensor, int], float], ranks: Any) -> None:
    """Every rank has to return the mean loss over all ranks' samples."""
    for sums, counts in (([20.0, 3.0], [10, 2]), ([7.0, 0.0], [4, 0]), ([6.0, 2.0], [4, 4])):
        sums = sums + [1.5] * (ranks.world_size - 2)
        counts = counts + [3] * (ranks.world_size - 2)
        results = run_answer(ranks, call_log, answer, sums, counts)
        _compare_logs([value for value, _ in results], sums, counts)
        changed = [rank for rank, (_, kept) in enumerate(results) if not kept]
        if changed:
            raise Wrong(f"your function changed `loss_sum` itself on rank {changed[0]}; leave it as it is")


@exercise(
    "08/weighted",
    minutes=12,
    difficulty=3,
    hints=[
        "Try it with two samples on one device: is the 'mean' the weighted sum divided by 2? By what else?",
        "One device divides by the sum of the weights of the labels that count. Each rank can compute its part of it.",
        "`class_weights[labels]` gives the weight of each label. Leave the ignored ones out before you add, and then "
        "add over the ranks.",
    ],
    explain="Weights and ignored labels: the denominator is a sum over all ranks, and the rest stays the same.",
)
def weighted(answer: Callable[[Tensor, Tensor, Tensor], Tensor], ranks: Any) -> None:
    """As `uneven`, with class weights and ignored labels."""
    get_ready(ranks)
    world_size = ranks.world_size
    for batch in _batches(world_size, ((32, 32), (15, 14), (32, 32)), ((24, 2), (0, 5), (0, 32))):
        found = _gradients(ranks, answer, batch, _WEIGHTS)
        _compare(found, batch, world_size)


def call_log(answer: Callable[[Tensor, int], Any], sums: list[float], counts: list[int]) -> tuple[Any, bool]:
    """What the learner's function returns on this rank, and whether it left its argument alone; runs on a rank."""
    rank = dist.get_rank()
    loss_sum = torch.tensor(sums[rank], device=rank_device(), requires_grad=True) * 1.0
    value = answer(loss_sum, counts[rank])
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return value, loss_sum.item() == sums[rank]


def call_loss(answer: Callable[..., Any], batch: Batch, weights: Sequence[float] | None) -> Gradients | tuple[int, str]:
    """The gradient that the learner's loss gives under DDP, or the rank and the reason; runs on a rank."""
    device, rank = rank_device(), dist.get_rank()
    images, labels = (tensor.to(device, copy=True) for tensor in digits(train=True)[: sum(batch.sizes)])
    parts = list(range(sum(batch.sizes)))
    owned = [torch.tensor(parts[sum(batch.sizes[:r]) :][:size]).long() for r, size in enumerate(batch.sizes)]
    for mine, count in zip(owned, batch.ignored, strict=True):
        labels[mine[:count]] = IGNORED
    weight = None if weights is None else torch.tensor(weights, device=device)
    net = nn.parallel.DistributedDataParallel(digits_cnn(seed=batch.seed).to(device))
    shard = labels[owned[rank]]
    loss = answer(net(images[owned[rank]]), shard.clone(), *([] if weight is None else [weight.clone()]))
    problem = first_problem(_no_loss(loss))
    if problem is not None:
        return problem
    loss.backward()
    wanted = _one_device(batch.seed, images, labels, weight)
    means = [_one_device(batch.seed, images[mine], labels[mine], weight) for mine in owned]
    counts = labels != IGNORED
    total = counts.sum().item() if weight is None else weight[labels[counts]].sum().item()
    return Gradients(
        _flat(net), wanted, torch.stack(means).mean(dim=0), _one_device(batch.seed, images, labels, None),
        float(counts.sum().item()), float(total),
    )  # fmt: skip


def _batches(
    world_size: int, sizes: Sequence[tuple[int, ...]], ignored: Sequence[tuple[int, ...]] = ((0, 0),) * 3
) -> list[Batch]:
    rest = world_size - 2
    return [
        Batch(size + (size[0],) * rest, out + (0,) * rest, seed)
        for seed, (size, out) in enumerate(zip(sizes, ignored, strict=True))
    ]


def _gradients(ranks: Any, answer: Any, batch: Batch, weights: Sequence[float] | None) -> Gradients:
    results = run_answer(ranks, call_loss, answer, batch, weights)
    if isinstance(results[0], tuple):
        rank, problem = results[0]
        raise Wrong(f"on rank {rank} {problem}")
    return results[0]


def _compare(grads: Gradients, batch: Batch, world_size: int) -> None:
    found, wanted = grads.found, grads.wanted
    if torch.allclose(found, wanted, atol=_TOLERANCE, rtol=1e-4):
        return
    if found.isnan().any():
        raise Wrong(
            f"for {batch} the gradient is nan: a rank on which nothing counts divided 0 by 0, and all ranks got it"
        )
    if torch.allclose(found, grads.mean_of_means, atol=_TOLERANCE, rtol=1e-4):
        raise Wrong(
            f"for {batch} each rank's mean counts the same, so the ranks with less have the same say; every rank "
            "divided by its own number"
        )
    factor = float((found @ wanted) / (wanted @ wanted))
    same_direction = torch.allclose(found, factor * wanted, atol=_TOLERANCE * max(1.0, abs(factor)), rtol=1e-3)
    times = f"for {batch} your gradient is {factor:.3g} times that of one device"
    if not same_direction:
        if grads.weight != grads.counted and torch.allclose(found, grads.unweighted, atol=_TOLERANCE, rtol=1e-4):
            raise Wrong("the class weights have no effect in your loss")
        largest = float((found - wanted).abs().max())
        raise Wrong(f"for {batch} the gradient differs from that of one device by up to {largest:.2g}")
    if _near(factor, 1 / world_size):
        raise Wrong(f"{times}: DDP averages over the ranks after you")
    if _near(factor, world_size):
        raise Wrong(f"{times}: there is one `world_size` too many, or a division missing")
    if _near(factor, grads.weight / world_size) or _near(factor, grads.weight):
        raise Wrong(f"{times}: a sum of losses, which nobody has divided by the number of samples")
    if grads.weight != grads.counted and _near(factor, grads.weight / grads.counted):
        raise Wrong(f"{times}: it was divided by how many labels count; one device divides by what they weigh")
    raise Wrong(f"{times}; does what you divide by belong to this batch, over all ranks?")


def _compare_logs(values: list[Any], sums: list[float], counts: list[int]) -> None:
    for rank, value in enumerate(values):
        if value is None:
            raise Wrong(f"rank {rank} returned nothing: end your function with `return`")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Wrong(f"rank {rank} returned a {type(value).__name__}; a plain number is wanted")
    right = sum(sums) / sum(counts)
    own = [total / count if count else float("nan") for total, count in zip(sums, counts, strict=True)]
    if all(_near(value, right) for value in values):
        return
    given = f"for the sums {_listed(sums)} over {_listed(counts)} samples"
    if any(value != value for value in values):
        raise Wrong(f"{given} you returned nan: a rank without samples divided 0 by 0")
    if all(_near(value, mean) for value, mean in zip(values, own, strict=True)):
        raise Wrong(f"{given} each rank returned the mean of its own samples; nothing came from the other ranks")
    if any(_near(value, right) for value in values):
        wrong = next(rank for rank, value in enumerate(values) if not _near(value, right))
        raise Wrong(f"rank {wrong} does not have the right answer, but another rank does; every rank needs it")
    if all(_near(value, sum(own) / len(own)) for value in values):
        raise Wrong(f"{given} you returned the mean of the ranks' means, in which the samples do not count alike")
    if all(_near(value, sum(sums)) for value in values):
        raise Wrong(f"{given} you returned the sum; it is not yet divided by the number of samples")
    if all(_near(value, sum(sums) / len(sums)) for value in values):
        raise Wrong(f"{given} you divided by the number of ranks; a mean over samples is wanted")
    raise Wrong(f"{given} rank 0 returned {values[0]:.4g}")


def _no_loss(loss: Any) -> str | None:
    if not isinstance(loss, Tensor):
        kind = "nothing" if loss is None else f"a {type(loss).__name__}"
        return f"your function returned {kind}; DDP needs a tensor on which it can call `backward()`"
    if loss.numel() != 1:
        return f"your loss has the shape {tuple(loss.shape)}; one number is wanted"
    if not loss.requires_grad:
        return "no gradient can flow back through your loss: it is cut off from the logits"
    return None


def _one_device(seed: int, images: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    net = digits_cnn(seed=seed).to(images.device)
    cross_entropy(net(images), labels, weight=weight).backward()
    return _flat(net)


def _flat(net: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def _listed(numbers: Sequence[float]) -> str:
    return " and ".join(f"{number:g}" for number in numbers)


def _near(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= 1e-3 * max(1e-3, abs(wanted))
