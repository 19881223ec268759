"""What learners answer in lesson 02, and what its checks tell them."""

from __future__ import annotations

import pytest
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.lesson_checks.lesson_02 import idle_slots
from mgpu_utils.ranks import RankGroup

written = LearnerCell("import torch\nfrom torch.nn.functional import cross_entropy").answer

CUT_RIGHT = {
    "slower stage": """
        return min(range(1, len(costs)), key=lambda k: max(sum(costs[:k]), sum(costs[k:])))""",
    "smallest difference": """
        best, found = None, None
        for k in range(1, len(costs)):
            difference = abs(sum(costs[:k]) - sum(costs[k:]))
            if best is None or difference <= best:
                best, found = difference, k
        return found""",
}
CUT_WRONG = {
    "half of the layers": ("return len(costs) // 2", "the same number of layers"),
    "first to reach half": (
        """
        done = 0
        for k, cost in enumerate(costs):
            done += cost
            if done >= sum(costs) / 2:
                return k + 1""",
        "leaves one stage without any layer",
    ),
    "number of the last layer": (
        "return min(range(1, len(costs)), key=lambda k: max(sum(costs[:k]), sum(costs[k:]))) - 1",
        "one layer more in the first stage",
    ),
    "faster stage": (
        "return max(range(1, len(costs)), key=lambda k: max(sum(costs[:k]), sum(costs[k:])))",
        "there is a better cut",
    ),
    "the time": (
        "return 1.0 * min(max(sum(costs[:k]), sum(costs[k:])) for k in range(1, len(costs)))",
        "the number of a layer is wanted",
    ),
    "both stages": ("return costs[:2], costs[2:]", "you returned a pair"),
    "no cut": ("return 0", "without any layer"),
    "outside": ("return len(costs) + 1", "there are the layers"),
    "printed": ("print(1)", "returned nothing"),
}


@pytest.mark.parametrize("lines", CUT_RIGHT.values(), ids=CUT_RIGHT)
def test_right_cuts_pass(lines: str) -> None:
    card = check("02/cut", written("costs", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), CUT_WRONG.values(), ids=CUT_WRONG)
def test_wrong_cuts_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("02/cut", written("costs", lines)), words)


BUBBLE_RIGHT = {
    "counting up": """
        m = 1
        while (stages - 1) / (m + stages - 1) > share + 1e-9:
            m += 1
        return m""",
    "solved for m": """
        import math
        return max(1, math.ceil((stages - 1) * (1 - share) / share - 1e-9))""",
}
BUBBLE_WRONG = {
    "idle over busy": (
        "m = 1\nwhile (stages - 1) / m > share + 1e-9:\n    m += 1\nreturn m",
        "compare them with all slots",
    ),
    "p for p - 1": (
        "m = 1\nwhile stages / (m + stages) > share + 1e-9:\n    m += 1\nreturn m",
        "starts after p - 1 slots, not p",
    ),
    "not rounded": ("return (stages - 1) * (1 - share) / share + 0.1", "micro-batches come whole"),
    "rounded down": ("return max(1, int((stages - 1) * (1 - share) / share))", "of the slots are empty"),
    "one too many": (
        "m = 2\nwhile (stages - 1) / (m + stages - 1) > share + 1e-9:\n    m += 1\nreturn m",
        "a smaller number is enough",
    ),
    "none": ("return 0", "at least one micro-batch"),
    "text": ("return '4'", "a whole number is wanted"),
    "printed": ("print(4)", "returned nothing"),
}


@pytest.mark.parametrize("lines", BUBBLE_RIGHT.values(), ids=BUBBLE_RIGHT)
def test_right_numbers_of_micro_batches_pass(lines: str) -> None:
    card = check("02/bubble", written("stages, share", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), BUBBLE_WRONG.values(), ids=BUBBLE_WRONG)
def test_wrong_numbers_of_micro_batches_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("02/bubble", written("stages, share", lines)), words)


@pytest.mark.parametrize(("depth", "micro_batches"), [(1, 3), (2, 1), (2, 4), (4, 8), (8, 3)])
def test_counted_slots_agree_with_the_formula_of_the_lesson(depth: int, micro_batches: int) -> None:
    assert idle_slots(depth, micro_batches) == pytest.approx((depth - 1) / (micro_batches + depth - 1))


