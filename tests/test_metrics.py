"""Metrics of all ranks: one mean for each name whatever the order, and one error for all when names differ."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from mgpu_utils.metrics import reduce_metrics
from mgpu_utils.rank_errors import RankError, RankTimeout
from mgpu_utils.ranks import RankGroup


def reduced(by_rank: list[dict[str, Any]], weights: list[float] | None = None) -> dict[str, float]:
    import torch.distributed as dist

    rank = dist.get_rank()
    return reduce_metrics(by_rank[rank], weights[rank] if weights else 1.0)


def counted(by_rank: list[dict[str, Any]]) -> list[str]:
    import torch.distributed as dist

    from mgpu_utils.traffic import Traffic

    with Traffic() as traffic:
        reduce_metrics(by_rank[dist.get_rank()])
    return [call.name for call in traffic.calls]


def one_by_one(by_rank: list[dict[str, float]]) -> dict[str, float]:
    """The obvious way, in the order in which each rank happens to hold its metrics."""
    import torch.distributed as dist

    found = dict(by_rank[dist.get_rank()])
    for name in found:
        value = torch.tensor(found[name])
        dist.all_reduce(value)
        found[name] = value.item() / dist.get_world_size()
    return found


def only_rank_0(by_rank: list[dict[str, float]]) -> object:
    import torch.distributed as dist

    return reduce_metrics(by_rank[0]) if dist.get_rank() == 0 else "went on"


def fails_on_all(ranks: RankGroup, by_rank: list[dict[str, Any]]) -> str:
    with pytest.raises(RankError) as caught:
        ranks.run(reduced, by_rank)
    assert [failure.rank for failure in caught.value.failures] == list(range(ranks.world_size))
    assert {failure.name for failure in caught.value.failures} == {"ValueError"}
    (message,) = {failure.message for failure in caught.value.failures}
    return message


def test_metrics_in_another_order_on_each_rank_are_averaged_by_name(two_ranks: RankGroup) -> None:
    by_rank = [{"loss": 1.0, "accuracy": 0.5}, {"accuracy": 0.7, "loss": 3.0}]
    results = two_ranks.run(reduced, by_rank)
    assert results[0] == results[1] == pytest.approx({"accuracy": 0.6, "loss": 2.0})
    assert list(results[1]) == ["accuracy", "loss"]
    # What the names protect from: the obvious way mixes a loss with an accuracy and says nothing.
    assert two_ranks.run(one_by_one, by_rank)[0]["loss"] == pytest.approx(0.85)


def test_weights_count_and_a_rank_of_weight_zero_counts_for_nothing(two_ranks: RankGroup) -> None:
    by_rank = [{"loss": 1.0}, {"loss": torch.tensor(4.0)}]
    assert two_ranks.run(reduced, by_rank, [15, 5])[0]["loss"] == pytest.approx(1.75)
    assert two_ranks.run(reduced, [{"loss": 1.0}, {"loss": math.nan}], [3, 0])[1]["loss"] == 1.0
    assert math.isnan(two_ranks.run(reduced, by_rank, [0, 0])[0]["loss"])


def test_all_values_travel_in_one_all_reduce(two_ranks: RankGroup) -> None:
    few, many = [{"a": 1.0}] * 2, [dict.fromkeys("abcdefgh", 1.0)] * 2
    for names in (few, many):
        assert two_ranks.run(counted, names)[0].count("all_reduce") == 1


def test_different_names_raise_on_every_rank_and_the_ranks_work_on(two_ranks: RankGroup) -> None:
    message = fails_on_all(two_ranks, [{"loss": 1.0, "accuracy": 0.5}, {"loss": 1.0}])
    assert "all have ['loss'], rank 0 has also ['accuracy']" in message
    message = fails_on_all(two_ranks, [{"loss": 1.0, "acc": 1.0}, {"loss": 1.0, "accuracy": 1.0}])
    assert "rank 0 has also ['acc'], rank 1 has also ['accuracy']" in message
    assert two_ranks.run(reduced, [{"loss": 1.0}, {"loss": 2.0}])[0] == {"loss": 1.5}


def test_a_value_that_is_no_number_on_one_rank_raises_on_every_rank(two_ranks: RankGroup) -> None:
    assert "on rank 1 'loss' is 'low', not one number" in fails_on_all(two_ranks, [{"loss": 1.0}, {"loss": "low"}])
    vector = torch.ones(2)
    assert "on rank 0 'loss' is a tensor of shape (2,)" in fails_on_all(two_ranks, [{"loss": vector}, {"loss": 1.0}])


def test_three_ranks_agree_too(three_ranks: RankGroup) -> None:
    assert three_ranks.run(reduced, [{"x": 1}, {"x": 2}, {"x": 6}])[2] == {"x": 3.0}
    assert "rank 2 has also ['y']" in fails_on_all(three_ranks, [{"x": 1}, {"x": 2}, {"x": 3, "y": 4}])


def test_a_rank_that_reduces_alone_is_named_within_the_timeout(two_ranks: RankGroup) -> None:
    two_ranks.timeout = 2.0
    with pytest.raises(RankTimeout, match="rank 0 waits inside all_gather_object") as caught:
        two_ranks.run(only_rank_0, [{"loss": 1.0}])
    assert "rank 1 has finished" in str(caught.value)


def test_one_process_gets_its_own_values_back() -> None:
    assert reduce_metrics({"b": 2, "a": torch.tensor(0.5)}, weight=7) == {"a": 0.5, "b": 2.0}
    with pytest.raises(ValueError, match="'a' is None"):
        reduce_metrics({"a": None})
