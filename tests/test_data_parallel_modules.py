"""What the DataParallel strategy adds, a warning about small batches, and what it leaves to torch: RNN weights."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mgpu_utils.strategies import DataParallel


class LastStep(nn.Module):
    """An LSTM whose last output is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, steps: Tensor) -> Tensor:
        return self.head(self.lstm(steps)[0][:, -1])


def told(module: nn.Module, *batches: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches:
            module(batch)
    return [str(warning.message) for warning in caught]


def test_the_first_batch_that_is_too_small_for_all_devices_is_told_of_once() -> None:
    module = DataParallel(4).wrap(nn.Linear(2, 2))
    (notice,) = told(module, torch.rand(8, 2), torch.rand(9, 2), torch.rand(9, 2), torch.rand(10, 2))
    assert "A batch of 9 over 4 devices is split into [3, 3, 3]: device 3 gets nothing" in notice


def test_the_warning_stands_at_the_line_that_called_the_module() -> None:
    module = DataParallel(2).wrap(nn.Linear(2, 2))
    with pytest.warns(UserWarning, match="is split into") as caught:
        module(torch.rand(1, 2))
    assert caught[0].filename == __file__


def test_even_batches_and_inputs_that_are_not_split_are_told_nothing_of() -> None:
    class Squares(nn.Module):
        def forward(self, count: int) -> Tensor:
            return torch.arange(count) ** 2

    assert told(DataParallel(2).wrap(nn.Linear(2, 2)), torch.rand(64, 2), torch.rand(29, 2), torch.rand(4, 2)) == []
    assert told(DataParallel(2).wrap(Squares()), 3) == []


def test_batch_norm_is_named_where_it_trains_and_before_it_raises() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    wrapped = DataParallel(2).wrap(net)
    with pytest.warns(UserWarning, match="BatchNorm in training"), pytest.raises(ValueError, match="more than 1 value"):
        wrapped(torch.rand(3, 2))
    (quiet,) = told(DataParallel(2).wrap(net).eval(), torch.rand(3, 2))
    assert "device 1 gets one sample" in quiet
    assert "BatchNorm" not in quiet


def test_a_device_without_samples_is_told_of_before_its_replica_raises() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, scale: float) -> Tensor:
            return x * scale

    module = DataParallel(4).wrap(Scaled())
    with pytest.warns(UserWarning, match="device 3 gets nothing"), pytest.raises(TypeError, match="argument: 'x'"):
        module(torch.rand(9, 2), scale=2.0)


def test_each_replica_of_an_lstm_puts_its_own_new_weights_in_one_piece_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flattened: list[tuple[str, tuple[int, ...]]] = []

    def note(layer: nn.LSTM) -> None:
        flattened.append((threading.current_thread().name, tuple(weight.data_ptr() for weight in layer._flat_weights)))

    model = LastStep()
    module = DataParallel(3).wrap(model)
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", note)
    for step in range(1, 3):
        module(torch.rand(6, 5, 3))
        assert [name for name, _ in flattened].count("replica-2") == step
    # Without it cuDNN would warn at each step, and copy the weights at each call.
    assert sorted(name for name, _ in flattened) == sorted(["replica-0", "replica-1", "replica-2"] * 2)
    assert len({weights for _, weights in flattened[:3]}) == 3, "replicas share their weights"


def test_an_lstm_on_several_devices_gives_the_output_and_gradients_of_one() -> None:
    torch.manual_seed(0)
    plain = LastStep().double()
    module = DataParallel(2).wrap(copy.deepcopy(plain))
    steps = torch.rand(7, 5, 3).double()
    for net in (plain, module):
        net(steps).square().sum().backward()
    torch.testing.assert_close(plain(steps), module(steps))
    for one, two in zip(plain.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_an_lstm_on_gpus_trains_without_a_word() -> None:
    module = DataParallel().wrap(LastStep())
    steps = torch.rand(16, 5, 3, device="cuda:0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            module(steps).sum().backward()
