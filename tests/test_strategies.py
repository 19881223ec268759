"""SingleDevice, DataParallel and DistributedDataParallel behind one protocol."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import mgpu_utils as mgpu
from mgpu_utils.ranks import RankGroup
from mgpu_utils.strategies import DataParallel, DistributedDataParallel, SingleDevice, Strategy
from mgpu_utils.threaded_data_parallel import ThreadedDataParallel

# The ranks do not import this file: functions and classes of it travel by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class LossInside(nn.Module):
    """Returns its own mean loss, as many published models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mgpu.digits_cnn(seed=0).double()

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        return F.cross_entropy(self.net(images), labels)


def test_all_three_are_strategies_and_say_what_they_are(two_ranks: RankGroup) -> None:
    def described() -> dict[str, Any]:
        made = mgpu.DistributedDataParallel()
        names = ("name", "implementation", "world_size", "rank", "is_main")
        facts = {name: getattr(made, name) for name in names}
        return facts | {"device": str(made.device), "is_strategy": isinstance(made, Strategy)}

    single, parallel = SingleDevice("cpu"), DataParallel(3)
    assert isinstance(single, Strategy)
    assert isinstance(parallel, Strategy)
    assert (single.name, single.implementation, single.world_size) == ("single", "torch", 1)
    assert (parallel.name, parallel.implementation, parallel.world_size) == (
        "data_parallel",
        "threaded stand-in",
        3,
    )
    assert "threaded stand-in" in repr(parallel)
    assert single.is_main
    assert parallel.is_main
    ddp = {"name": "ddp", "implementation": "torch", "world_size": 2, "device": "cpu", "is_strategy": True}
    assert two_ranks.run(described) == [ddp | {"rank": rank, "is_main": rank == 0} for rank in range(2)]


def test_data_parallel_without_gpus_is_the_threaded_stand_in_and_never_torchs_pass_through() -> None:
    module = DataParallel(2).wrap(nn.Linear(2, 2))
    assert isinstance(module, ThreadedDataParallel)
    assert not isinstance(module, nn.DataParallel)
    assert repr(module).startswith("ThreadedDataParallel(")


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="shows what happens without a GPU")
def test_data_parallel_for_gpus_refuses_to_run_the_plain_module_when_they_are_gone() -> None:
    strategy = DataParallel(2)
    strategy._use((torch.device("cuda", 0), torch.device("cuda", 1)))
    assert strategy.implementation == "torch"
    strategy.device = torch.device("cpu")
    with pytest.raises(RuntimeError, match="sees no GPU here and would run the plain module"):
        strategy.wrap(nn.Linear(1, 1))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_data_parallel_on_gpus_is_torchs_and_moves_the_module_itself() -> None:
    strategy = DataParallel()
    module = strategy.wrap(mgpu.digits_cnn(seed=0))
    assert isinstance(module, nn.DataParallel)
    assert strategy.implementation == "torch"
    assert {str(parameter.device) for parameter in module.parameters()} == {"cuda:0"}
    assert module(torch.rand(5, 1, 8, 8, device=strategy.device)).shape == (5, 10)


def test_a_senseless_number_of_devices_is_refused() -> None:
    for devices in (0, -1, "two"):
        with pytest.raises(ValueError, match="world_size"):
            DataParallel(devices)  # type: ignore[arg-type]


