"""Checks of lesson 10: a step with scaler and clipping, a resumed run equal to the last bit, and who left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.lesson_checks.resumed_runs import compare_runs, get_ready, resumed_on_rank, uninterrupted_on_rank
from mgpu_utils.models import digits_cnn
from mgpu_utils.strategies import DistributedDataParallel, unwrap

Update = Callable[[nn.Module, torch.optim.Optimizer, Any, Tensor, float], object]

_TOLERANCE = 1e-5
_STEPS = 6
# A power of two, so that scaling rounds nothing; small enough for a forgotten `zero_grad` to show after dividing.
_SCALE = 64.0
# Of the first six gradients some are longer than this and some are not.
_MAX_NORM = 3.4


@exercise(
    "10/update",
    minutes=10,
    difficulty=2,
    hints=[
        "After `scaler.scale(loss).backward()` the gradients are `scaler.get_scale()` times too large. What does a "
        "limit of 1 mean then?",
        "`scaler.unscale_(optimizer)` divides the gradients where they are. Clip right after it.",
        "`scaler.step(optimizer)` steps, unless a gradient is infinite; it does not divide a second time. Then "
        "`scaler.update()` chooses the next scale.",
    ],
    explain="Scaled backward, unscale, clip, step, update: the weights are those of one device, overflow included.",
)
def update(answer: Update, ranks: Any) -> None:
    """Six steps on the ranks give the weights of one device which clips; an overflow changes nothing."""
    ranks.run(get_ready)
    found = run_answer(ranks, steps_on_rank, answer)
    weights = [rank["weights"] for rank in found]
    if all(torch.equal(rank["weights"], rank["start"]) for rank in found):
        raise Wrong("after six calls no weight has changed: does your function come to a step?")
    if any(not torch.allclose(weights[0], other, rtol=0, atol=0, equal_nan=True) for other in weights[1:]):
        raise Wrong("the ranks no longer hold the same weights: each has to treat the averaged gradient alike")
    wanted = _on_one_device(lambda gradient: _clip(gradient, _MAX_NORM))
    if torch.allclose(weights[0], wanted, atol=_TOLERANCE):
        _check_overflow(found)
        return
    if _is(weights[0], lambda gradient: _clip(gradient * _SCALE, _MAX_NORM) / _SCALE):
        raise Wrong(
            f"the weights have hardly moved: the gradients were clipped while they were still {_SCALE:.0f} times too "
            "large, and became tiny when they were divided"
        )
    if _is(weights[0], lambda gradient: _clip(gradient * _SCALE, _MAX_NORM)):
        raise Wrong(
            f"every gradient was clipped, also those shorter than {_MAX_NORM}: they still held the scaler's factor"
        )
    if _is(weights[0], lambda gradient: gradient):
        raise Wrong("the weights are those of steps without clipping; where it stands, it changes nothing any more")
    difference = float((weights[0] - wanted).abs().max())
    if not difference < 1:
        raise Wrong("the weights are far too large: the step used gradients that still hold the scaler's factor")
    raise Wrong(f"the weights differ from those of one device by up to {difference:.2g}")


def steps_on_rank(answer: Update) -> dict[str, Any]:
    """Six steps with the learner's function under DDP, then one in which rank 1 overflows; runs on a rank."""
    strategy = DistributedDataParallel()
    model = strategy.wrap(digits_cnn(seed=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # It doubles after as many good steps, if it is told of them.
    scaler = torch.amp.GradScaler(strategy.device.type, init_scale=_SCALE, growth_interval=_STEPS)
    start = _flat(model)
    for step in range(_STEPS):
        answer(model, optimizer, scaler, _loss(strategy, model, step), _MAX_NORM)
    weights, grown = _flat(model), scaler.get_scale()
    loss = _loss(strategy, model, 0)
    answer(model, optimizer, scaler, loss * (torch.inf if strategy.rank == 1 else 1.0), _MAX_NORM)
    return {
        "start": start,
        "weights": weights,
        "scale": grown,
        "kept": torch.equal(_flat(model), weights),
        "scale_after": scaler.get_scale(),
    }


def _loss(strategy: DistributedDataParallel, model: nn.Module, step: int) -> Tensor:
    images, labels = (part.to(strategy.device) for part in _batch(step))
    mine = slice(strategy.rank, None, strategy.world_size)
    return strategy.scale_loss(cross_entropy(model(images[mine]), labels[mine], reduction="sum"), len(labels))


def _batch(step: int) -> tuple[Tensor, Tensor]:
    images, labels = digits(train=True)[60 * step : 60 * (step + 1)]
    return images, labels


def _check_overflow(found: Sequence[dict[str, Any]]) -> None:
    if any(not rank["kept"] for rank in found):
        raise Wrong(
            "right as long as all gradients are finite. But when rank 1 overflowed, weights changed: who looks whether "
            "a gradient is infinite before the step?"
        )
    if all(rank["scale"] == _SCALE for rank in found) or any(rank["scale_after"] >= rank["scale"] for rank in found):
        raise Wrong(
            "the weights are right, but the scale never changes, neither after good steps nor after an overflow"
        )


def _is(weights: Tensor, clip: Callable[[Tensor], Tensor]) -> bool:
    return torch.allclose(weights, _on_one_device(clip), atol=_TOLERANCE)


def _on_one_device(clip: Callable[[Tensor], Tensor]) -> Tensor:
    """The weights of one device after the same six batches; `clip` is given each gradient, flat."""
    model = digits_cnn(seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(_STEPS):
        images, labels = _batch(step)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        parameters = list(model.parameters())
        flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        pieces = clip(flat).split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)
        optimizer.step()
    return _flat(model)


def _clip(gradient: Tensor, limit: float) -> Tensor:
    return gradient * min(1.0, limit / (float(gradient.norm()) + 1e-6))


@exercise(
    "10/resume",
    minutes=15,
    difficulty=3,
    hints=[
        "Two state dicts have to be loaded, on every rank. `model.module` is the plain model.",
        "The order of the samples depends on the epoch: `loader.batch_sampler.set_epoch(...)` before each pass.",
        "Give every step a number, counted from the beginning: `epoch * len(loader) + batch`. Do the steps from the "
        "number that the file tells to `last`, and let the loader yield the batches before without using them.",
    ],
    explain="Weights, optimizer, epoch and batch: the resumed run cannot be told from one that was never stopped.",
)
def resume(answer: Callable[..., object], ranks: Any) -> None:
    """A resumed run uses the batches that are left, in their order, and ends with the bits of the uninterrupted one."""
    ranks.run(get_ready)
    with tempfile.TemporaryDirectory() as folder:
        # In the middle of an epoch; at its end; and a run that stops in the middle of the epoch after the next.
        for number, (stop, last) in enumerate(((7, 10), (4, 6), (2, 11))):
            path = Path(folder) / f"{number}.pt"
            wanted = ranks.run(uninterrupted_on_rank, path, stop, last)
            found = run_answer(ranks, resumed_on_rank, answer, path, last)
            compare_runs(wanted, found, stop, last)


_LEFT: tuple[tuple[tuple[tuple[int, int], ...], str], ...] = (
    (((2, 3),), "only rank 2 leaves, at step 3"),
    (((0, 1),), "only rank 0 leaves, at step 1"),
    (((1, 0),), "rank 1 differs from the very first step on"),
    (((3, 2), (1, 4)), "rank 3 leaves at step 2, rank 1 later"),
    (((1, 5), (3, 2)), "rank 3 leaves at step 2, rank 1 later"),
    ((), "nobody leaves"),
)


@exercise(
    "10/leaver",
    minutes=8,
    difficulty=2,
    hints=[
        "With four ranks, the hash that most of them have is the right one. Why not compare with rank 0?",
        "Go through the steps, not through the ranks: `for step, column in enumerate(zip(*hashes))`.",
        "`max(column, key=column.count)` is the hash that most ranks have in that step.",
    ],
    explain="With two ranks a hash says only that they parted. With three or more, the majority tells who left.",
)
def leaver(answer: Callable[[list[list[str]]], Any]) -> None:
    """`answer(hashes)` names the first rank that left the majority and the step; None if there is none."""
    for leaves, told in _LEFT:
        table = _hashes(dict(leaves))
        wanted = min(leaves, key=lambda one: one[1]) if leaves else None
        with suppress(TypeError):
            found = _pair(answer([list(row) for row in table]))
            if found == wanted:
                continue
            _explain_leaver(found, wanted, told, leaves)
        raise Wrong(f"{told}: a pair of two whole numbers (rank, step) is wanted, or None")


def _hashes(leaves: dict[int, int], ranks: int = 4, steps: int = 7) -> list[list[str]]:
    def at(rank: int, step: int) -> str:
        own = rank + 1 if rank in leaves and step >= leaves[rank] else 0
        return f"{(0x9E3779B1 * (17 * step + own + 3)) & 0xFFFFFFFF:08x}"

    return [[at(rank, step) for step in range(steps)] for rank in range(ranks)]


def _pair(result: Any) -> tuple[int, int] | None:
    if result is None:
        return None
    rank, step = result
    if any(isinstance(number, bool) or not isinstance(number, int) for number in (rank, step)):
        raise TypeError
    return rank, step


def _explain_leaver(
    found: tuple[int, int] | None,
    wanted: tuple[int, int] | None,
    told: str,
    leaves: tuple[tuple[int, int], ...],
) -> None:
    if wanted is None:
        raise Wrong(f"{told}, all hashes of each step are equal, but you returned {found}")
    if found is None:
        raise Wrong(f"{told}, but you returned None")
    rank, step = found
    if found == (wanted[1], wanted[0]):
        raise Wrong(f"{told}; you returned {found}: rank and step are the other way round")
    if step == wanted[1] and wanted[0] == 0:
        raise Wrong(f"{told}, but you blamed rank {rank}: it is one of three that agree with each other")
    if found in leaves:
        raise Wrong(f"{told}; you named rank {rank}, which left as well, but not first")
    if rank == wanted[0] and step > wanted[1]:
        counted = " (steps are counted from 0)" if step == wanted[1] + 1 else ""
        raise Wrong(f"{told}; you found the rank, but step {step} is not the first at which it differs{counted}")
    raise Wrong(f"{told}; you returned {found}")


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten().cpu() for parameter in unwrap(module).parameters()])
