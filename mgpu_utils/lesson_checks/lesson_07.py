"""Checks of lesson 07: the learning rate of a larger batch, and the bytes of Adam's state."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.models import digits_cnn
from mgpu_utils.strategies import DistributedDataParallel, SingleDevice, Strategy
from mgpu_utils.training import train

_BATCH, _RATE, _GROWTH, _EPOCHS, _SLACK = 32, 0.01, 4, 3, 1.3
_MODELS = ((1_000_000, 1), (1_000_000, 4), (7_000_000_000, 64))


@exercise(
    "07/rate",
    minutes=8,
    difficulty=2,
    hints=[
        "With the larger batch there are 4 times fewer steps in an epoch. What has each step to make up for?",
        "Look at the right picture of this lesson, at the run with 4 times the batch. What was its rate?",
        "The linear rule: rate times batch growth.",
    ],
    explain="Four times fewer steps, each about four times as long.",
)
def rate(answer: Any, ranks: Any) -> None:
    """A learning rate for 4 times the batch that keeps the loss of the last epoch near that of one device."""
    if isinstance(answer, bool) or not isinstance(answer, int | float) or not math.isfinite(answer):
        raise Wrong("one number is wanted: the learning rate")
    if answer <= 0:
        raise Wrong("a learning rate is a number above 0")
    wanted = _baseline()
    found: float = ranks.run(loss_on_ranks, float(answer))[0]
    if found <= _SLACK * wanted:
        return
    told = f"in the last epoch your loss is {found:.3g}, and that of one device {wanted:.3g}"
    if answer < _RATE:
        raise Wrong(f"{told}; your rate is smaller than before, although there are fewer steps to take")
    if answer == _RATE:
        raise Wrong(f"{told}; the rate is the old one, with {_GROWTH} times fewer steps")
    if answer < _GROWTH * _RATE:
        raise Wrong(f"{told}; the right direction, but the steps are still too short")
    raise Wrong(f"{told}; the steps are so long that they jump over the goal")


def loss_on_ranks(rate: float) -> float:
    """Mean loss of the last epoch with the larger global batch, shared by all ranks; runs on every rank."""
    return _last_loss(DistributedDataParallel(), _GROWTH * _BATCH, rate)


@cache
def _baseline() -> float:
    return _last_loss(SingleDevice("cpu"), _BATCH, _RATE)


def _last_loss(strategy: Strategy, batch: int, rate: float) -> float:
    data = digits(train=True)
    history = train(digits_cnn(seed=0), data, strategy=strategy, epochs=_EPOCHS, batch_size=batch, lr=rate)
    loss = float(history.epochs[-1]["loss"])
    return loss if math.isfinite(loss) else math.inf


@exercise(
    "07/bytes",
    minutes=6,
    difficulty=1,
    hints=[
        "How many running means does Adam keep for each parameter, and how many bytes has a float32?",
        "Without ZeRO every rank keeps the whole state. How many ranks there are does not matter.",
        "With ZeRO the ranks share it: divide by `world_size`.",
    ],
    explain="8 bytes a parameter on every rank, or shared by all of them.",
)
def adam_bytes(answer: Callable[[int, int, bool], Any]) -> None:
    """`answer(parameters, world_size, zero)` has to give the bytes of Adam's state on one rank."""
    _check_bytes(answer, *_measured(), 1, False)
    for parameters, world_size in _MODELS:
        for zero in (False, True):
            total = 8 * parameters
            _check_bytes(answer, parameters, total / world_size if zero else total, world_size, zero)


def _check_bytes(
    answer: Callable[[int, int, bool], Any], parameters: int, wanted: float, world_size: int, zero: bool
) -> None:
    found = answer(parameters, world_size, zero)
    if found is None:
        raise Wrong("your function returned nothing: end it with `return`")
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Wrong(f"your function returned a {type(found).__name__}; a plain number of bytes is wanted")
    if math.isclose(found, wanted, rel_tol=1e-3):
        return
    where = f"for {parameters:,} parameters on {world_size} ranks {'with' if zero else 'without'} ZeRO"
    for factor, words in (
        (1 / 4, "you counted numbers; each of them takes several bytes"),
        (1 / 2, "that is one running mean; Adam keeps more than one for each parameter"),
        (3 / 2, "that includes the parameters themselves; only the optimizer's state is asked for"),
        (2, "that includes parameters and gradients; only the optimizer's state is asked for"),
    ):
        if math.isclose(found, wanted * factor, rel_tol=1e-3) and world_size != round(max(factor, 1 / factor)):
            raise Wrong(f"{where}: {words}")
    if world_size > 1:
        for amount, words in (
            (wanted * world_size, "that is more than one rank holds; all ranks share the state"),
            (wanted / world_size, "that is too little; every rank holds the whole state"),
        ):
            if math.isclose(found, amount, rel_tol=1e-3):
                if amount > wanted and not zero:
                    words = "that is what all ranks hold together; one rank is asked for"
                if amount < wanted and zero:
                    words = "that is divided by the number of ranks twice"
                raise Wrong(f"{where}: {words}")
    raise Wrong(f"{where} you say {found:,.0f} bytes, and that is not what a rank holds")


def _measured() -> tuple[int, int]:
    """The parameters of the course's network, and the bytes of running means that a real Adam keeps for them."""
    model = digits_cnn(seed=0)
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    means = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    return sum(parameter.numel() for parameter in model.parameters()), sum(tensor.nbytes for tensor in means)
