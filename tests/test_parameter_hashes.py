"""Hashes tell any difference between tensors, and the table says which ranks differ."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mgpu_utils.models import digits_cnn
from mgpu_utils.parameter_hashes import HashTable, parameter_hashes
from mgpu_utils.ranks import RankGroup


def test_every_parameter_and_buffer_has_a_hash_and_wrappers_change_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    hashes = parameter_hashes(model)
    assert list(hashes) == [
        *("0.weight", "0.bias", "1.weight", "1.bias"),
        *("1.running_mean", "1.running_var", "1.num_batches_tracked"),
    ]
    assert all(len(digits) == 8 and int(digits, 16) >= 0 for digits in hashes.values())
    assert parameter_hashes(nn.DataParallel(model)) == hashes
    assert parameter_hashes(digits_cnn(seed=1)) == parameter_hashes(digits_cnn(seed=1))


def test_one_bit_the_shape_or_the_dtype_makes_another_hash() -> None:
    def of(tensor: torch.Tensor) -> str:
        module = nn.Module()
        module.register_buffer("it", tensor)
        return parameter_hashes(module)["it"]

    ones = torch.ones(2, 3)
    nearly = ones.clone()
    nearly[1, 2] = torch.nextafter(ones[1, 2], torch.tensor(2.0))
    others = [nearly, torch.ones(3, 2), torch.ones(6), torch.ones(2, 3, dtype=torch.int32), -ones]
    assert len({of(t) for t in [ones, *others]}) == 6
    assert of(torch.zeros(())) != of(torch.tensor(-0.0)), "a bit by bit comparison tells 0.0 from -0.0"
    assert of(torch.ones(3, 2).t()) == of(ones), "the layout in memory does not count"
    assert of(torch.zeros(2)) != of(torch.zeros(2, dtype=torch.int32)), "the same bytes of another type"
    assert of(torch.ones(2, dtype=torch.bfloat16)) != of(torch.ones(2, dtype=torch.float16))


def test_the_table_names_what_differs_and_marks_it_in_text() -> None:
    table = HashTable([{"a": "00000000", "b": "11111111"}, {"a": "00000000", "b": "22222222"}])
    assert table.different == ["b"]
    assert not table.agree
    assert str(table).splitlines() == [
        "tensor  rank 0     rank 1",
        "a       00000000   00000000",
        "b       11111111   22222222   differs",
        "1 of 2 tensors are the same on all 2 ranks",
    ]
    assert HashTable([{"a": "0"}, {"a": "0"}, {"a": "0"}]).agree


def test_a_long_model_is_cut_and_says_so() -> None:
    table = HashTable([{f"layer{n}": "00000000" for n in range(30)}] * 2)
    assert "... and 6 more" in str(table)
    assert "30 of 30 tensors" in str(table)


def test_ranks_with_different_models_are_refused() -> None:
    with pytest.raises(ValueError, match="rank 0 and rank 1 hold different models: only one of them has 'b'"):
        HashTable([{"a": "0"}, {"a": "0", "b": "1"}])
    with pytest.raises(ValueError, match="at least one rank"):
        HashTable([])


def test_on_ranks_unequal_models_show_and_ddp_makes_them_equal(two_ranks: RankGroup) -> None:
    def hashes(wrapped: bool) -> dict[str, str]:
        import torch.distributed as dist

        import mgpu_utils as mgpu
        from mgpu_utils.parameter_hashes import parameter_hashes

        model: nn.Module = mgpu.digits_cnn(seed=dist.get_rank())
        return parameter_hashes(mgpu.DistributedDataParallel().wrap(model) if wrapped else model)

    assert HashTable(two_ranks.run(hashes, False)).different == [
        *("0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias")
    ]
    assert HashTable(two_ranks.run(hashes, True)).agree
