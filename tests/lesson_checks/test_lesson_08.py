"""What learners answer in lesson 08, what they are told, and the facts about losses that the lesson rests on."""

from __future__ import annotations

import pytest
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup

written = LearnerCell(
    "import torch\nimport torch.distributed as dist\nfrom torch.nn.functional import cross_entropy"
).answer

TOTAL = "total = torch.tensor(float(len(labels)), device=device)\ndist.all_reduce(total)\n"
UNEVEN_RIGHT = {
    "sum over the global count": TOTAL + "return cross_entropy(logits, labels, reduction='sum') * world_size / total",
    "own losses one by one, counts gathered": """
        counts = [None] * world_size
        dist.all_gather_object(counts, len(labels))
        losses = cross_entropy(logits, labels, reduction='none')
        return (losses / (sum(counts) / world_size)).sum()""",
}
UNEVEN_WRONG = {
    "plain mean": ("return cross_entropy(logits, labels)", "for 15 and 14 samples each rank's mean counts the same"),
    "mean scaled by the own count": (
        "return cross_entropy(logits, labels, reduction='sum') / len(labels)",
        "for 15 and 14 samples each rank's mean counts the same",
    ),
    "plain sum": ("return cross_entropy(logits, labels, reduction='sum')", "a sum of losses, which nobody has divided"),
    "forgot that DDP divides": (
        TOTAL + "return cross_entropy(logits, labels, reduction='sum') / total",
        "0.5 times that of one device: DDP averages over the ranks after you",
    ),
    "times world_size once too often": (
        "return cross_entropy(logits, labels) * world_size",
        "2 times that of one device: there is one `world_size` too many",
    ),
    "a fixed batch size": (
        "return cross_entropy(logits, labels, reduction='sum') * world_size / 64",
        "for 15 and 14 samples your gradient is 0.453 times",
    ),
    "combined and cut off": (
        "loss = cross_entropy(logits, labels).detach()\ndist.all_reduce(loss)\nreturn loss / world_size",
        "it is cut off from the logits",
    ),
    "a number": ("return cross_entropy(logits, labels).item()", "returned a float; DDP needs a tensor"),
    "one loss a sample": ("return cross_entropy(logits, labels, reduction='none')", "one number is wanted"),
    "no return": ("cross_entropy(logits, labels)", "on rank 0 your function returned nothing"),
    "wrong weighting": (
        "return cross_entropy(logits, labels) * (1.5 if rank == 0 else 0.5)",
        "differs from that of one device",
    ),
}


@pytest.mark.parametrize("lines", UNEVEN_RIGHT.values(), ids=UNEVEN_RIGHT)
def test_losses_right_for_uneven_shards_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("08/uneven", written("logits, labels", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), UNEVEN_WRONG.values(), ids=UNEVEN_WRONG)
def test_losses_wrong_for_uneven_shards_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("08/uneven", written("logits, labels", lines), ranks=two_ranks), words)


def test_the_uneven_loss_is_checked_on_three_ranks_too(three_ranks: RankGroup) -> None:
    right = written("logits, labels", UNEVEN_RIGHT["sum over the global count"])
    assert check("08/uneven", right, ranks=three_ranks).passed
    halved = written(
        "logits, labels", UNEVEN_RIGHT["sum over the global count"].replace("world_size / total", "2 / total")
    )
    assert_wrong(check("08/uneven", halved, ranks=three_ranks), "0.667 times that of one device")


PAIR = "pair = torch.stack([loss_sum.detach(), torch.tensor(float(count), device=device)])\n"
LOG_RIGHT = {
    "one all_reduce of two numbers": PAIR + "dist.all_reduce(pair)\nreturn (pair[0] / pair[1]).item()",
    "two all_reduces": """
        total, number = loss_sum.detach().clone(), torch.tensor(count, device=device)
        dist.all_reduce(total)
        dist.all_reduce(number)
        return float(total) / int(number)""",
    "gathered": """
        held = [None] * world_size
        dist.all_gather_object(held, (loss_sum.item(), count))
        return sum(total for total, _ in held) / sum(number for _, number in held)""",
}
LOG_WRONG = {
    "own mean": ("return loss_sum.item() / max(count, 1e-9)", "the mean of its own samples"),
    "mean of means": (
        "mean = loss_sum.detach() / count\ndist.all_reduce(mean)\nreturn (mean / world_size).item()",
        "the mean of the ranks' means",
    ),
    "sum": ("total = loss_sum.detach().clone()\ndist.all_reduce(total)\nreturn total.item()", "you returned the sum"),
    "divided by the ranks": (
        "total = loss_sum.detach().clone()\ndist.all_reduce(total)\nreturn total.item() / world_size",
        "divided by the number of ranks",
    ),
    "rank 0 only": (PAIR + "dist.reduce(pair, 0)\nreturn (pair[0] / pair[1]).item()", "rank 1 does not have the right"),
    "in place": (
        "number = torch.tensor(count, device=device)\ndist.all_reduce(loss_sum.data)\ndist.all_reduce(number)\n"
        "return (loss_sum / number).item()",
        "changed `loss_sum` itself on rank 0",
    ),
    "printed": (PAIR + "dist.all_reduce(pair)\nprint(pair[0] / pair[1])", "rank 0 returned nothing"),
    "both numbers": (PAIR + "dist.all_reduce(pair)\nreturn pair.tolist()", "a plain number is wanted"),
}


