"""What learners answer in lesson 09, what they are told, and the facts about DDP that the lesson rests on."""

from __future__ import annotations

import pytest
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup

written = LearnerCell(
    "import torch\n"
    "import torch.distributed as dist\n"
    "from torch import nn\n"
    "from torch.nn.functional import cross_entropy"
).answer

START = """
    def average(parameter):
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
        parameter.register_post_accumulate_grad_hook(average)
"""
OWN_RIGHT = {
    "sum in each hook": START,
    "a hook that gives another gradient": """
        def averaged(gradient):
            total = gradient.clone()
            dist.all_reduce(total)
            return total / world_size

        for parameter in model.parameters():
            values = [parameter.detach().clone() for _ in range(world_size)]
            dist.all_gather(values, parameter.detach())
            with torch.no_grad():
                parameter.copy_(values[0])
            parameter.register_hook(averaged)
        return model""",
    "one bucket when the last gradient is there": """
        waiting = []

        def collect(parameter):
            waiting.append(parameter)
            if len(waiting) == len(parameters):
                bucket = torch.cat([p.grad.flatten() for p in parameters])
                dist.all_reduce(bucket)
                start = 0
                for p in parameters:
                    p.grad.copy_(bucket[start : start + p.numel()].view_as(p) / world_size)
                    start += p.numel()
                waiting.clear()

        parameters = list(model.parameters())
        for parameter in parameters:
            dist.broadcast(parameter.data, 0)
            parameter.register_post_accumulate_grad_hook(collect)""",
}
OWN_WRONG = {
    "no broadcast": (START.replace("dist.broadcast(parameter.data, src=0)", "pass"), "rank 1 are still its own"),
    "broadcast from rank 1": (START.replace("src=0", "src=1"), "the weights of rank 0 are those of rank 1"),
    "weights averaged": (
        START.replace(
            "dist.broadcast(parameter.data, src=0)",
            "dist.all_reduce(parameter.data); parameter.data /= world_size",
        ),
        "the weights of rank 0 are a mixture",
    ),
    "no hook": (START.split("parameter.register")[0], "the gradient of its own shard: nothing was added up"),
    "sum": (START.replace("parameter.grad /= world_size", "pass"), "2 times that of one device: a sum"),
    "averaged twice": (
        START.replace("dist.all_reduce", "parameter.grad /= world_size; dist.all_reduce"),
        "0.5 times that of one device: was it averaged twice",
    ),
    "matrices only": (
        START.replace("        parameter.register", "        if parameter.dim() > 1:\n            parameter.register"),
        "3 of 10 gradients of rank 0 are right, but not that of 0.bias",
    ),
    "the first backward only": (
        START.replace(
            "dist.all_reduce(parameter.grad)",
            "if hasattr(parameter, 'seen'):\n            return\n        parameter.seen = True\n"
            "        dist.all_reduce(parameter.grad)",
        ),
        "after the second backward rank 0 has the gradient of its own shard",
    ),
    "a step in the hook": (
        START.replace("parameter.grad /= world_size", "parameter.grad /= world_size; parameter.data -= parameter.grad"),
        "changed during backward()",
    ),
    "the real one": ("return nn.parallel.DistributedDataParallel(model)", "build yours without it"),
}  # fmt: skip


@pytest.mark.parametrize("lines", OWN_RIGHT.values(), ids=OWN_RIGHT)
def test_right_ddps_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("09/own-ddp", written("model", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), OWN_WRONG.values(), ids=OWN_WRONG)
def test_wrong_ddps_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("09/own-ddp", written("model", lines), ranks=two_ranks), words)


def test_an_own_ddp_is_checked_on_three_ranks_with_uneven_shards_too(three_ranks: RankGroup) -> None:
    assert check("09/own-ddp", written("model", START), ranks=three_ranks).passed
    halved = written("model", START.replace("/= world_size", "/= 2"))
    assert_wrong(check("09/own-ddp", halved, ranks=three_ranks), "1.5 times that of one device")


