"""One training loop and one exact evaluation for every strategy."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

import mgpu_utils as mgpu
from mgpu_utils.ranks import RankGroup

# The ranks do not import this file: functions and classes of it travel by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

STEPS = 50
FULL_BATCHES = 5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def trained_weights(strategy: Any, optimizer: str, last_batch: int) -> Tensor:
    """Weights after 50 steps on a set whose last batch of each epoch has `last_batch` samples."""
    data = Subset(mgpu.digits(train=True), range(FULL_BATCHES * 64 + last_batch))
    history = mgpu.train(
        mgpu.digits_cnn(seed=0), data, strategy=strategy, epochs=STEPS, max_steps=STEPS, optimizer=optimizer
    )
    assert len(history.steps) == STEPS
    return flat(strategy.unwrap(history.model))


def trained_with_ddp(optimizer: str, last_batch: int) -> Tensor:
    return trained_weights(mgpu.DistributedDataParallel(), optimizer, last_batch)


# The last batch of 5 is 3 + 2 and 2 + 2 + 1; of the last batch of 1 all ranks but one get nothing.
@pytest.mark.parametrize("last_batch", [5, 1])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_single_data_parallel_and_ddp_give_the_same_weights_after_50_steps(
    optimizer: str, last_batch: int, two_ranks: RankGroup, three_ranks: RankGroup
) -> None:
    single = trained_weights(mgpu.SingleDevice("cpu"), optimizer, last_batch)
    others = {f"DataParallel {n}": trained_weights(mgpu.DataParallel(n), optimizer, last_batch) for n in (1, 2, 3)}
    for group in (two_ranks, three_ranks):
        for rank, weights in enumerate(group.run(trained_with_ddp, optimizer, last_batch)):
            others[f"DDP rank {rank} of {len(group)}"] = weights
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        others["DDP rank 0 of 1"] = trained_with_ddp(optimizer, last_batch)
    finally:
        dist.destroy_process_group()
    assert (single - flat(mgpu.digits_cnn(seed=0))).abs().max() > 0.1, "training did not move the weights"
    differences = {name: (weights - single).abs().max().item() for name, weights in others.items()}
    assert max(differences.values()) < 1e-5, differences


def test_the_digits_reach_97_percent_on_one_device_and_with_data_parallel() -> None:
    for strategy in (mgpu.SingleDevice("cpu"), mgpu.DataParallel(2)):
        history = mgpu.train(mgpu.digits_cnn(seed=0), mgpu.digits(train=True), strategy=strategy, epochs=12)
        assert mgpu.evaluate(history.model, mgpu.digits(train=False), strategy=strategy)["accuracy"] >= 0.97


def test_the_digits_reach_97_percent_with_ddp_and_the_history_comes_back_with_a_plain_model(
    two_ranks: RankGroup,
) -> None:
    def trained() -> Any:
        return mgpu.train(
            mgpu.digits_cnn(seed=0),
            mgpu.digits(train=True),
            strategy=mgpu.DistributedDataParallel(),
            epochs=12,
            eval_dataset=mgpu.digits(train=False),
        )

    first, second = two_ranks.run(trained)
    assert first.epochs[-1]["eval_accuracy"] >= 0.97
    assert type(first.model) is nn.Sequential
    assert torch.equal(flat(first.model), flat(second.model))
    result = mgpu.evaluate(first.model, mgpu.digits(train=False), strategy=mgpu.SingleDevice("cpu"))
    assert result["accuracy"] == pytest.approx(first.epochs[-1]["eval_accuracy"])
    assert result["loss"] == pytest.approx(first.epochs[-1]["eval_loss"], rel=1e-5)


class RightOnTheFirst(nn.Module):
    """Says class 1 for the image of zeros and class 0 for all others."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        is_first = (x.flatten(1).sum(dim=1) == 0).float()
        return torch.stack([1 - is_first, is_first], dim=1) * self.scale


def twenty_one() -> TensorDataset:
    return TensorDataset(torch.arange(21.0).view(21, 1), torch.ones(21, dtype=torch.long))


@pytest.mark.parametrize("batch_size", [256, 8, 1])
def test_evaluation_counts_every_sample_once_on_every_world_size(
    batch_size: int, two_ranks: RankGroup, three_ranks: RankGroup
) -> None:
    def evaluated(batch_size: int) -> dict[str, Any]:
        strategy = mgpu.DistributedDataParallel()
        wrapped = strategy.wrap(RightOnTheFirst())
        return mgpu.evaluate(wrapped, twenty_one(), strategy=strategy, batch_size=batch_size)

    results = [
        mgpu.evaluate(RightOnTheFirst(), twenty_one(), strategy=strategy, batch_size=batch_size)
        for strategy in (mgpu.SingleDevice("cpu"), mgpu.DataParallel(2))
    ]
    results += two_ranks.run(evaluated, batch_size) + three_ranks.run(evaluated, batch_size)
    loss = (F.softplus(torch.tensor(-1.0)) + 20 * F.softplus(torch.tensor(1.0))).item() / 21
    for result in results:
        assert result == {"count": 21, "accuracy": 1 / 21, "loss": pytest.approx(loss, rel=1e-6)}


