"""Unequal numbers of steps are found before the epoch, on every rank, and the ranks go on working."""

from __future__ import annotations

import pytest

from mgpu_utils.agreement import require_equal_steps, values_on_ranks
from mgpu_utils.rank_errors import RankError, RankTimeout
from mgpu_utils.ranks import RankGroup


def steps_by_rank(counts: list[int]) -> int:
    import torch.distributed as dist

    return require_equal_steps([None] * counts[dist.get_rank()])


def train_unequal(counts: list[int], joined: bool) -> int:
    from contextlib import nullcontext

    import torch
    import torch.distributed as dist

    from mgpu_utils.models import digits_cnn

    model = torch.nn.parallel.DistributedDataParallel(digits_cnn(seed=0))
    done = 0
    with model.join() if joined else nullcontext():
        for _ in range(counts[dist.get_rank()]):
            model(torch.ones(4, 1, 8, 8)).sum().backward()
            done += 1
    return done


def test_equal_numbers_of_steps_are_returned(two_ranks: RankGroup) -> None:
    assert two_ranks.run(steps_by_rank, [4, 4]) == [4, 4]


def test_unequal_numbers_of_steps_raise_on_every_rank_and_the_ranks_work_on(two_ranks: RankGroup) -> None:
    with pytest.raises(RankError) as caught:
        two_ranks.run(steps_by_rank, [3, 5])
    assert [failure.rank for failure in caught.value.failures] == [0, 1]
    assert {failure.name for failure in caught.value.failures} == {"ValueError"}
    for failure in caught.value.failures:
        assert "rank 0 takes 3, rank 1 takes 5" in failure.message
        assert "After step 3" in failure.message
    assert two_ranks.run(steps_by_rank, [2, 2]) == [2, 2]


def test_three_ranks_are_named_one_by_one(three_ranks: RankGroup) -> None:
    with pytest.raises(RankError, match="rank 0 takes 2, rank 1 takes 2, rank 2 takes 1"):
        three_ranks.run(steps_by_rank, [2, 2, 1])


def test_join_lets_a_rank_take_more_steps_than_the_other(two_ranks: RankGroup) -> None:
    assert two_ranks.run(train_unequal, [3, 5], True) == [3, 5]


def test_without_join_unequal_steps_end_in_an_explanation_within_the_timeout(two_ranks: RankGroup) -> None:
    two_ranks.run(train_unequal, [1, 1], False)
    two_ranks.timeout = 3.0
    with pytest.raises((RankTimeout, RankError)) as caught:
        two_ranks.run(train_unequal, [3, 5], False)
    assert "rank 1" in str(caught.value).casefold()


def test_one_process_agrees_with_itself() -> None:
    assert values_on_ranks("here") == ["here"]
    assert require_equal_steps(7) == 7
    assert require_equal_steps([1, 2, 3]) == 3
