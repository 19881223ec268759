"""Rank 0 validates while the others go on: fine with the plain module, explained with the wrapped one."""

from __future__ import annotations

import pytest

from mgpu_utils.rank_errors import RankError, RankTimeout
from mgpu_utils.ranks import RankGroup


def validate_on_rank_0(how: str) -> str:
    import torch

    from mgpu_utils.data import digits
    from mgpu_utils.strategies import DistributedDataParallel, SingleDevice
    from mgpu_utils.training import evaluate

    strategy = DistributedDataParallel()
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))
    model = strategy.wrap(flat)
    images = digits(train=False)[:8][0]

    def step() -> None:
        model.train()
        model(images).sum().backward()

    step()
    if strategy.is_main and how == "evaluate":
        assert evaluate(model, digits(train=False), strategy=SingleDevice(strategy.device))["count"] == 360
    if strategy.is_main and how == "wrapped":
        model.eval()
        with torch.no_grad():
            model(images), model(images)
    step()
    return "finished"


def test_evaluate_on_rank_0_alone_calls_no_collective_and_training_goes_on(two_ranks: RankGroup) -> None:
    assert two_ranks.run(validate_on_rank_0, "evaluate") == ["finished", "finished"]


def test_rank_0_alone_in_the_wrapped_module_ends_in_an_explanation_within_the_timeout(two_ranks: RankGroup) -> None:
    two_ranks.run(validate_on_rank_0, "evaluate")
    two_ranks.timeout = 5.0
    with pytest.raises((RankError, RankTimeout)) as caught:
        two_ranks.run(validate_on_rank_0, "wrapped")
    assert "collective" in str(caught.value)
