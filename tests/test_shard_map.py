"""A shard map tells and draws who loads what; PyTorch's sampler repeats or drops where the course's loader does not."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader, DistributedSampler

from mgpu_utils.data import ShardedBatchSampler
from mgpu_utils.shard_map import ShardMap


def of_torch(samples: int, ranks: int, drop_last: bool = False) -> ShardMap:
    """What `DistributedSampler` deals out, in batches of 4 a rank."""
    numbers = list(range(samples))
    samplers = [
        DistributedSampler(numbers, num_replicas=ranks, rank=rank, shuffle=False, drop_last=drop_last)  # type: ignore[arg-type]
        for rank in range(ranks)
    ]
    return ShardMap([list(DataLoader(numbers, batch_size=4, sampler=s)) for s in samplers], samples)  # type: ignore[arg-type]


def test_it_knows_what_is_repeated_and_what_is_missing() -> None:
    shards = ShardMap([[[2, 1], [4, 4]], [[2, 6], []]], samples=7)
    assert shards.repeated == [2, 4]
    assert shards.missing == [0, 3, 5]
    assert (shards.world_size, shards.steps, len(shards.visits)) == (2, 2, 6)


def test_the_later_visit_is_the_repeat_by_step_then_place_then_rank() -> None:
    shards = ShardMap([[[1], [0]], [[0], [1]]], samples=2)
    assert [(v.rank, v.step, v.sample) for v in shards.visits if v.again] == [(0, 1, 0), (1, 1, 1)]
    side_by_side = ShardMap([[[0, 1]], [[0, 1]]], samples=2)
    assert {v.rank for v in side_by_side.visits if v.again} == {1}


def test_its_text_lists_every_batch_of_every_rank() -> None:
    assert str(of_torch(21, 2)).splitlines() == [
        "21 samples, 2 ranks, 22 visits",
        "rank 0: [0 2 4 6]  [8 10 12 14]  [16 18 20]",
        "rank 1: [1 3 5 7]  [9 11 13 15]  [17 19 0]",
        "more than once: 0",
        "never:          none",
    ]
    many = ShardMap([[list(range(30))], [list(range(30))]], samples=30)
    assert "10, 11, ... (30 samples)" in str(many)


def test_it_draws_itself_with_its_words_and_leaves_no_figure_open() -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    before = plt.get_fignums()
    InteractiveShell.instance()
    try:
        with capture_output() as shown:
            of_torch(21, 2)._ipython_display_()
    finally:
        InteractiveShell.clear_instance()
    picture, words = shown.outputs
    assert picture.data["image/png"].startswith("iVBORw0KGgo")
    assert picture.data["text/plain"].startswith("21 samples, 2 ranks")
    assert "never loaded" in picture.metadata["image/png"]["alt"]
    assert "never loaded" in words.data["text/html"]
    assert plt.get_fignums() == before


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_torchs_sampler_pads_21_samples_and_with_drop_last_leaves_some_out(ranks: int) -> None:
    padding = -21 % ranks
    assert of_torch(21, ranks).repeated == list(range(padding))
    assert of_torch(21, ranks).missing == []
    dropped = of_torch(21, ranks, drop_last=True)
    assert len(dropped.missing) == 21 % ranks
    assert dropped.repeated == []


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_the_courses_sampler_visits_each_of_21_samples_once_for_every_world_size(ranks: int) -> None:
    shards = ShardMap([list(ShardedBatchSampler(21, 8, rank, ranks)) for rank in range(ranks)], 21)
    assert (len(shards.visits), shards.repeated, shards.missing) == (21, [], [])
    assert len({len(steps) for steps in shards.batches}) == 1, "ranks take different numbers of steps"
    counted = [visit.sample for visit in shards.visits]
    right_on_first_only = sum(sample == 0 for sample in counted) / len(counted)
    assert right_on_first_only == pytest.approx(1 / 21)


def test_senseless_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="sample 5 is not one of the 5 samples"):
        ShardMap([[[5]]], samples=5)
    with pytest.raises(ValueError, match="at least one rank"):
        ShardMap([], samples=5)
