"""One training loop and one exact evaluation for every strategy."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from mgpu_utils.data import ShardedBatchSampler
from mgpu_utils.strategies import Strategy, unwrap

if TYPE_CHECKING:
    import pandas as pd

_LEARNING_RATES = {"sgd": 0.05, "adam": 4e-3}


@dataclass
class History:
    """What a training run did. Pickled (returned by `ranks.run`, saved), it holds the plain model on the CPU.

    Attributes:
        model: the trained module, still wrapped by its strategy.
        steps: one dict a step: epoch, step, samples (global), loss and accuracy (means over the global batch),
            seconds (since the start, on this rank; on an accelerator as far as the work was handed to it, exact
            at the end of each epoch).
        epochs: one dict an epoch: epoch, step (the last one), samples, loss, accuracy, seconds, and eval_loss and
            eval_accuracy where there is an evaluation set.
    """

    model: nn.Module
    steps: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def frame(self) -> pd.DataFrame:
        """One row a step."""
        import pandas as pd

        return pd.DataFrame(self.steps)

    @property
    def epoch_frame(self) -> pd.DataFrame:
        """One row an epoch."""
        import pandas as pd

        return pd.DataFrame(self.epochs)

    def __repr__(self) -> str:
        if not self.epochs:
            return "History(no steps)"
        last = self.epochs[-1]
        shown = ", ".join(f"{k}={last[k]:.4f}" for k in ("loss", "accuracy", "eval_accuracy") if k in last)
        return f"History(epochs={len(self.epochs)}, steps={len(self.steps)}, {shown})"

    def __getstate__(self) -> dict[str, Any]:
        # A wrapped module belongs to its process group and its devices; only the plain one can travel.
        plain = unwrap(self.model)
        if any(tensor.device.type != "cpu" for tensor in (*plain.parameters(), *plain.buffers())):
            plain = copy.deepcopy(plain).to("cpu")
        return {"model": plain, "steps": self.steps, "epochs": self.epochs}


def train(
    model: nn.Module,
    dataset: Dataset[Any],
    *,
    strategy: Strategy,
    epochs: int = 1,
    batch_size: int = 64,
    optimizer: str | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = "sgd",
    lr: float | None = None,
    momentum: float = 0.9,
    seed: int = 0,
    eval_dataset: Dataset[Any] | None = None,
    max_steps: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    num_workers: int = 0,
    returns_loss: bool = False,
    progress: bool = False,
) -> History:
    """Train a classifier with any strategy; on one device or many the weights end up the same.

    `batch_size` is the global batch. The order of the samples depends on `seed` and the epoch alone, and each
    step's gradient is that of the mean loss over the whole global batch, the last, smaller batch included. The
    model is trained in place. The global random state is neither set nor read by the loop itself.

    Under DDP every rank calls this with the same arguments. Collectives: those of DDP in forward and backward, one
    all-reduce an epoch for the losses, and those of `evaluate`.

    Args:
        dataset: items `(input, label)` with integer labels.
        optimizer: "sgd" (with `momentum`; lr 0.05 unless given), "adam" (lr 0.004 unless given), or a function
            which makes one from the parameters.
        eval_dataset: evaluated after each epoch.
        max_steps: stop after so many steps, counted over all epochs.
        returns_loss: the model is called as `model(input, label)` and returns its mean loss itself; then there
            is no accuracy.
        progress: show a progress bar, on the main rank only.

    Raises:
        ValueError: an unknown optimizer, or nothing to train on.
    """
    if epochs < 1 or (max_steps is not None and max_steps < 1):
        raise ValueError(f"There is nothing to train: epochs={epochs}, max_steps={max_steps}.")
    module = strategy.wrap(model)
    updates = _optimizer(optimizer, unwrap(module).parameters(), lr, momentum)
    loader = strategy.loader(
        dataset, batch_size, shuffle=shuffle, seed=seed, drop_last=drop_last, num_workers=num_workers
    )
    sampler = loader.batch_sampler
    assert isinstance(sampler, ShardedBatchSampler)
    global_sizes = sampler.global_sizes
    if not global_sizes:
        raise ValueError(
            f"With drop_last, {sampler.dataset_len} samples give no batch of {batch_size}: use a smaller batch."
        )
    total = min(epochs * len(global_sizes), max_steps or epochs * len(global_sizes))
    history = History(module)
    bar = _progress_bar(total, shown=progress and strategy.is_main)
    start = time.perf_counter()
    step = 0
    for epoch in range(epochs):
        if step >= total:
            break
        sampler.set_epoch(epoch)
        module.train()
        sums, ended = [], []
        for global_count, (inputs, labels) in zip(global_sizes, loader, strict=False):
            sums.append(_train_step(module, updates, inputs, labels, global_count, strategy, returns_loss).detach())
            ended.append(time.perf_counter() - start)
            step += 1
            bar.update(1)
            if step >= total:
                break
        _record(history, epoch, strategy.sum(torch.stack(sums).cpu()), global_sizes, ended, returns_loss)
        history.epochs[-1]["seconds"] = time.perf_counter() - start
        if eval_dataset is not None:
            result = evaluate(module, eval_dataset, strategy=strategy)
            history.epochs[-1] |= {"eval_loss": result["loss"], "eval_accuracy": result["accuracy"]}
    bar.close()
    return history


def evaluate(model: nn.Module, dataset: Dataset[Any], *, strategy: Strategy, batch_size: int = 256) -> dict[str, Any]:
    """Loss and accuracy of a classifier over a dataset, every sample counted once on any world size.

    Returns `{"loss": mean cross entropy, "accuracy": share of right answers, "count": number of samples}`, the
    same on every rank. Each rank evaluates its own shard with the plain module, so that no collective hides in
    the forward and shards may differ in length, even be empty. Collectives under DDP: a broadcast of each of
    rank 0's buffers (each rank's own are put back after), and one all-reduce.
    """
    module = unwrap(model).to(strategy.device)
    was_training = {child: child.training for child in module.modules()}
    totals = torch.zeros(3, dtype=torch.float64)
    module.eval()
    try:
        with torch.no_grad(), strategy.main_buffers(module):
            for inputs, labels in strategy.loader(dataset, batch_size):
                if len(labels) == 0:
                    continue
                logits = module(inputs.to(strategy.device))
                target = labels.to(strategy.device)
                loss = F.cross_entropy(logits, target, reduction="sum")
                right = (logits.argmax(dim=1) == target).sum()
                totals += torch.tensor([loss.item(), right.item(), len(labels)], dtype=torch.float64)
    finally:
        for child, training in was_training.items():
            child.training = training
    loss_sum, right_sum, count = strategy.sum(totals).tolist()
    return {"loss": loss_sum / count, "accuracy": right_sum / count, "count": int(count)}


def _train_step(
    module: nn.Module,
    updates: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    global_count: int,
    strategy: Strategy,
    returns_loss: bool,
) -> Tensor:
    """One update; returns this rank's summed loss and number of right answers, as a tensor of 2."""
    inputs = inputs.to(strategy.device, non_blocking=True)
    labels = labels.to(strategy.device, non_blocking=True)
    updates.zero_grad()
    if returns_loss:
        mean_loss = module(inputs, labels)
        # The mean over no samples is nan, and would make the sum over all ranks nan.
        loss_sum = mean_loss * len(labels) if len(labels) else mean_loss.nan_to_num() * 0
        right = torch.zeros_like(loss_sum)
    else:
        logits = module(inputs)
        loss_sum = F.cross_entropy(logits, labels, reduction="sum")
        right = (logits.argmax(dim=1) == labels).sum()
    strategy.scale_loss(loss_sum, global_count).backward()
    updates.step()
    return torch.stack([loss_sum.detach(), right.to(loss_sum.dtype)])