PARTS = "parts = list(zip(images.chunk(4), labels.chunk(4)))\n"
ACCUMULATE_RIGHT = {
    "three inside, one outside": PARTS
    + """
with net.no_sync():
    for part, target in parts[:3]:
        (cross_entropy(net(part), target) / 4).backward()
(cross_entropy(net(parts[3][0]), parts[3][1]) / 4).backward()""",
    "a switch and sums": PARTS
    + """
for number, (part, target) in enumerate(parts):
    net.require_backward_grad_sync = number == 3
    (cross_entropy(net(part), target, reduction='sum') / 32).backward()""",
}
ACCUMULATE_WRONG = {
    "every one is added up": (
        PARTS + "for part, target in parts:\n    (cross_entropy(net(part), target) / 4).backward()",
        "there were 4 all_reduces; one is wanted",
    ),
    "forward outside": (
        PARTS
        + """
from contextlib import nullcontext
for number, (part, target) in enumerate(parts):
    loss = cross_entropy(net(part), target) / 4
    with net.no_sync() if number < 3 else nullcontext():
        loss.backward()""",
        "What DDP does in backward() it decides in forward()",
    ),
    "all inside": (
        PARTS + "with net.no_sync():\n    for part, target in parts:\n"
        "        (cross_entropy(net(part), target) / 4).backward()",
        "there was no all_reduce at all",
    ),
    "not divided": (ACCUMULATE_RIGHT["three inside, one outside"].replace(" / 4", ""), "four means were added"),
    "whole shard at once": ("cross_entropy(net(images), labels).backward()", "the micro-batches had 32 samples"),
    "eight of four": (
        ACCUMULATE_RIGHT["three inside, one outside"].replace("chunk(4)", "chunk(8)").replace("parts[:3]", "parts[:7]")
        .replace("parts[3]", "parts[7]"),
        "the micro-batches had 4, 4, 4, 4, 4, 4, 4, 4 samples",
    ),
    "past DDP": (
        PARTS + "for part, target in parts:\n    (cross_entropy(net.module(part), target) / 4).backward()",
        "`net` was never called",
    ),
    "the last one forgotten": (
        PARTS + "with net.no_sync():\n    for part, target in parts[:3]:\n"
        "        (cross_entropy(net(part), target) / 4).backward()",
        "24 samples went through the model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", ACCUMULATE_RIGHT.values(), ids=ACCUMULATE_RIGHT)
def test_right_accumulations_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("09/accumulate", written("net, images, labels", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), ACCUMULATE_WRONG.values(), ids=ACCUMULATE_WRONG)
def test_wrong_accumulations_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("09/accumulate", written("net, images, labels", lines), ranks=two_ranks), words)


MINE = "mine = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}\n"
ASK = "held = [None] * world_size\ndist.all_gather_object(held, mine)\n"
UNUSED_RIGHT = {
    "sets": MINE + ASK + "return sorted(set.intersection(*held))",
    "a flag for each parameter": """
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        used = torch.tensor([model.get_parameter(name).grad is not None for name in names], device=device).long()
        dist.all_reduce(used)
        return sorted(name for name, count in zip(names, used.tolist()) if count == 0)""",
}
UNUSED_WRONG = {
    "own list": (MINE + "return sorted(mine)", "rank 0 names other.bias, which another rank has used"),
    "union": (MINE + ASK + "return sorted(set.union(*held))", "which another rank has used"),
    "frozen ones too": (
        MINE.replace("p.requires_grad and ", "") + ASK + "return sorted(set.intersection(*held))",
        "frozen.bias is frozen",
    ),
    "gradient of 0": (
        MINE.replace("p.grad is None", "(p.grad is None or not p.grad.any())") + ASK
        + "return sorted(set.intersection(*held))",
        "silent.bias was used: its gradient is 0",
    ),
    "the used ones": (
        MINE.replace("is None", "is not None") + ASK + "return sorted(set.intersection(*held))",
        "silent.bias was used",
    ),
    "not sorted": (
        MINE + ASK + "return sorted(set.intersection(*held), reverse=True)", "they have to be a sorted list"
    ),
    "a number": (MINE + ASK + "return len(set.intersection(*held))", "a list of names is wanted"),
    "none": ("return []", "misses nobody.bias"),
    "no return": (MINE + ASK, "returned nothing"),
}  # fmt: skip


@pytest.mark.parametrize("lines", UNUSED_RIGHT.values(), ids=UNUSED_RIGHT)
def test_right_lists_of_unused_parameters_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("09/unused", written("model", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), UNUSED_WRONG.values(), ids=UNUSED_WRONG)
def test_wrong_lists_of_unused_parameters_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("09/unused", written("model", lines), ranks=two_ranks), words)


def all_reduces_of_four_micro_batches(forward_inside: bool) -> tuple[int, float]:
    """How many all-reduces ran, and how far the gradient is from that of one batch; runs on a rank."""
    from contextlib import nullcontext

    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    from mgpu_utils.data import digits
    from mgpu_utils.models import digits_cnn
    from mgpu_utils.traffic import Traffic

    images, labels = digits(train=True)[:64]
    x, y = images.chunk(2)[dist.get_rank()], labels.chunk(2)[dist.get_rank()]
    net, one = DistributedDataParallel(digits_cnn(seed=0)), digits_cnn(seed=0)
    with Traffic() as traffic:
        for number, (part, target) in enumerate(zip(x.chunk(4), y.chunk(4), strict=True)):
            accumulating = number < 3
            with net.no_sync() if accumulating and forward_inside else nullcontext():
                loss = cross_entropy(net(part), target) / 4
            with net.no_sync() if accumulating else nullcontext():
                loss.backward()
    cross_entropy(one(images), labels).backward()
    pairs = zip(net.parameters(), one.parameters(), strict=True)
    error = max(float((p.grad - q.grad).abs().max()) for p, q in pairs if p.grad is not None and q.grad is not None)
    return sum(call.name == "all_reduce" for call in traffic.calls), error


def test_no_sync_works_around_forward_and_backward_only(two_ranks: RankGroup) -> None:
    for count, error in two_ranks.run(all_reduces_of_four_micro_batches, True):
        assert count == 1
        assert error < 1e-5
    for count, error in two_ranks.run(all_reduces_of_four_micro_batches, False):
        assert count == 4
        assert error < 1e-5


@pytest.mark.parametrize("name", ["09/own-ddp", "09/accumulate", "09/unused"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    assert check(name, ...).kind == "open"
    assert hint(name).kind == "hint"
    assert str(hint(name)) != str(hint(name, 1))
