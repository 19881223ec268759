"""What learners really answer in lesson 06, and what its checks tell them."""

from __future__ import annotations

from typing import Any

import pytest
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.lesson_checks.lesson_06 import changed_lines
from mgpu_utils.ranks import RankGroup

written = LearnerCell(
    "import copy\n"
    "import torch\n"
    "from torch.nn.functional import cross_entropy\n"
    "from torch.utils.data import DataLoader, DistributedSampler, Subset\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP"
).function

SINGLE = """
    def single_loop(model, dataset, device):
        loader = DataLoader(dataset, batch_size=64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        seen = 0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
            seen += len(labels)
        return seen
"""
LOADER = "loader = DataLoader(dataset, batch_size=64)"
SHARDED = "loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset, shuffle=False))"
SHUFFLED = SHARDED.replace(", shuffle=False", "")
LOOP = SINGLE.replace("single_loop", "ddp_loop")
WRAP = ("        seen = 0\n", "        model, seen = DDP(model), 0\n")
CUT = "images, labels = (t.to(device).chunk(world_size)[rank] for t in (images, labels))"
LOOPS_RIGHT = {
    "sampler, wrapped after the optimizer was made": LOOP.replace(LOADER, SHARDED).replace(*WRAP),
    "wrapped first": LOOP.replace(LOADER, f"model = DDP(model)\n        {SHARDED}"),
    "each batch cut by hand": LOOP.replace(*WRAP).replace("images, labels = images.to(device), labels.to(device)", CUT),
}
LOOPS_WRONG = {
    "unchanged": (LOOP, "each rank trained on all 640 images"),
    "wrapped only": (LOOP.replace(*WRAP), "each rank trained on all 640 images"),
    "sharded only": (LOOP.replace(LOADER, SHARDED), "the ranks end with different weights"),
    "64 on each rank": (
        LOOP.replace(*WRAP).replace(LOADER, SHARDED.replace("32", "64")),
        "work on 128 images together; the global batch has to stay 64",
    ),
    "16 on each rank": (LOOP.replace(*WRAP).replace(LOADER, SHARDED.replace("32", "16")), "a rank took 20 steps"),
    "shuffled": (LOOP.replace(*WRAP).replace(LOADER, SHUFFLED), "does something shuffle?"),
    "rate scaled": (
        LOOP.replace(*WRAP).replace(LOADER, SHARDED).replace("0.05", "0.1"),
        "a learning rate 2 times as large",
    ),
    "loss divided by the ranks": (
        LOOP.replace(*WRAP).replace(LOADER, SHARDED).replace(".backward()", ".div(world_size).backward()"),
        "a learning rate divided by 2",
    ),
    "a copy was trained": (
        LOOP.replace(LOADER, SHARDED).replace("loader =", "model = DDP(copy.deepcopy(model))\n        loader ="),
        "are still those it came with",
    ),
    "first half on every rank": (
        LOOP.replace(*WRAP).replace(LOADER, "loader = DataLoader(Subset(dataset, range(320)), batch_size=32)"),
        "not made of the images that one device takes first",
    ),
    "a quarter on each rank": (
        LOOP.replace(*WRAP).replace(LOADER, "loader = DataLoader(Subset(dataset, range(160)), batch_size=32)"),
        "trained on 320 images together",
    ),
    "no momentum": (
        LOOP.replace(*WRAP).replace(LOADER, SHARDED).replace(", momentum=0.9", ""),
        "differ from those of one device by up to",
    ),
    "nothing called": ("def ddp_loop(model, dataset, device):\n    return 640", "the model of rank 0 was never called"),
}


@pytest.mark.parametrize("code", LOOPS_RIGHT.values(), ids=LOOPS_RIGHT)
def test_right_loops_pass(code: str, two_ranks: RankGroup) -> None:
    two_ranks.run(written("def ready():\n    DDP(torch.nn.Linear(1, 1))"))
    card = check("06/ddp-loop", written(code), written(SINGLE), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("code", "words"), LOOPS_WRONG.values(), ids=LOOPS_WRONG)
def test_wrong_loops_are_told_what_is_wrong(code: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("06/ddp-loop", written(code), written(SINGLE), ranks=two_ranks), words)


def test_a_right_loop_with_many_changed_lines_is_told_their_number(two_ranks: RankGroup) -> None:
    longer = LOOPS_RIGHT["wrapped first"].replace("seen += len(labels)", "more = len(labels)\n            seen += more")
    longer = longer.replace("return seen", "a = 1\n        b = 2\n        c = 3\n        return seen + 0 * a * b * c")
    card = check("06/ddp-loop", written(longer), written(SINGLE), ranks=two_ranks)
    assert_wrong(card, "the weights are right, with 8 changed lines; 6 are enough")


