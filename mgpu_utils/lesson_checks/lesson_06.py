"""Checks of lesson 06: a loop turned into a DDP loop, one line of log for all ranks, and who may act alone."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.models import digits_cnn
from mgpu_utils.rank_errors import number_ranks

_IMAGES, _BATCH, _RATE, _SEED, _LINES = 640, 64, 0.05, 100, 6
_TOLERANCE = 1e-4
_ALONE = {1, 3, 6}
_WHY = {
    1: "saving a plain state dict sends nothing to other ranks",
    2: "count the collectives of such a forward, as the cell with BatchNorm did",
    3: "the plain module knows nothing of other ranks",
    4: "this strategy adds up the counts of all ranks before it returns",
    5: "it compares the names of all ranks, and adds up their values",
    6: "the loss is already here, on this rank",
    7: "a barrier is over when every rank has reached it",
}


class RankReport(NamedTuple):
    """What a rank's loop did: its weights after, the size of each of its batches, and its first batch's indices."""

    weights: Tensor
    sizes: list[int]
    first: list[int]


@exercise(
    "06/ddp-loop",
    minutes=12,
    difficulty=2,
    hints=[
        "Two things are missing: the ranks have to share the images, and to average their gradients. Which line of "
        "the loop decides what a rank loads, and which one what the model does?",
        "`DDP(model)` sends rank 0's weights to all ranks, and averages gradients. `DistributedSampler` deals the "
        "images out, and shuffles unless told otherwise.",
        "A global batch of 64 on `dist.get_world_size()` ranks: how large is `batch_size` of each rank's loader? "
        "The learning rate stays as it is.",
    ],
    explain="Same images a step, same weights, half the work for each of two ranks, and the loop's body is untouched.",
)
def ddp_loop(answer: Callable[..., object], original: Callable[..., object], ranks: Any) -> None:
    """`answer(model, dataset, device)` on every rank has to leave the single-device weights in `model`."""
    devices = [str(device) for device in ranks.plan.rank_devices]
    reports: list[RankReport] = run_answer(ranks, train_on_rank, answer, devices)
    for rank, report in enumerate(reports):
        if not report.sizes:
            raise Wrong(f"the model of rank {rank} was never called")
    _check_shards([report.sizes for report in reports])
    for rank, report in enumerate(reports):
        if torch.equal(report.weights, _weights(digits_cnn(seed=_SEED + rank))):
            raise Wrong(f"rank {rank} worked, but the weights of its `model` are still those it came with")
    if any(not torch.allclose(report.weights, reports[0].weights, atol=_TOLERANCE) for report in reports):
        raise Wrong("the ranks end with different weights: each of them trained a model of its own")
    _check_weights(reports)
    changed = changed_lines(original, answer)
    if changed > _LINES:
        raise Wrong(f"the weights are right, with {changed} changed lines; {_LINES} are enough")


def train_on_rank(answer: Callable[..., object], devices: Sequence[str]) -> RankReport:
    """Call the learner's loop on this rank with a model of other weights than its peers'; runs on a rank."""
    import torch.distributed as dist

    rank = dist.get_rank()
    device = torch.device(devices[rank])
    model, dataset = digits_cnn(seed=_SEED + rank).to(device), _Noted()
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    answer(model, dataset, device)
    return RankReport(_weights(model), sizes, dataset.indices[: sizes[0] if sizes else 0])


class _Noted(Dataset[Any]):
    """The first digits, noting which index was asked for."""

    def __init__(self) -> None:
        self.data = TensorDataset(*digits(train=True)[:_IMAGES])
        self.indices: list[int] = []

    def __len__(self) -> int:
        return _IMAGES

    def __getitem__(self, index: int) -> Any:
        self.indices.append(int(index))
        return self.data[index]


def _check_shards(sizes: list[list[int]]) -> None:
    seen = [sum(rank) for rank in sizes]
    if all(count == _IMAGES for count in seen):
        raise Wrong(f"each rank trained on all {_IMAGES} images; they have to share them")
    if sum(seen) != _IMAGES:
        raise Wrong(f"the ranks trained on {sum(seen)} images together; the dataset holds {_IMAGES}")
    biggest = sum(max(rank) for rank in sizes)
    if biggest > _BATCH:
        raise Wrong(f"in one step the ranks work on {biggest} images together; the global batch has to stay {_BATCH}")
    steps, wanted = len(sizes[0]), _IMAGES // _BATCH
    if steps != wanted:
        raise Wrong(f"a rank took {steps} steps, and one device takes {wanted}")


def _check_weights(reports: Sequence[RankReport]) -> None:
    found, world_size = reports[0].weights, len(reports)
    if torch.allclose(found, _baseline(_RATE), atol=_TOLERANCE):
        return
    for factor, words in ((world_size, f"{world_size} times as large"), (1 / world_size, f"divided by {world_size}")):
        if torch.allclose(found, _baseline(_RATE * factor), atol=_TOLERANCE):
            raise Wrong(
                f"all ranks agree, but on the weights of a learning rate {words}: DDP gives the mean of the gradients"
            )
    first = sorted(index for report in reports for index in report.first)
    if first and first != list(range(_BATCH)):
        raise Wrong(
            "all ranks agree, but their first step is not made of the images that one device takes first: does "
            "something shuffle?"
        )
    difference = float((found - _baseline(_RATE)).abs().max())
    raise Wrong(f"all ranks agree, but their weights differ from those of one device by up to {difference:.2g}")


def _baseline(rate: float) -> Tensor:
    model = digits_cnn(seed=_SEED)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for images, labels in DataLoader(TensorDataset(*digits(train=True)[:_IMAGES]), batch_size=_BATCH):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return _weights(model)


def _weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])


def changed_lines(original: Callable[..., object], answer: Callable[..., object]) -> int:
    """How many lines of the original function were changed, added or removed; 0 if a source cannot be read."""
    try:
        before, after = (_body(inspect.getsource(function)) for function in (original, answer))
    except (OSError, TypeError):
        return 0
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in steps if kind != "equal")


def _body(source: str) -> list[str]:
    lines = (line.split("  #")[0].strip() for line in source.splitlines()[1:])
    return [line for line in lines if line and not line.startswith("#")]


@exercise(
    "06/log-once",
    minutes=8,
    difficulty=1,
    hints=[
        "Two things happen here: the losses are brought together, and a line is printed. Which of them is for all "
        "ranks, and which for one?",
        "`mean = torch.tensor(loss, device=device)`, then `dist.all_reduce(mean)` on every rank: now it is the sum.",
        "Divide by `world_size`. Only the `print` stands under `if rank == 0:`.",
    ],
    explain="Every rank joined the collective, and one of them spoke.",
)
def log_once(answer: Callable[[int, float], object], ranks: Any) -> None:
    """`answer(step, loss)` on every rank has to print one line in all, with the mean loss over the ranks."""
    for step in (3, 17):
        losses = [round(0.5 + step / 10 + 1.25 * rank * rank, 3) for rank in range(ranks.world_size)]
        printed = run_answer(ranks, log_on_rank, answer, step, losses)
        speakers = [rank for rank, lines in enumerate(printed) if lines]
        if not speakers:
            raise Wrong("no rank printed anything")
        if len(speakers) > 1:
            raise Wrong(f"{number_ranks(speakers)} printed; one line for all of them is wanted")
        (speaker,) = speakers
        if len(printed[speaker]) > 1:
            raise Wrong(f"rank {speaker} printed {len(printed[speaker])} lines for one step")
        _check_line(printed[speaker][0], step, losses, speaker)


def log_on_rank(answer: Callable[[int, float], object], step: int, losses: Sequence[float]) -> list[str]:
    """The lines that the learner's function prints on this rank; runs on a rank."""
    import torch.distributed as dist

    with contextlib.redirect_stdout(io.StringIO()) as caught:
        answer(step, losses[dist.get_rank()])
    return [line for line in caught.getvalue().splitlines() if line.strip()]


