"""A checkpoint saved by any strategy loads into any other, and one that does not fit is never loaded in part."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn

from mgpu_utils.models import digits_cnn
from mgpu_utils.ranks import RankGroup
from mgpu_utils.state_dicts import load_state


def test_state_dicts_travel_between_plain_data_parallel_and_ddp_in_every_direction(two_ranks: RankGroup) -> None:
    def largest_difference(saved_by: str, loaded_into: str) -> float:
        import mgpu_utils as mgpu
        from mgpu_utils.state_dicts import load_state

        strategies = {
            "single": mgpu.SingleDevice("cpu"),
            "data_parallel": mgpu.DataParallel(2),
            "ddp": mgpu.DistributedDataParallel(),
        }
        source = strategies[saved_by].wrap(mgpu.digits_cnn(seed=1))
        target = strategies[loaded_into].wrap(mgpu.digits_cnn(seed=2))
        load_state(target, source.state_dict())
        images = mgpu.digits(train=False)[:10][0]
        with torch.no_grad():
            return float((source(images) - target(images)).abs().max())

    names = ("single", "data_parallel", "ddp")
    for pair in product(names, names):
        assert two_ranks.run(largest_difference, *pair) == [0.0, 0.0], pair


class Holder(nn.Module):
    def __init__(self, head: bool) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)
        if head:
            self.head = nn.Linear(2, 2)


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("wraps", [0, 1, 2])
def test_a_layer_called_module_is_no_prefix(head: bool, wraps: int) -> None:
    source, target = Holder(head), Holder(head)
    state = {"module." * wraps + name: tensor for name, tensor in source.state_dict().items()}
    load_state(target, state)
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))


def test_a_prefix_on_some_keys_only_is_not_taken_off_and_nothing_is_loaded_in_part() -> None:
    state = digits_cnn(seed=1).state_dict()
    mixed = {("module." if number else "") + name: tensor for number, (name, tensor) in enumerate(state.items())}
    target = digits_cnn(seed=2)
    before = [p.clone() for p in target.parameters()]
    with pytest.raises(RuntimeError, match=r"it lacks '0.bias' \(9 in all\) and the model has no 'module.0.bias'"):
        load_state(target, mixed)
    with pytest.raises(RuntimeError, match="does not fit the model"):
        load_state(target, {})
    assert all(torch.equal(a, b) for a, b in zip(before, target.parameters(), strict=True))