def test_evaluation_leaves_mode_and_buffers_as_they_were_and_uses_rank_0s_statistics(
    two_ranks: RankGroup,
) -> None:
    def model_with_mean(mean: float) -> nn.Sequential:
        model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2))
        model[0].load_state_dict(model[0].state_dict() | {"running_mean": torch.tensor([mean])})
        model[1].load_state_dict({"weight": torch.tensor([[1.0], [-1.0]]), "bias": torch.zeros(2)})
        model[1].eval()
        return model

    def around() -> Any:
        strategy = mgpu.DistributedDataParallel()
        model = model_with_mean(5.0 if strategy.rank else 0.0)
        result = mgpu.evaluate(model, twenty_one(), strategy=strategy)
        modes = [module.training for module in model]
        return result["loss"], model[0].running_mean.item(), modes, model[0].num_batches_tracked.item()

    single = mgpu.evaluate(model_with_mean(0.0), twenty_one(), strategy=mgpu.SingleDevice("cpu"))
    (loss, mean, modes, tracked), (other_loss, other_mean, _, _) = two_ranks.run(around)
    assert loss == other_loss == pytest.approx(single["loss"], rel=1e-6)
    assert (mean, other_mean) == (0.0, 5.0)
    assert modes == [True, False]
    assert tracked == 0


def test_only_rank_0_evaluating_by_itself_does_not_disturb_the_others(two_ranks: RankGroup) -> None:
    def mixed() -> float:
        strategy = mgpu.DistributedDataParallel()
        data = TensorDataset(torch.rand(8, 3, 32, 32), torch.arange(8))
        history = mgpu.train(mgpu.small_resnet(seed=0), data, strategy=strategy, batch_size=4)
        if strategy.is_main:
            alone = mgpu.SingleDevice("cpu")
            assert mgpu.evaluate(history.model, data, strategy=alone)["count"] == 8
        again = mgpu.train(history.model, data, strategy=strategy, batch_size=4)
        return again.epochs[-1]["loss"]

    first, second = two_ranks.run(mixed)
    assert first == second


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_model_sent_to_ranks_makes_exactly_the_single_process_step_and_the_callers_copy_stays(
    world_size: int, two_ranks: RankGroup, three_ranks: RankGroup
) -> None:
    def step(model: nn.Module) -> Tensor:
        strategy = mgpu.DistributedDataParallel()
        module = strategy.wrap(model)
        before = flat(module).clone()
        updates = torch.optim.SGD(module.parameters(), lr=0.1)
        module(torch.ones(2, 4)).mean().backward()
        updates.step()
        return flat(module) - before

    model = nn.Linear(4, 1)
    kept = flat(model).clone()
    group = {2: two_ranks, 3: three_ranks}[world_size]
    for change in group.run(step, model):
        torch.testing.assert_close(change, torch.full((5,), -0.1))
    assert torch.equal(flat(model), kept)


def test_training_in_ranks_with_worker_processes_gives_the_same_weights(two_ranks: RankGroup) -> None:
    def weights(num_workers: int) -> Tensor:
        data = Subset(mgpu.digits(train=True), range(130))
        strategy = mgpu.DistributedDataParallel()
        history = mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=strategy, epochs=2, num_workers=num_workers)
        return flat(history.model)

    without, with_workers = (two_ranks.run(weights, num_workers) for num_workers in (0, 2))
    assert torch.equal(without[0], with_workers[0])
    assert torch.equal(without[0], with_workers[1])


class Noted(TensorDataset):
    """Notes the index of each sample that is asked for."""

    def __init__(self, n: int) -> None:
        super().__init__(torch.rand(n, 1, 8, 8), torch.arange(n) % 10)
        self.asked: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return super().__getitem__(index)


def test_each_epoch_has_a_new_order_and_the_ranks_share_each_epoch_without_overlap(
    two_ranks: RankGroup,
) -> None:
    def asked() -> list[int]:
        data = Noted(40)
        strategy = mgpu.DistributedDataParallel()
        mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=strategy, epochs=2, batch_size=10)
        return data.asked

    first, second = two_ranks.run(asked)
    for epoch in (slice(0, 20), slice(20, 40)):
        assert sorted(first[epoch] + second[epoch]) == list(range(40))
    assert first[:20] != first[20:]
    data = Noted(40)
    mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=mgpu.SingleDevice("cpu"), epochs=2, batch_size=10)
    by_step = [first[i : i + 5] + second[i : i + 5] for i in range(0, 40, 5)]
    assert list(chain(*by_step)) == data.asked