TURNS = """
total = sum(len(piece) for piece in pieces)
for piece in pieces:
    hidden = receive().requires_grad_()
    loss = cross_entropy(stage(hidden), piece, reduction="sum") / total
    loss.backward()
    send_back(hidden.grad)
"""
TURNS_RIGHT = {
    "sum over total": TURNS,
    "weighted mean": TURNS.replace('piece, reduction="sum") / total', "piece) * (len(piece) / total)"),
    "autograd.grad": """
        total = sum(map(len, pieces))
        parameters = list(stage.parameters())
        for p in parameters:
            p.grad = torch.zeros_like(p)
        for piece in pieces:
            hidden = receive()
            hidden.requires_grad = True
            loss = cross_entropy(stage(hidden), piece, reduction="sum") / total
            grad, *rest = torch.autograd.grad(loss, [hidden, *parameters])
            for p, g in zip(parameters, rest):
                p.grad += g
            send_back(grad)""",
}
TURNS_WRONG = {
    "means added up": (TURNS.replace('piece, reduction="sum") / total', "piece)"), "the means were added up"),
    "mean of means": (
        TURNS.replace('piece, reduction="sum") / total', "piece) / len(pieces)"),
        "counts an image of a small micro-batch for more",
    ),
    "sums": (TURNS.replace(" / total", ""), "the mean over all of them is wanted"),
    "gradients cleared": (
        TURNS.replace("    loss.backward()", "    stage.zero_grad()\n    loss.backward()"),
        "only the last micro-batch",
    ),
    "activation sent back": (TURNS.replace("hidden.grad)", "hidden.detach())"), "rank 0 has not"),
    "no history": (TURNS.replace(".requires_grad_()", ""), "send_back was given None"),
    "nothing sent back": (TURNS.replace("    send_back(hidden.grad)\n", ""), "nothing was sent back"),
    "sent once": (TURNS.replace("    send_back(hidden.grad)", "send_back(hidden.grad)"), "1 of 4 gradients"),
    "one micro-batch only": (TURNS.replace("in pieces:\n    hidden", "in pieces[:1]:\n    hidden"), "only 1 of 4"),
    "received twice": (TURNS.replace("    hidden", "    receive()\n    hidden", 1), "receive() was called 5 times"),
    "wrong shape": (TURNS.replace("hidden.grad)", "hidden.grad[:1])"), "what was received had"),
    "never received": ("return stage", "receive() was never called"),
    "a mistake of its own": (TURNS.replace("len(piece) for", "len(peace) for"), "NameError"),
    "all forwards first": (
        """
        total = sum(len(piece) for piece in pieces)
        kept = []
        for piece in pieces:
            hidden = receive().requires_grad_()
            kept.append((hidden, cross_entropy(stage(hidden), piece, reduction="sum") / total))
        for hidden, loss in kept:
            loss.backward()
            send_back(hidden.grad)""",
        "it keeps up to 4 micro-batches",
    ),
}


@pytest.mark.parametrize("lines", TURNS_RIGHT.values(), ids=TURNS_RIGHT)
def test_right_last_stages_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("02/turns", written("stage, pieces, receive, send_back", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), TURNS_WRONG.values(), ids=TURNS_WRONG)
def test_wrong_last_stages_are_told_what_is_wrong_and_the_ranks_go_on(
    lines: str, words: str, two_ranks: RankGroup
) -> None:
    assert_wrong(check("02/turns", written("stage, pieces, receive, send_back", lines), ranks=two_ranks), words)
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_the_last_stage_runs_in_a_larger_group_too(three_ranks: RankGroup) -> None:
    assert check("02/turns", written("stage, pieces, receive, send_back", TURNS), ranks=three_ranks).passed


def test_a_last_stage_that_sends_by_itself_is_given_up_and_explained(
    two_ranks: RankGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpu_utils.lesson_checks.answers_on_ranks.PATIENCE", 2.0)
    lines = "import torch.distributed as dist\ndist.all_reduce(torch.ones(1))"
    card = check("02/turns", written("stage, pieces, receive, send_back", lines), ranks=two_ranks)
    assert_wrong(card, "only with `receive` and `send_back`")
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_a_last_stage_that_ends_its_rank_leaves_a_group_that_is_ready_again(two_ranks: RankGroup) -> None:
    card = check("02/turns", written("stage, pieces, receive, send_back", "import os\nos._exit(3)"), ranks=two_ranks)
    assert card.kind == "error", card
    said = " ".join(str(card).split())
    assert "rank 1 ended itself with exit code 3" in said
    assert "The ranks were restarted" in said
    assert "ranks.restart()" not in said
    assert two_ranks.run(lambda: 1) == [1, 1]


@pytest.mark.parametrize("name", ["02/cut", "02/bubble", "02/turns"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str, two_ranks: RankGroup) -> None:
    context = {"ranks": two_ranks} if name == "02/turns" else {}
    assert check(name, ..., **context).kind == "open"
    assert str(hint(name)) != str(hint(name))