def test_ddp_without_a_process_group_says_where_to_use_it() -> None:
    with pytest.raises(RuntimeError, match=r"needs a process group.*inside a rank"):
        DistributedDataParallel()


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("batch", [10, 9, 8, 1])
def test_a_model_that_returns_its_loss_gives_the_single_device_loss_and_gradients(batch: int, keyword: bool) -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(batch, 1, 8, 8).double(), torch.randint(10, (batch,))
    plain, module = LossInside(), DataParallel(4).wrap(LossInside())
    expected = plain(images, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=r"A batch of \d+ over 4 devices")
        loss = module(images, labels=labels) if keyword else module(images, labels)
    assert loss.shape == ()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for one, two in zip(plain.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_an_output_with_one_entry_a_replica_is_left_alone() -> None:
    module = DataParallel(2).wrap(nn.Flatten(0))
    with pytest.warns(UserWarning, match="devices 0 and 1 get one sample"):
        assert torch.equal(module(torch.tensor([[1.0], [2.0]])), torch.tensor([1.0, 2.0]))


def test_a_state_dict_travels_between_all_three_without_prefix_and_with_equal_outputs(
    two_ranks: RankGroup,
) -> None:
    def state_from_ddp(state: dict[str, Tensor]) -> dict[str, Tensor]:
        strategy = mgpu.DistributedDataParallel()
        model = mgpu.small_resnet()
        model.load_state_dict(state)
        wrapped = strategy.wrap(model)
        assert all(key.startswith("module.") for key in wrapped.state_dict())
        return strategy.unwrap(wrapped).state_dict()

    x = torch.rand(4, 3, 32, 32)
    first = mgpu.small_resnet(seed=3).eval()
    states = [first.state_dict()]
    for strategy in (SingleDevice("cpu"), DataParallel(2)):
        model = mgpu.small_resnet()
        model.load_state_dict(states[-1])
        states.append(strategy.unwrap(strategy.wrap(model)).state_dict())
    states.extend(two_ranks.run(state_from_ddp, states[-1]))
    for state in states:
        assert list(state) == list(first.state_dict())
        fresh = mgpu.small_resnet()
        fresh.load_state_dict(state)
        assert torch.equal(fresh.eval()(x), first(x))


def test_a_class_of_ones_own_needs_to_write_wrap_only() -> None:
    class Halved(Strategy):
        name = "halved"
        device = torch.device("cpu")

        def wrap(self, model: nn.Module) -> nn.Module:
            return model.to(torch.float16)

    numbers = torch.utils.data.TensorDataset(torch.arange(21))
    strategy = Halved()
    assert [len(batch) for (batch,) in strategy.loader(numbers, 10)] == [10, 10, 1]
    assert [len(batch) for (batch,) in strategy.loader(numbers, 10, drop_last=True)] == [10, 10]
    assert strategy.mean(3.0, 2) == 3.0
    assert strategy.scale_loss(torch.tensor(6.0), 3) == 2.0

    class Nothing(Strategy):
        name = "nothing"

    with pytest.raises(TypeError, match=r"abstract.*wrap"):
        Nothing()  # type: ignore[abstract]


def test_an_object_with_the_names_of_a_strategy_is_one() -> None:
    single = SingleDevice("cpu")
    names = [name for name in dir(single) if not name.startswith("_")]
    twin = type("Twin", (), {name: getattr(single, name) for name in names})()
    assert isinstance(twin, Strategy)
    assert not isinstance(type("Part", (), {"wrap": single.wrap})(), Strategy)


def test_wrapping_what_is_wrapped_does_not_wrap_twice() -> None:
    model = nn.Linear(2, 2)
    twice = DataParallel(2).wrap(DataParallel(3).wrap(model))
    assert isinstance(twice, ThreadedDataParallel)
    assert twice.module is model
    assert SingleDevice("cpu").wrap(twice) is model


def test_mean_is_weighted_over_all_ranks_and_sum_adds_them_and_keeps_its_input(
    three_ranks: RankGroup,
) -> None:
    def reduced() -> Any:
        strategy = mgpu.DistributedDataParallel()
        rank = strategy.rank
        mine = torch.tensor([rank, 1])
        return (
            strategy.mean(float(rank), weight=rank + 1),
            strategy.sum(mine).tolist(),
            mine.tolist(),
            strategy.mean(float("nan") if rank == 2 else 4.0, weight=0 if rank == 2 else 3),
        )

    expected = ((0 * 1 + 1 * 2 + 2 * 3) / 6, [3, 3])
    assert three_ranks.run(reduced) == [(*expected, [rank, 1], 4.0) for rank in range(3)]
    single = SingleDevice("cpu")
    assert single.mean(torch.tensor(2.0), 5) == 2.0
    assert single.mean(2.0, 0) != single.mean(2.0, 0), "the mean of nothing is nan"


def test_scaled_losses_give_the_single_device_gradient_for_any_split(three_ranks: RankGroup) -> None:
    def gradient(images: Tensor, labels: Tensor) -> Tensor:
        strategy = mgpu.DistributedDataParallel()
        module = strategy.wrap(mgpu.digits_cnn(seed=0).double())
        mine = slice([0, 4, 5][strategy.rank], [4, 5, 5][strategy.rank])
        loss_sum = F.cross_entropy(module(images[mine]), labels[mine], reduction="sum")
        strategy.scale_loss(loss_sum, len(labels)).backward()
        return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])

    torch.manual_seed(0)
    images, labels = torch.rand(5, 1, 8, 8).double(), torch.randint(10, (5,))
    model = mgpu.digits_cnn(seed=0).double()
    F.cross_entropy(model(images), labels).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    for found in three_ranks.run(gradient, images, labels):
        torch.testing.assert_close(found, expected)


def test_loaders_of_all_ranks_yield_the_single_device_batches_also_with_worker_processes(
    two_ranks: RankGroup,
) -> None:
    def batches(num_workers: int) -> list[list[int]]:
        strategy = mgpu.DistributedDataParallel()
        numbers = torch.utils.data.TensorDataset(torch.arange(21))
        loader = strategy.loader(numbers, 10, shuffle=True, seed=5, num_workers=num_workers)
        loader.batch_sampler.set_epoch(1)
        return [batch.tolist() for (batch,) in loader]

    numbers = torch.utils.data.TensorDataset(torch.arange(21))
    for strategy in (SingleDevice("cpu"), DataParallel(2)):
        loader = strategy.loader(numbers, 10, shuffle=True, seed=5)
        loader.batch_sampler.set_epoch(1)  # type: ignore[union-attr]
        expected = [batch.tolist() for (batch,) in loader]
        for num_workers in (0, 2):
            first, second = two_ranks.run(batches, num_workers)
            assert [a + b for a, b in zip(first, second, strict=True)] == expected
            assert [len(b) for b in second] == [5, 5, 0]


def test_rank_0s_buffers_are_lent_to_all_ranks_and_each_gets_its_own_back(two_ranks: RankGroup) -> None:
    def seen() -> tuple[float, float, float]:
        strategy = mgpu.DistributedDataParallel()
        norm = nn.BatchNorm1d(1)
        norm.running_mean.fill_(10.0 + strategy.rank)
        with strategy.main_buffers(norm):
            inside = norm.running_mean.item()
        return inside, norm.running_mean.item(), float(dist.get_rank())

    assert two_ranks.run(seen) == [(10.0, 10.0, 0.0), (10.0, 11.0, 1.0)]


def test_a_dataset_without_length_is_refused() -> None:
    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(TypeError, match="no length"):
        SingleDevice("cpu").loader(Stream(), 4)
