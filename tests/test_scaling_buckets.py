"""DDP's buckets: what is computed here is what DDP really does."""

from __future__ import annotations

import pytest
import torch

from mgpu_utils.models import MODELS, build
from mgpu_utils.ranks import RankGroup
from mgpu_utils.scaling.architectures import NETWORKS, layers
from mgpu_utils.scaling.buckets import Bucket, arrival_order, assign, assign_module, empty_tensors, ready_shares

CAPS = [("digits_cnn", None), ("digits_cnn", 0.01), ("small_resnet", None), ("small_resnet", 0.1)]
MIB = 1024**2


def _real_buckets(cases: list[tuple[str, float | None]]) -> list[list[tuple[int, list[int]]]]:
    """On a rank: bytes and parameters of the buckets that DDP uses from its second step on."""
    from torch.nn.parallel import DistributedDataParallel

    found = []
    for name, cap_mb in cases:
        model = DistributedDataParallel(build(name, seed=0), bucket_cap_mb=cap_mb)
        for _ in range(3):
            model(torch.randn(4, *MODELS[name].sample_shape)).sum().backward()
        data = model._get_ddp_logging_data()
        assert data["has_rebuilt_buckets"]
        sizes = [int(size) for size in data["rebuilt_bucket_sizes"].split(",")]
        places = [sorted(map(int, bucket.split())) for bucket in data["rebuilt_per_bucket_param_indices"].split(",")]
        found.append(list(zip(sizes, places, strict=True)))
    return found


def _assigned(name: str, cap_mb: float | None) -> list[Bucket]:
    model, images = build(name, seed=0), torch.randn(4, *MODELS[name].sample_shape)
    return assign_module(model, cap_mb=cap_mb, order=arrival_order(model, lambda module: module(images).sum()))


def test_buckets_are_those_of_a_real_ddp(two_ranks: RankGroup) -> None:
    real = two_ranks.run(_real_buckets, CAPS)[0]
    mine = [[(bucket.size, sorted(bucket.parameters)) for bucket in _assigned(name, cap)] for name, cap in CAPS]
    assert mine == real
    assert max(len(sizes) for sizes in mine) > 2


def test_the_first_bucket_is_small_by_default_and_holds_the_last_layers() -> None:
    tensors = empty_tensors([(MIB,)] * 10)  # 4 MiB each
    buckets = assign(tensors)
    assert buckets[0] == Bucket((9,), 4 * MIB)
    assert [bucket.size // MIB for bucket in buckets] == [4, 28, 8]


def test_pytorch_1_4_sent_the_small_bucket_last() -> None:
    buckets = assign(empty_tensors([(MIB,)] * 10), rule="registered")
    assert [bucket.size // MIB for bucket in buckets] == [8, 28, 4]
    assert buckets[-1].parameters == (0,)


def test_every_gradient_is_in_exactly_one_bucket_of_every_published_network() -> None:
    for name in NETWORKS:
        tensors = empty_tensors([layer.shape for layer in layers(name)])
        places = sorted(place for bucket in assign(tensors) for place in bucket.parameters)
        assert places == list(range(len(tensors)))


def test_a_bucket_is_ready_with_its_last_gradient_and_not_before_the_one_in_front() -> None:
    buckets = [Bucket((3,), 4), Bucket((1, 2), 8), Bucket((0,), 4)]
    assert ready_shares(buckets, [1.0, 2.0, 3.0, 4.0]) == pytest.approx([0.4, 0.9, 1.0])
    assert ready_shares([Bucket((0,), 4), Bucket((1,), 4)], [1.0, 1.0]) == pytest.approx([1.0, 1.0])


def test_a_cap_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="bucket_cap_mb must be above 0, not 0"):
        assign(empty_tensors([(1,)]), cap_mb=0)