@pytest.mark.parametrize("lines", LOG_RIGHT.values(), ids=LOG_RIGHT)
def test_true_global_losses_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("08/log", written("loss_sum, count", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), LOG_WRONG.values(), ids=LOG_WRONG)
def test_wrong_global_losses_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("08/log", written("loss_sum, count", lines), ranks=two_ranks), words)


def test_means_over_equally_many_samples_are_not_enough(two_ranks: RankGroup) -> None:
    guarded = "mean = loss_sum.detach() / max(count, 1)\ndist.all_reduce(mean)\nreturn (mean / world_size).item()"
    assert_wrong(check("08/log", written("loss_sum, count", guarded), ranks=two_ranks), "samples do not count alike")
    unsafe = (
        "own = loss_sum.detach() / torch.tensor(count)\nweighted = own * count\nnumber = torch.tensor(count)\n"
        "dist.all_reduce(weighted)\ndist.all_reduce(number)\nreturn (weighted / number).item()"
    )
    assert_wrong(check("08/log", written("loss_sum, count", unsafe), ranks=two_ranks), "divided 0 by 0")


SUM = "loss = cross_entropy(logits, labels, weight=class_weights, reduction='sum')\n"
WEIGHTED_RIGHT = {
    "weights of the labels that count": SUM
    + "total = class_weights[labels[labels != -100]].sum()\ndist.all_reduce(total)\nreturn loss * world_size / total",
    "a weight of 0 for the ignored": """
        keep = labels != -100
        weights = class_weights[labels.clamp(min=0)] * keep
        losses = cross_entropy(logits, labels, reduction='none')
        total = weights.sum()
        dist.all_reduce(total)
        return (losses * weights).sum() / total * world_size""",
}
WEIGHTED_WRONG = {
    "weighted mean of the shard": (
        "return cross_entropy(logits, labels, weight=class_weights)",
        "each rank's mean counts the same",
    ),
    "divided by the number of labels": (
        SUM + "total = (labels != -100).sum()\ndist.all_reduce(total)\nreturn loss * world_size / total",
        "divided by how many labels count; one device divides by what they weigh",
    ),
    "weights forgotten": (
        "total = (labels != -100).sum()\ndist.all_reduce(total)\n"
        "return cross_entropy(logits, labels, reduction='sum') * world_size / total",
        "the class weights have no effect",
    ),
    "ignored labels counted": (
        SUM + "total = class_weights[labels.clamp(min=0)].sum()\ndist.all_reduce(total)\n"
        "return loss * world_size / total",
        "does what you divide by belong to this batch",
    ),
    "own weights only, by hand": (
        SUM + "return loss / class_weights[labels[labels != -100]].sum()",
        "for 8 and 30 labels that count each rank's mean counts the same",
    ),
    "world_size forgotten": (
        SUM + "total = class_weights[labels[labels != -100]].sum()\ndist.all_reduce(total)\nreturn loss / total",
        "DDP averages over the ranks after you",
    ),
}


@pytest.mark.parametrize("lines", WEIGHTED_RIGHT.values(), ids=WEIGHTED_RIGHT)
def test_right_weighted_losses_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("08/weighted", written("logits, labels, class_weights", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), WEIGHTED_WRONG.values(), ids=WEIGHTED_WRONG)
def test_wrong_weighted_losses_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("08/weighted", written("logits, labels, class_weights", lines), ranks=two_ranks), words)


def test_a_count_on_one_rank_only_puts_the_ranks_out_of_step_and_is_explained(two_ranks: RankGroup) -> None:
    stuck = written("logits, labels", "if rank == 0:\n    " + TOTAL.replace("\n", "\n    ") + "\nreturn logits.sum()")
    card = check("08/uneven", stuck, ranks=two_ranks)
    assert_wrong(card, "the ranks got out of step, and were restarted: ranks 0 and 1 do not match")
    assert_wrong(card, "rank 0 called all_reduce")
    assert two_ranks.run(lambda: 1) == [1, 1]


def gradient_ratios() -> dict[str, float]:
    """DDP's gradient of 8 samples divided by that of one device, as the lesson shows it; runs on a rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    from mgpu_utils.data import digits
    from mgpu_utils.models import digits_cnn

    images, labels = digits(train=True)[:8]

    def gradient(net: torch.nn.Module, mine: torch.Tensor, reduction: str) -> torch.Tensor:
        cross_entropy(net(images[mine]), labels[mine], reduction=reduction).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    found: dict[str, float] = {}
    for name, sizes, reduction in (("mean", [4, 4], "mean"), ("sum", [4, 4], "sum"), ("uneven", [6, 2], "mean")):
        mine = torch.arange(8).split(sizes)[dist.get_rank()]
        many = gradient(DistributedDataParallel(digits_cnn(seed=0)), mine, reduction)
        one = gradient(digits_cnn(seed=0), torch.arange(8), reduction)
        found[name] = float((many @ one) / (one @ one))
        found[f"{name} difference"] = float((many - one).abs().max())
    return found


def test_ddp_averages_means_halves_sums_and_misweighs_uneven_shards(two_ranks: RankGroup) -> None:
    for found in two_ranks.run(gradient_ratios):
        assert found["mean"] == pytest.approx(1.0, abs=1e-4)
        assert found["mean difference"] < 1e-5
        assert found["sum"] == pytest.approx(1 / 2, abs=1e-4)
        assert found["uneven difference"] > 0.05


@pytest.mark.parametrize("name", ["08/uneven", "08/log", "08/weighted"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    assert check(name, ...).kind == "open"
    assert hint(name).kind == "hint"
    assert str(hint(name)) != str(hint(name, 1))