def _record(
    history: History, epoch: int, sums: Tensor, sizes: list[int], ended: list[float], returns_loss: bool
) -> None:
    samples = torch.tensor(sizes[: len(sums)], dtype=torch.float64)
    sums = sums.double()
    first = len(history.steps)
    for i, (loss_sum, right) in enumerate(sums.tolist()):
        row = {"epoch": epoch, "step": first + i, "samples": sizes[i], "loss": loss_sum / sizes[i]}
        if not returns_loss:
            row["accuracy"] = right / sizes[i]
        history.steps.append(row | {"seconds": ended[i]})
    loss, right = (sums.sum(dim=0) / samples.sum()).tolist()
    summary = {"epoch": epoch, "step": len(history.steps) - 1, "samples": int(samples.sum()), "loss": loss}
    history.epochs.append(summary if returns_loss else summary | {"accuracy": right})


def _optimizer(
    choice: str | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    parameters: Iterable[nn.Parameter],
    lr: float | None,
    momentum: float,
) -> torch.optim.Optimizer:
    if not isinstance(choice, str):
        if lr is not None:
            raise ValueError("lr is for the optimizers known by name: give your own optimizer its rate itself.")
        return choice(parameters)
    if choice not in _LEARNING_RATES:
        raise ValueError(f"optimizer must be 'sgd', 'adam' or a function of the parameters, got {choice!r}.")
    rate = _LEARNING_RATES[choice] if lr is None else lr
    if choice == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def _progress_bar(total: int, shown: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, disable=not shown, unit="step")
