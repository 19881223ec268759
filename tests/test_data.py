"""Datasets, and the sampler which splits a global batch over ranks."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from mgpu_utils.data import CollateWithEmpty, ShardedBatchSampler, digits, split_sizes, synthetic_images


def test_digits_are_split_into_1437_and_360_the_same_way_each_time_with_all_classes() -> None:
    train, test = digits(train=True), digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    image, label = train[0]
    assert image.shape == (1, 8, 8)
    assert image.dtype == torch.float32
    assert label.dtype == torch.int64
    assert train.tensors[0].min() == 0
    assert train.tensors[0].max() == 1
    shares = train.tensors[1].bincount() / 1437 - test.tensors[1].bincount() / 360
    assert shares.abs().max() < 0.005
    together = {tuple(image.flatten().tolist()) for part in (train, test) for image, _ in part}
    assert len(together) == 1797, "an image is in both parts"
    assert train.tensors[1][:8].tolist() == [3, 9, 1, 3, 1, 9, 4, 4]


def test_synthetic_images_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = synthetic_images(5, shape=(3, 4, 4), classes=3, seed=7)
    torch.manual_seed(2)
    again, other = synthetic_images(5, (3, 4, 4), 3, seed=7), synthetic_images(5, (3, 4, 4), 3, seed=8)
    assert torch.equal(first.tensors[0], again.tensors[0])
    assert not torch.equal(first.tensors[0], other.tensors[0])
    assert first.tensors[0].shape == (5, 3, 4, 4)
    assert first.tensors[1].max() < 3
    with pytest.raises(ValueError, match="n=0"):
        synthetic_images(0)


def test_split_sizes_are_what_torch_scatters() -> None:
    assert split_sizes(9, 4) == [3, 3, 3]
    assert split_sizes(36, 7) == [6] * 6
    assert split_sizes(10, 4) == [3, 3, 3, 1]
    for batch in range(40):
        for devices in range(1, 9):
            assert split_sizes(batch, devices) == [len(part) for part in torch.zeros(batch).chunk(devices)]
    with pytest.raises(ValueError, match="devices >= 1"):
        split_sizes(4, 0)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [64, 69, 65, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_union_of_ranks_at_each_step_is_the_single_device_batch(world_size: int, length: int, drop_last: bool) -> None:
    def batches(rank: int, ranks: int) -> list[list[int]]:
        sampler = ShardedBatchSampler(length, 16, rank, ranks, shuffle=True, seed=3, drop_last=drop_last)
        sampler.set_epoch(2)
        assert len(sampler) == len(list(sampler))
        return list(sampler)

    single = batches(0, 1)
    shards = [batches(rank, world_size) for rank in range(world_size)]
    assert {len(shard) for shard in shards} == {len(single)}, "ranks take different numbers of steps"
    for step, batch in enumerate(single):
        pieces = [shard[step] for shard in shards]
        assert list(chain(*pieces)) == batch
        assert [len(piece) for piece in pieces if piece] == split_sizes(len(batch), world_size)
    seen = [index for batch in single for index in batch]
    assert sorted(seen) == sorted(set(seen))
    assert len(seen) == (length // 16 * 16 if drop_last else length)


def test_order_changes_with_the_epoch_and_with_the_seed_and_nothing_else() -> None:
    def order(epoch: int, seed: int = 0) -> list[list[int]]:
        sampler = ShardedBatchSampler(100, 10, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(1, seed=0) != order(0, seed=1)
    unshuffled = ShardedBatchSampler(100, 10)
    assert list(chain(*unshuffled)) == list(range(100))


def test_global_sizes_tell_every_rank_the_size_of_each_global_batch() -> None:
    assert ShardedBatchSampler(21, 8, 1, 3).global_sizes == [8, 8, 5]
    assert ShardedBatchSampler(21, 8, 1, 3, drop_last=True).global_sizes == [8, 8]
    assert ShardedBatchSampler(16, 8).global_sizes == [8, 8]


def test_sampler_refuses_what_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="dataset is empty"):
        ShardedBatchSampler(0, 4)
    with pytest.raises(ValueError, match="at least one sample, got 0"):
        ShardedBatchSampler(4, 0)
    with pytest.raises(ValueError, match="rank 2 is not one of the 2 ranks"):
        ShardedBatchSampler(4, 4, rank=2, world_size=2)


def test_a_batch_of_no_samples_has_the_shapes_and_types_of_the_dataset() -> None:
    images, labels = CollateWithEmpty(digits(train=True))([])
    assert images.shape == (0, 1, 8, 8)
    assert labels.shape == (0,)
    assert labels.dtype == torch.int64
    named = CollateWithEmpty([{"x": 1.0, "pair": (torch.ones(2), "word")}])([])  # type: ignore[arg-type]
    assert named["x"].shape == (0,)
    assert named["pair"][0].shape == (0, 2)
    assert len(named["pair"][1]) == 0


def test_changing_ones_own_digits_changes_nobody_elses() -> None:
    _, labels = digits(train=True)[:4]
    labels += 1
    assert not torch.equal(digits(train=True)[:4][1], labels)
