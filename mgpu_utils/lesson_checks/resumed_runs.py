"""Training runs that are stopped and resumed, for the check of lesson 10: what a resumed run did differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mgpu_utils.checkpoints import save_checkpoint
from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong
from mgpu_utils.models import digits_cnn
from mgpu_utils.rank_errors import number_ranks
from mgpu_utils.step_hashes import model_hash
from mgpu_utils.strategies import DistributedDataParallel

# A part of the digits, so that epochs are short.
_PER_EPOCH = 4


def new_run() -> tuple[DistributedDataParallel, nn.Module, torch.optim.Optimizer, Any]:
    """Strategy, wrapped model, optimizer and loader of a run that begins; runs on a rank."""
    strategy = DistributedDataParallel()
    model = strategy.wrap(digits_cnn(seed=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.utils.data.Subset(digits(train=True), range(_PER_EPOCH * 64))
    return strategy, model, optimizer, strategy.loader(data, 64, shuffle=True, drop_last=True)


def get_ready() -> None:
    """What takes its time once on each rank (imports, the data, DDP), so that an answer is not charged for it."""
    _strategy, model, _optimizer, loader = new_run()
    images, labels = next(iter(loader))
    device = next(model.parameters()).device
    cross_entropy(model(images.to(device)), labels.to(device)).backward()


def _updater(
    strategy: DistributedDataParallel, model: nn.Module, optimizer: torch.optim.Optimizer, log: dict[str, Any]
) -> Callable[[Tensor, Tensor], None]:
    log.update(batches=[], weights=None, optimizer=None)

    def update(images: Tensor, labels: Tensor) -> None:
        if log["weights"] is None:
            log["weights"], log["optimizer"] = model_hash(model), _momentum(optimizer)
        log["batches"].append(float(images.double().cpu().flatten() @ torch.arange(images.numel()).double()))
        optimizer.zero_grad()
        cross_entropy(model(images.to(strategy.device)), labels.to(strategy.device)).backward()
        optimizer.step()

    return update


def uninterrupted_on_rank(path: Path, stop: int, last: int) -> dict[str, Any]:
    """Train to `last`, with a checkpoint after `stop` steps; what it looked like there, and at the end."""
    strategy, model, optimizer, loader = new_run()
    log: dict[str, Any] = {}
    update = _updater(strategy, model, optimizer, log)
    step = 0
    for epoch in range(last // len(loader) + 1):
        loader.batch_sampler.set_epoch(epoch)
        for batch, (images, labels) in enumerate(loader):
            if step < last:
                update(images, labels)
                step += 1
            if step == stop and "at_stop" not in log:
                save_checkpoint(path, model=model, optimizer=optimizer, epoch=epoch, batch=batch + 1)
                log["at_stop"] = (model_hash(model), _momentum(optimizer))
    return log | {"end": model_hash(model)}


def resumed_on_rank(answer: Callable[..., object], path: Path, last: int) -> dict[str, Any]:
    """The learner's function with a new run, watched; runs on a rank."""
    strategy, model, optimizer, loader = new_run()
    log: dict[str, Any] = {}
    answer(path, model, optimizer, loader, _updater(strategy, model, optimizer, log), last)
    return log | {"end": model_hash(model)}


def _momentum(optimizer: torch.optim.Optimizer) -> list[float]:
    buffers = [state.get("momentum_buffer") for state in optimizer.state.values()]
    return [float(buffer.double().sum()) for buffer in buffers if buffer is not None]


def compare_runs(wanted: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]], stop: int, last: int) -> None:
    """Raise Wrong for the first thing in which the resumed run is not the uninterrupted one."""
    where = (
        f"saved after step {stop} ({divmod(stop, _PER_EPOCH)[1] or _PER_EPOCH} of {_PER_EPOCH} batches), until {last}: "
    )
    if not any(rank["batches"] for rank in found):
        raise Wrong(where + "`update` was never called")
    weights = [r for r, (a, b) in enumerate(zip(wanted, found, strict=True)) if b["weights"] != a["at_stop"][0]]
    if weights:
        raise Wrong(f"{where}at the first update {number_ranks(weights)} did not have the weights of the checkpoint")
    state = [r for r, (a, b) in enumerate(zip(wanted, found, strict=True)) if b["optimizer"] != a["at_stop"][1]]
    if state:
        raise Wrong(
            f"{where}at the first update {number_ranks(state)} had the right weights, but not the optimizer's momentum"
        )
    for rank, (a, b) in enumerate(zip(wanted, found, strict=True)):
        left = a["batches"][stop:]
        if b["batches"] != left:
            raise Wrong(where + _about_batches(a["batches"], left, b["batches"], stop, rank))
    if any(a["end"] != b["end"] for a, b in zip(wanted, found, strict=True)):
        raise Wrong(
            f"{where}the right batches, but other weights at the end: did anything besides `update` change them?"
        )


def _about_batches(everything: list[float], left: list[float], used: list[float], stop: int, rank: int) -> str:
    epoch, done = divmod(stop, _PER_EPOCH)
    same = next((k for k, (a, b) in enumerate(zip(left, used, strict=False)) if a != b), min(len(left), len(used)))
    if same == len(used) < len(left):
        return f"rank {rank} did {len(used)} of the {len(left)} steps that were left"
    if same == len(left):
        return f"rank {rank} went on after the last step: {len(used)} updates, where {len(left)} were left"
    if same == 0 and done and used[0] == everything[epoch * _PER_EPOCH]:
        return f"rank {rank} began this epoch again, with batches that the checkpoint says are done"
    if same == 0 and used[0] in everything[:_PER_EPOCH] and epoch:
        return f"rank {rank} met the samples in the order of epoch 0; the checkpoint is from a later one"
    if same == 0 and used[0] == everything[stop - 1]:
        return f"rank {rank} used the last batch before the checkpoint again"
    if same == 0 and used[0] in everything[stop + 1 :]:
        return f"rank {rank} left out a batch: `batch` says how many are done, so the next has just this index"
    if same and (stop + same) % _PER_EPOCH == 0:
        return f"rank {rank} met the wrong order after the next epoch had begun; each epoch has an order of its own"
    return f"update {same + 1} on rank {rank} used another batch than the uninterrupted run"