class LossInside(nn.Module):
    """Returns its own mean loss, as many published models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mgpu.digits_cnn(seed=0)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.net(images), labels)


# The last batch, of one sample, leaves two of three devices without work, which DataParallel rightly says.
@pytest.mark.filterwarnings("error", "ignore:A batch of 1 over 3 devices")
def test_a_model_which_returns_its_loss_trains_to_the_same_weights_without_a_warning(
    three_ranks: RankGroup,
) -> None:
    def weights(strategy: Any) -> tuple[Tensor, float]:
        data = Subset(mgpu.digits(train=True), range(129))
        history = mgpu.train(LossInside(), data, strategy=strategy, epochs=2, returns_loss=True)
        assert "accuracy" not in history.steps[0]
        return flat(history.model), history.epochs[-1]["loss"]

    data = Subset(mgpu.digits(train=True), range(129))
    plain = mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=mgpu.SingleDevice("cpu"), epochs=2)
    results = [weights(mgpu.SingleDevice("cpu")), weights(mgpu.DataParallel(3))]
    results += three_ranks.run(lambda: weights(mgpu.DistributedDataParallel()))
    for found, loss in results:
        torch.testing.assert_close(found, flat(plain.model), rtol=0, atol=1e-5)
        assert loss == pytest.approx(plain.epochs[-1]["loss"], rel=1e-4)


def test_the_history_holds_true_global_means_for_each_step_and_epoch(two_ranks: RankGroup) -> None:
    def rows() -> Any:
        data = Subset(mgpu.digits(train=True), range(70))
        history = mgpu.train(
            mgpu.digits_cnn(seed=0), data, strategy=mgpu.DistributedDataParallel(), epochs=2, max_steps=3
        )
        return history.frame, history.epoch_frame

    data = Subset(mgpu.digits(train=True), range(70))
    history = mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=mgpu.SingleDevice("cpu"), epochs=2, max_steps=3)
    frame = history.frame
    assert list(frame.columns) == ["epoch", "step", "samples", "loss", "accuracy", "seconds"]
    assert frame[["epoch", "step", "samples"]].to_numpy().tolist() == [[0, 0, 64], [0, 1, 6], [1, 2, 64]]
    assert frame["seconds"].is_monotonic_increasing
    assert list(history.epoch_frame["samples"]) == [70, 64]
    first = (frame["loss"][0] * 64 + frame["loss"][1] * 6) / 70
    assert history.epoch_frame["loss"][0] == pytest.approx(first)
    for other, other_epochs in two_ranks.run(rows):
        for column in ("epoch", "step", "samples", "loss", "accuracy"):
            assert other[column].tolist() == pytest.approx(frame[column].tolist(), rel=1e-4)
        assert other_epochs["loss"].tolist() == pytest.approx(history.epoch_frame["loss"].tolist(), rel=1e-4)


def test_a_history_is_pickled_with_the_plain_model() -> None:
    data = Subset(mgpu.digits(train=True), range(64))
    history = mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=mgpu.DataParallel(2))
    again = pickle.loads(pickle.dumps(history))
    assert type(again.model) is nn.Sequential
    assert torch.equal(flat(again.model), flat(history.model))
    assert again.steps == history.steps
    assert "loss=" in repr(again)


def test_training_neither_sets_nor_reads_the_global_random_state() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    data = Subset(mgpu.digits(train=True), range(64))
    mgpu.train(mgpu.digits_cnn(seed=0), data, strategy=mgpu.DataParallel(2), eval_dataset=data)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_cannot_be_trained_is_refused_in_one_sentence() -> None:
    data = Subset(mgpu.digits(train=True), range(10))

    def attempt(**options: Any) -> None:
        mgpu.train(mgpu.digits_cnn(), data, strategy=mgpu.SingleDevice("cpu"), **options)

    with pytest.raises(ValueError, match="must be 'sgd', 'adam' or a function of the parameters, got 'adagrad'"):
        attempt(optimizer="adagrad")
    with pytest.raises(ValueError, match="With drop_last, 10 samples give no batch of 64"):
        attempt(drop_last=True)
    with pytest.raises(ValueError, match="nothing to train: epochs=0"):
        attempt(epochs=0)
    with pytest.raises(ValueError, match="give your own optimizer its rate"):
        attempt(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), lr=0.1)
