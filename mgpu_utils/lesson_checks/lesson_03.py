"""Checks of lesson 03: an audit of shards, the workers that hide loading, and an accuracy that counts samples once."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.models import digits_cnn

_AUDITS: tuple[tuple[list[list[int]], int], ...] = (
    ([[0, 2, 4], [1, 3, 5]], 6),
    ([[0, 2, 4], [1, 3, 0]], 5),
    ([[0, 1, 2], [0, 1, 2]], 4),
    ([[3, 3], [1, 0], [1, 1]], 5),
    ([[], [2]], 3),
)
_LOADS = ((30, 10), (25, 10), (40, 20), (5, 10), (10, 10), (33, 16), (64, 8))


@exercise(
    "03/audit",
    minutes=6,
    difficulty=1,
    hints=[
        "Put all shards into one list first. Which rank a sample belongs to does not matter here.",
        "Missing is a difference of two sets: all numbers that there are, and all numbers that were visited.",
        "A set forgets how often something was in it. A `collections.Counter`, or `list.count`, does not.",
    ],
    explain="With this you can audit the sampler of any project before you trust its accuracy.",
)
def audit(answer: Callable[[list[list[int]], int], Any]) -> None:
    """`answer(shards, samples)` has to return the missing and the repeated samples, both sorted."""
    for shards, samples in _AUDITS:
        given = answer([list(shard) for shard in shards], samples)
        if given is None:
            raise Wrong("audit returned nothing: end it with `return`")
        if not isinstance(given, list | tuple) or len(given) != 2:
            raise Wrong("two lists are wanted: `return missing, repeated`")
        visited = [sample for shard in shards for sample in shard]
        missing = sorted(set(range(samples)) - set(visited))
        repeated = sorted({sample for sample in visited if visited.count(sample) > 1})
        where = f"for the shards {shards} of {samples} samples"
        found = [_as_list(part, name) for part, name in zip(given, ("missing", "repeated"), strict=True)]
        if found == [missing, repeated]:
            continue
        if found == [repeated, missing] and missing != repeated:
            raise Wrong(f"{where} the two lists have changed places: missing comes first")
        for name, mine, right in zip(("missing", "repeated"), found, (missing, repeated), strict=True):
            _compare_samples(name, mine, right, samples, where, shards)


def _as_list(part: Any, name: str) -> list[int]:
    if isinstance(part, Tensor):
        part = part.tolist()
    if isinstance(part, Integral) and not isinstance(part, bool):
        raise Wrong(f"the {name} samples are wanted themselves, not how many there are")
    if isinstance(part, dict) or not hasattr(part, "__iter__"):
        raise Wrong(f"{name} has to be a list of sample numbers, not a {type(part).__name__}")
    # The order of a set is not the learner's choice, so sets count as sorted.
    return sorted(part) if isinstance(part, set | frozenset) else list(part)


def _compare_samples(
    name: str, mine: list[int], right: list[int], samples: int, where: str, shards: list[list[int]]
) -> None:
    if mine == right:
        return
    if sorted(mine) == right:
        raise Wrong(f"{where} the {name} samples are right, but not sorted")
    if len(set(mine)) < len(mine):
        raise Wrong(f"{where} your {name} samples name one more than once")
    if any(not isinstance(sample, Integral) or not 0 <= sample < samples for sample in mine):
        raise Wrong(f"{where} you name {mine} as {name}; the samples have the numbers 0 to {samples - 1}")
    lost, extra = sorted(set(right) - set(mine)), sorted(set(mine) - set(right))
    twice = [sample for sample in lost if any(shard.count(sample) > 1 for shard in shards)]
    if name == "repeated" and twice:
        raise Wrong(f"{where} sample {twice[0]} is there twice on the same rank, and your repeated samples lack it")
    if name == "repeated" and lost:
        raise Wrong(f"{where} sample {lost[0]} is there on two ranks, and your repeated samples lack it")
    if lost:
        raise Wrong(f"{where} your {name} samples lack {lost[0]}")
    raise Wrong(f"{where} you call sample {extra[0]} {name}, and it is not")


@exercise(
    "03/workers",
    minutes=5,
    difficulty=1,
    hints=[
        "Two workers that each need 30 ms for a batch: every how many milliseconds is one ready?",
        "With n workers a batch is ready every `load_ms / n`. How often does the device want one?",
        "Divide and round up. `-(-a // b)` does that for whole numbers, and so does `math.ceil(a / b)`.",
    ],
    explain="Fewer workers leave the device waiting, and more only take memory and cores.",
)
def workers(answer: Callable[[int, int], Any]) -> None:
    """`answer(load_ms, step_ms)` has to be the smallest number of workers that load as fast as the device trains."""
    for load, step in _LOADS:
        given = answer(load, step)
        where = f"for a load of {load} ms and a step of {step} ms"
        if given is None:
            raise Wrong("workers_needed returned nothing: end it with `return`")
        if isinstance(given, bool) or not isinstance(given, Real):
            raise Wrong(f"workers_needed returned a {type(given).__name__}; a whole number is wanted")
        if float(given) != int(float(given)):
            raise Wrong(f"{where} you want {given:.3g} workers; workers come whole")
        count, needed = int(float(given)), -(-load // step)
        if count == needed:
            continue
        if count < 1:
            raise Wrong(
                f"{where} you want {count} workers: then the loop that trains loads as well, and nothing is hidden"
            )
        every = f"with {count} worker{'s' if count > 1 else ''} a batch is ready every {load / count:.3g} ms"
        if count < needed:
            raise Wrong(f"{where} you want {count}: {every}, and the device waits")
        raise Wrong(f"{where} you want {count}; that is enough, but one fewer is too")


@exercise(
    "03/accuracy",
    minutes=12,
    difficulty=2,
    hints=[
        "What does each rank have to tell the others: a share, or counts? Add counts, and divide once at the end.",
        "Samples counted twice come from the sampler's padding. Which samples would rank `r` have without it?",
        "`Subset(dataset, range(rank, len(dataset), world_size))` is a shard without padding. Count right and seen in "
        "one tensor on `device`, `dist.all_reduce` it, and divide.",
    ],
    explain="Every sample counted once, for lengths that divide and for those that do not.",
)
def accuracy(answer: Callable[[nn.Module, TensorDataset], Any], ranks: Any) -> None:
    """`answer(model, dataset)` on each rank has to return the accuracy that one device finds over all samples."""
    for model, dataset, name in _accuracy_cases(ranks.world_size):
        results = _numbers(run_answer(ranks, accuracy_on_rank, answer, model, dataset))
        right = [bool(hit) for hit in model(dataset.tensors[0]).argmax(dim=1) == dataset.tensors[1]]
        _compare_accuracies(results, right, name, ranks.world_size)


def accuracy_on_rank(answer: Callable[[nn.Module, TensorDataset], Any], model: nn.Module, data: TensorDataset) -> Any:
    """Call the learner's function with the model on this rank's device; runs on a rank."""
    import torch.distributed as dist

    on_gpu = "nccl" in str(dist.get_backend())
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    with torch.no_grad():
        result = answer(model.to(device), data)
    return result.item() if isinstance(result, Tensor) and result.numel() == 1 else result


class RightOnFirst(nn.Module):
    """Answers class 0 for every image."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.zeros(len(images), dtype=torch.long), 10).float().to(images.device)