def test_only_changed_lines_count_and_neither_comments_nor_the_name() -> None:
    commented = LOOP.replace("        seen = 0\n", "        # how many\n\n        seen = 0  # images\n")
    assert changed_lines(written(SINGLE), written(commented)) == 0
    assert changed_lines(written(SINGLE), written(LOOPS_RIGHT["wrapped first"])) == 2
    assert changed_lines(written(SINGLE), print) == 0


LOG_RIGHT = {
    "all_reduce": """
        def log(step, loss):
            mean = torch.tensor(loss)
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step} loss {mean.item() / world_size:.4f}")""",
    "gathered": """
        def log(step, loss):
            losses = [None] * world_size
            dist.all_gather_object(losses, loss)
            if rank == 0:
                print("step", step, "loss", sum(losses) / world_size)""",
    "the course's helper, last rank speaks": """
        def log(step, loss):
            from mgpu_utils.metrics import reduce_metrics
            mean = reduce_metrics({"loss": loss})["loss"]
            if rank == world_size - 1:
                print(f"loss {mean:.3f} at step {step}")""",
}
LOG_WRONG = {
    "every rank": (LOG_RIGHT["all_reduce"].replace("rank == 0", "True"), "ranks 0 and 1 printed"),
    "own loss": ("def log(step, loss):\n    if rank == 0:\n        print('step', step, 'loss', loss)", "its own shard"),
    "own loss divided": (
        "def log(step, loss):\n    if rank == 0:\n        print('step', step, 'loss', loss / world_size)",
        "nothing from the other ranks was added",
    ),
    "sum": (LOG_RIGHT["all_reduce"].replace(" / world_size", ""), "you printed their sum"),
    "no step": (LOG_RIGHT["all_reduce"].replace("step {step} ", ""), "is not in the line"),
    "silent": (LOG_RIGHT["all_reduce"].replace("print(", "str("), "no rank printed anything"),
    "two lines": (LOG_RIGHT["all_reduce"].replace("step {step} ", "step {step}\\n"), "printed 2 lines for one step"),
    "divided twice": (LOG_RIGHT["all_reduce"].replace(" / world_size", " / world_size / 2"), "their mean is not in it"),
}


@pytest.mark.parametrize("code", LOG_RIGHT.values(), ids=LOG_RIGHT)
def test_right_logs_pass(code: str, two_ranks: RankGroup) -> None:
    card = check("06/log-once", written(code), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("code", "words"), LOG_WRONG.values(), ids=LOG_WRONG)
def test_wrong_logs_are_told_what_is_wrong(code: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("06/log-once", written(code), ranks=two_ranks), words)


def test_a_log_of_three_ranks_is_checked_too(three_ranks: RankGroup) -> None:
    assert check("06/log-once", written(LOG_RIGHT["all_reduce"]), ranks=three_ranks).passed


def test_a_collective_under_a_condition_is_explained_and_the_ranks_work_again(
    two_ranks: RankGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpu_utils.lesson_checks.answers_on_ranks.PATIENCE", 2.0)
    stuck = """
        def log(step, loss):
            if rank == 0:
                mean = torch.tensor(loss)
                dist.all_reduce(mean)
                print("step", step, "loss", mean.item() / world_size)"""
    card = check("06/log-once", written(stuck), ranks=two_ranks)
    assert_wrong(card, "the ranks got stuck")
    assert "waits inside all_reduce" in str(card)
    assert two_ranks.run(lambda: 1) == [1, 1]


@pytest.mark.parametrize("answer", [{1, 3, 6}, [6, 3, 1], (1, 3, 6)])
def test_right_calls_pass(answer: Any) -> None:
    assert check("06/alone", answer).passed


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({1, 3}, "you left out 6"),
        ({1, 6}, "the plain module knows nothing of other ranks"),
        ({1, 2, 3, 6}, "call 2 would make the ranks wait"),
        ({1, 3, 4, 6}, "adds up the counts of all ranks"),
        ({1, 3, 5, 6}, "compares the names of all ranks"),
        ({7}, "a barrier is over when every rank has reached it"),
        (1, "you left out 3"),
        ({8}, "8 is none of them"),
        ({"print"}, "write the numbers of the calls"),
        (set(), "you left out 1"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(answer: Any, words: str) -> None:
    assert_wrong(check("06/alone", answer), words)


def test_every_exercise_has_hints_and_starts_unattempted() -> None:
    for name, answers in {"06/ddp-loop": [..., ...], "06/log-once": [...], "06/alone": [{...}]}.items():
        assert check(name, *answers).kind == "open"
        assert hint(name).kind == "hint"
        assert len({str(hint(name, number)) for number in (1, 2, 3)}) == 3
