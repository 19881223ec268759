"""SyncBatchNorm is used where it works; on a CPU BatchNorm stays, with one notice, and the model still trains."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from torch import nn

from mgpu_utils import sync_batch_norm
from mgpu_utils.models import digits_cnn, small_resnet
from mgpu_utils.ranks import RankGroup
from mgpu_utils.sync_batch_norm import convert_sync_batch_norm


def test_on_cpu_ranks_it_is_left_with_one_notice_on_rank_0_and_ddp_trains(two_ranks: RankGroup) -> None:
    def left_unconverted() -> dict[str, Any]:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        from mgpu_utils import small_resnet, sync_batch_norm

        sync_batch_norm._noticed = False
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            nets = [sync_batch_norm.convert_sync_batch_norm(small_resnet(), "cpu") for _ in range(3)]
        module = DistributedDataParallel(nets[0])
        module(torch.ones(2, 3, 32, 32)).sum().backward()
        try:
            DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(small_resnet()))
            refused = False
        except ValueError:
            refused = True
        return {
            "rank": dist.get_rank(),
            "kinds": {type(m).__name__ for m in nets[0].modules() if "BatchNorm" in type(m).__name__},
            "notices": [str(notice.message) for notice in notices],
            "torch refuses the converted one": refused,
        }

    first, second = two_ranks.run(left_unconverted)
    assert first["kinds"] == second["kinds"] == {"BatchNorm2d"}
    assert [len(first["notices"]), len(second["notices"])] == [1, 0]
    assert "the 9 BatchNorm layers stay as they are" in first["notices"][0]
    assert first["torch refuses the converted one"]
    assert second["torch refuses the converted one"]


def test_for_a_gpu_every_layer_is_converted() -> None:
    net = convert_sync_batch_norm(small_resnet(), "cuda")
    kinds = {type(m) for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    assert kinds == {nn.SyncBatchNorm}


def test_a_model_without_batch_norm_comes_back_as_it_is_without_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_batch_norm, "_noticed", False)
    net = digits_cnn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convert_sync_batch_norm(net, "cpu") is net