def _accuracy_cases(world_size: int) -> list[tuple[nn.Module, TensorDataset, str]]:
    test = digits(train=False)

    def only_first(count: int) -> TensorDataset:
        return TensorDataset(test.tensors[0][:count], torch.tensor([0] + [1] * (count - 1)))

    odd = 10 * world_size + 1
    return [
        (digits_cnn(seed=1), test, f"the {len(test)} test digits and a model that was not trained"),
        (RightOnFirst(), only_first(odd), f"{odd} samples, of which the model gets only sample 0 right"),
        (RightOnFirst(), only_first(1), "a single sample, so that some ranks have none"),
    ]


def _numbers(results: list[Any]) -> list[float]:
    for rank, result in enumerate(results):
        if result is None:
            raise Wrong(f"rank {rank} returned nothing: end your function with `return`")
        if isinstance(result, bool) or not isinstance(result, Real):
            raise Wrong(f"rank {rank} returned a {type(result).__name__}; a plain number is wanted")
    return [float(result) for result in results]


def _compare_accuracies(results: list[float], right: list[bool], name: str, world_size: int) -> None:
    count = len(right)
    wanted = sum(right) / count

    def near(found: list[float], value: float | list[float]) -> bool:
        values = value if isinstance(value, list) else [value] * len(found)
        return all(abs(a - b) < 1e-5 for a, b in zip(found, values, strict=True))

    if near(results, wanted):
        return
    piece = -(-count // world_size)
    padded = [index % count for index in range(piece * world_size)]
    shards = [padded[rank::world_size] for rank in range(world_size)]
    own = [sum(right[i] for i in shard) / len(shard) for shard in shards]
    exact_shards = [list(range(rank, count, world_size)) for rank in range(world_size)]
    exact_own = [sum(right[i] for i in shard) / max(len(shard), 1) for shard in exact_shards]
    case = f"for {name}"
    if any(result != result for result in results):
        raise Wrong(f"{case} a rank returned nan: it divided by the number of its own samples, which is 0")
    if near(results, sum(right)):
        raise Wrong(f"{case} you returned how many are right; the share of all {count} is wanted")
    if near(results, sum(right[i] for i in padded) / len(padded)):
        raise Wrong(f"{case} you counted {len(padded)} samples: the padding is still in")
    kept = count // world_size * world_size
    if kept and near(results, sum(right[:kept]) / kept):
        raise Wrong(f"{case} you counted {kept} samples: those that do not divide are left out")
    if near(results, own) or near(results, exact_own):
        raise Wrong(
            f"{case} rank 0 says {results[0]:.4f} and rank 1 {results[1]:.4f}: each rank knows its own shard only"
        )
    if near(results, sum(own) / world_size) or near(results, sum(exact_own) / world_size):
        raise Wrong(f"{case} you averaged the ranks' accuracies; a rank with fewer samples must count for less")
    if len({round(result, 6) for result in results}) > 1:
        raise Wrong(f"{case} the ranks returned {', '.join(f'{r:.4f}' for r in results)}; all need the same number")
    raise Wrong(f"{case} you returned {results[0]:.4f}; one device finds {sum(right)} right of {count}")
