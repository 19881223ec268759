"""The comparison of gradients over ranks names what differs and what no loss has used."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mgpu_utils.gradient_agreement import GradientAgreement, gradient_of
from mgpu_utils.ranks import RankGroup


def after_one_step(uses_both: str, **options: bool) -> tuple[GradientAgreement, str]:
    """One DDP step of a model with layers `a` and `b`; then a second forward. Runs on a rank."""
    import torch.distributed as dist

    from mgpu_utils.gradient_agreement import compare_gradients

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
            return self.a(x) + self.b(x) if both else self.a(x)

    rank = dist.get_rank()
    net = nn.parallel.DistributedDataParallel(Pair(), **options)
    both = {"every": True, "none": False, "rank 1": rank == 1}[uses_both]
    x = torch.full((3, 4), 1.0 + rank)
    net(x, both).square().sum().backward()
    agreement = compare_gradients(net)
    try:
        net(x, both)
    except RuntimeError as error:
        return agreement, str(error)
    return agreement, ""


def test_an_unused_parameter_lets_gradients_differ_silently_and_is_named_a_step_before_the_error(
    two_ranks: RankGroup,
) -> None:
    for agreement, error in two_ranks.run(after_one_step, "none"):
        assert not agreement.agree
        assert agreement.differing == ("a.weight", "a.bias")
        assert agreement.unused == {"b.weight": (0, 1), "b.bias": (0, 1)}
        assert "2 of 4 gradients differ between the ranks: a.weight, a.bias" in str(agreement)
        assert "no gradient on any rank: b.weight, b.bias" in str(agreement)
        assert "Expected to have finished reduction" in error


def test_looking_for_unused_parameters_makes_the_ranks_agree(two_ranks: RankGroup) -> None:
    for agreement, error in two_ranks.run(after_one_step, "none", find_unused_parameters=True):
        assert agreement.agree
        assert set(agreement.unused) == {"b.weight", "b.bias"}
        assert str(agreement).startswith("the gradients are the same on 2 ranks\nno gradient on any rank")
        assert error == ""
    for agreement, _ in two_ranks.run(after_one_step, "rank 1", find_unused_parameters=True):
        assert agreement.agree
        assert agreement.unused == {}


def test_gradients_of_a_model_that_uses_everything_agree(two_ranks: RankGroup) -> None:
    for agreement, error in two_ranks.run(after_one_step, "every"):
        assert str(agreement) == "all 4 gradients are the same on 2 ranks"
        assert error == ""


def of_a_plain_model() -> GradientAgreement:
    import torch.distributed as dist

    from mgpu_utils.gradient_agreement import compare_gradients

    net = nn.ModuleDict({name: nn.Linear(2, 1) for name in ("left", "right", "frozen")})
    net["frozen"].requires_grad_(False)
    net["left" if dist.get_rank() == 0 else "right"](torch.ones(1, 2)).sum().backward()
    return compare_gradients(net)


def test_a_plain_model_names_the_rank_that_did_not_use_a_parameter(two_ranks: RankGroup) -> None:
    for agreement in two_ranks.run(of_a_plain_model):
        assert agreement.parameters == 4
        assert agreement.unused["left.weight"] == (1,)
        assert agreement.unused["right.bias"] == (0,)
        assert "no gradient on rank 1: left.weight, left.bias" in str(agreement)
        assert "frozen" not in str(agreement)


def test_all_gradients_as_one_tensor() -> None:
    net = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"0\.weight has no gradient"):
        gradient_of(net)
    net[0].requires_grad_(False)
    net(torch.tensor([[1.0, 2.0]])).sum().backward()
    flat = gradient_of(net)
    assert flat.shape == (2,)
    assert flat[1] == 1
    assert not flat.requires_grad


@pytest.mark.parametrize(("count", "words"), [(8, "p7"), (10, "p7 and 2 more")])
def test_long_lists_are_shortened(count: int, words: str) -> None:
    names = tuple(f"p{number}" for number in range(count))
    assert words in str(GradientAgreement(2, count, names, {}))
