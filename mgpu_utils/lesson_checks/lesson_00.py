"""Checks of lesson 00: collectives written by the learner, run on every rank, beside the plain answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer


@exercise(
    "00/average",
    minutes=5,
    difficulty=1,
    hints=[
        "Each rank knows one number. What do all of them together need to know before one can divide?",
        "`dist.all_reduce(total)` leaves the sum of all ranks' `total` in `total`, on every rank.",
        "There are `world_size` numbers. Divide after adding, and `return` a plain number: `.item()`.",
    ],
    explain="Every rank has the mean, and no rank had to ask the notebook. Gradients are averaged this way.",
)
def average(answer: Callable[[float], float], ranks: Any) -> None:
    """Each rank has to return the mean of all ranks' numbers."""
    numbers = _numbers(ranks)
    results = _results(answer, numbers, ranks)
    wanted = sum(numbers) / len(numbers)
    if _close(results, [wanted] * len(results)):
        return
    if _close(results, [sum(numbers)] * len(results)):
        raise Wrong("each rank returned the sum of the numbers; the mean of several is smaller")
    if _close(results, [number / len(numbers) for number in numbers]):
        raise Wrong("each rank divided its own number; nothing from the other ranks was added before")
    _explain(results, numbers, [wanted] * len(results))


@exercise(
    "00/slowest",
    minutes=3,
    difficulty=1,
    hints=[
        "`all_reduce` adds because nobody told it otherwise. Look at its second argument: `dist.all_reduce?`",
        "The operations are called `dist.ReduceOp.SUM`, `MIN`, `MAX`, `PRODUCT`, ...",
    ],
    explain="A step is finished when its slowest rank is. The course reports times in this way.",
)
def slowest(answer: Callable[[float], float], ranks: Any) -> None:
    """Each rank has to return the largest of all ranks' numbers."""
    numbers = _numbers(ranks)
    results = _results(answer, numbers, ranks)
    wanted = max(numbers)
    if _close(results, [wanted] * len(results)):
        return
    if _close(results, [sum(numbers)] * len(results)):
        raise Wrong("each rank returned the sum of all times; only the longest one is wanted")
    if _close(results, [min(numbers)] * len(results)):
        raise Wrong("each rank returned the shortest time, which is that of the fastest rank")
    _explain(results, numbers, [wanted] * len(results))


def call_on_rank(answer: Callable[[float], float], numbers: Sequence[float]) -> object:
    """Give this rank's number to the learner's function; runs on a rank."""
    import torch
    import torch.distributed as dist

    result = answer(numbers[dist.get_rank()])
    return result.item() if isinstance(result, torch.Tensor) and result.numel() == 1 else result


def _numbers(ranks: Any) -> list[float]:
    # No two alike, the largest not on the last rank, and no rank's number equal to the mean.
    return [7.0, 2.5, 4.25, 1.0, *(0.5 + rank for rank in range(4, 64))][: ranks.world_size]


def _results(answer: Callable[[float], float], numbers: list[float], ranks: Any) -> list[float]:
    results = run_answer(ranks, call_on_rank, answer, numbers)
    for rank, result in enumerate(results):
        if result is None:
            raise Wrong(f"rank {rank} returned nothing: end your function with `return`")
        if isinstance(result, bool) or not isinstance(result, int | float):
            raise Wrong(f"rank {rank} returned a {type(result).__name__}; a plain number is wanted")
    return [float(result) for result in results]


def _explain(results: list[float], numbers: list[float], wanted: list[float]) -> None:
    if _close(results, numbers):
        raise Wrong(
            "each rank returned its own number unchanged; `all_reduce` writes its result into the very tensor it "
            "is given, so look at that one"
        )
    good = [_close([result], [right]) for result, right in zip(results, wanted, strict=True)]
    if any(good):
        rank = good.index(False)
        raise Wrong(f"rank {good.index(True)} has the right answer, but rank {rank} does not; every rank needs it")
    if len(set(results)) > 1:
        raise Wrong("the ranks returned different numbers, but the answer is the same for all of them")
    raise Wrong(f"for the numbers {_listed(numbers)} each rank returned {results[0]:g}")


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _close(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return all(abs(a - b) <= 1e-4 for a, b in zip(found, wanted, strict=True))