def _check_line(line: str, step: int, losses: Sequence[float], speaker: int) -> None:
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", line)]
    mean = sum(losses) / len(losses)
    values = [number for number in numbers if number != step]
    if step not in numbers:
        raise Wrong(f"step {step} is not in the line {line!r}")
    if any(abs(value - mean) < 2e-3 for value in values):
        return
    listed = ", ".join(f"{loss:g}" for loss in losses)
    if any(abs(value - sum(losses)) < 2e-3 for value in values):
        raise Wrong(f"for the losses {listed} you printed their sum")
    if any(abs(value - losses[speaker]) < 2e-3 for value in values):
        raise Wrong(f"rank {speaker} printed the loss of its own shard; the other ranks' losses are not in it")
    if any(abs(value - losses[speaker] / len(losses)) < 2e-3 for value in values):
        raise Wrong(f"rank {speaker} divided its own loss; nothing from the other ranks was added before")
    raise Wrong(f"for the losses {listed} you printed {line!r}, and their mean is not in it")


@exercise(
    "06/alone",
    minutes=5,
    difficulty=1,
    hints=[
        "One question decides: does the call contain a collective? If it does, it waits for every rank.",
        "Calls that bring numbers of all ranks together, or that send something to all of them, are collectives.",
        "Three of the seven are fine alone. If in doubt, run a call on all ranks inside `with Traffic() as traffic:`.",
    ],
    explain="Whatever contains no collective, rank 0 may do alone. The others wait for it at their next collective.",
)
def alone(answer: Any) -> None:
    """The numbers of the calls that rank 0 may make while the other ranks go on training."""
    if isinstance(answer, int):
        answer = {answer}
    if not isinstance(answer, set | frozenset | list | tuple) or not all(
        isinstance(number, int) and not isinstance(number, bool) for number in answer
    ):
        raise Wrong("write the numbers of the calls, as in {1, 2}")
    chosen = set(answer)
    if chosen - set(_WHY):
        raise Wrong(f"the calls are numbered 1 to {len(_WHY)}, and {sorted(chosen - set(_WHY))[0]} is none of them")
    for number in sorted(chosen - _ALONE):
        raise Wrong(f"call {number} would make the ranks wait for each other: {_WHY[number]}")
    for number in sorted(_ALONE - chosen):
        raise Wrong(f"so far none of your calls is dangerous, but you left out {number}, which is fine: {_WHY[number]}")
