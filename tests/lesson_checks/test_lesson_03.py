"""What learners answer in lesson 03, what the checks tell them, and the counts that the lesson rests on."""

from __future__ import annotations

from typing import Any

import pytest
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup

written = LearnerCell("import torch\nfrom torch.utils.data import DataLoader, DistributedSampler, Subset").answer

MISSING = "missing = [n for n in range(samples) if not any(n in shard for shard in shards)]\n"
FLAT = "flat = [n for shard in shards for n in shard]\n"
AUDIT_RIGHT = {
    "sets and counts": FLAT
    + "return sorted(set(range(samples)) - set(flat)), sorted({n for n in flat if flat.count(n) > 1})",
    "a counter": "from collections import Counter\n"
    + FLAT
    + "seen, all = Counter(flat), range(samples)\n"
    + "return [n for n in all if not seen[n]], [n for n in all if seen[n] > 1]",
    "with torch": FLAT
    + "c = torch.bincount(torch.tensor(flat), minlength=samples)\n"
    + "return (c == 0).nonzero()[:, 0], (c > 1).nonzero()[:, 0]",
    "two sets": FLAT + "return set(range(samples)) - set(flat), {n for n in flat if flat.count(n) > 1}",
}
AUDIT_WRONG = {
    "how many": (FLAT + "return samples - len(set(flat)), len(flat) - len(set(flat))", "not how many"),
    "shards compared as sets": (
        MISSING + "return missing, sorted(set(shards[0]) & set(shards[1]))",
        "twice on the same rank",
    ),
    "named at each visit": (
        MISSING + FLAT + "return missing, sorted(n for n in flat if flat.count(n) > 1)",
        "name one more than once",
    ),
    "counted from 1": (
        FLAT + "return sorted(set(range(1, samples + 1)) - set(flat)), sorted({n for n in flat if flat.count(n) > 1})",
        "the samples have the numbers 0 to 5",
    ),
    "only the last forgotten": (
        FLAT + "return sorted(set(range(samples - 1)) - set(flat)), sorted({n for n in flat if flat.count(n) > 1})",
        "your missing samples lack",
    ),
    "changed places": (
        MISSING + FLAT + "return sorted({n for n in flat if flat.count(n) > 1}), missing",
        "changed places",
    ),
    "not sorted": (
        MISSING + FLAT + "return missing, sorted({n for n in flat if flat.count(n) > 1})[::-1]",
        "are right, but not sorted",
    ),
    "no repeats looked for": (MISSING + "return missing, []", "your repeated samples lack"),
    "one list": (MISSING + "return missing", "two lists are wanted"),
    "no return": (MISSING, "returned nothing"),
    "everything repeated": (MISSING + FLAT + "return missing, sorted(set(flat))", "you call sample 0 repeated"),
}


@pytest.mark.parametrize("lines", AUDIT_RIGHT.values(), ids=AUDIT_RIGHT)
def test_right_audits_pass(lines: str) -> None:
    card = check("03/audit", written("audit(shards, samples)", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), AUDIT_WRONG.values(), ids=AUDIT_WRONG)
def test_wrong_audits_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("03/audit", written("audit(shards, samples)", lines)), words)


WORKERS_RIGHT = {
    "rounded up": "return -(-load_ms // step_ms)",
    "ceil": "import math\nreturn math.ceil(load_ms / step_ms)",
    "searched": "n = 1\nwhile load_ms / n > step_ms:\n    n += 1\nreturn n",
    "as a float": "import math\nreturn float(math.ceil(load_ms / step_ms))",
}
WORKERS_WRONG = {
    "rounded down": ("return load_ms // step_ms", "a batch is ready every 12.5 ms, and the device waits"),
    "rounded": ("return round(load_ms / step_ms)", "and the device waits"),
    "one more to be safe": ("return load_ms // step_ms + 1", "one fewer is too"),
    "the notebook helps": ("return -(-load_ms // step_ms) - 1", "the device waits"),
    "none for quick loads": (
        "return 0 if load_ms <= step_ms else -(-load_ms // step_ms)",
        "then the loop that trains loads as well",
    ),
    "not rounded": ("return load_ms / step_ms", "workers come whole"),
    "the other way": ("return -(-step_ms // load_ms)", "the device waits"),
    "as text": ("return '3'", "a whole number is wanted"),
    "no return": ("load_ms / step_ms", "returned nothing"),
}


@pytest.mark.parametrize("lines", WORKERS_RIGHT.values(), ids=WORKERS_RIGHT)
def test_right_numbers_of_workers_pass(lines: str) -> None:
    card = check("03/workers", written("workers_needed(load_ms, step_ms)", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), WORKERS_WRONG.values(), ids=WORKERS_WRONG)
def test_wrong_numbers_of_workers_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("03/workers", written("workers_needed(load_ms, step_ms)", lines)), words)


COUNT = """
counts = torch.zeros(2, device=device)
for images, labels in loader:
    hits = model(images.to(device)).argmax(dim=1) == labels.to(device)
    counts += torch.tensor([hits.sum(), len(hits)], device=device)
"""
PADDED = "loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))\n" + COUNT
EXACT = "loader = DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), batch_size=8)\n" + COUNT
SHARE = "return (counts[0] / counts[1]).item()\n"
ACCURACY_RIGHT = {
    "shards without padding": EXACT + "dist.all_reduce(counts)\n" + SHARE,
    "padding dropped": PADDED.replace("sampler=DistributedSampler(dataset, shuffle=False)", "sampler=mine").replace(
        "loader =",
        "s = list(DistributedSampler(dataset, shuffle=False))\n"
        "mine = [n for turn, n in enumerate(s) if turn * world_size + rank < len(dataset)]\nloader =",
        1,
    )
    + "dist.all_reduce(counts)\n"
    + SHARE,
    "the course's loader": "loader = mgpu.DistributedDataParallel().loader(dataset, 64)\n"
    + COUNT
    + "dist.all_reduce(counts)\nreturn counts[0] / counts[1]",
    "the course's evaluation": "s = mgpu.DistributedDataParallel()\n"
    "return mgpu.evaluate(model, dataset, strategy=s)['accuracy']",
    "gathered by sample": EXACT
    + "got = [None] * world_size\ndist.all_gather_object(got, counts.tolist())\n"
    + "return sum(g[0] for g in got) / sum(g[1] for g in got)",
    "every rank sees all": "loader = DataLoader(dataset, batch_size=8)\n" + COUNT + SHARE,
}
ACCURACY_WRONG = {
    "padding counted": (
        PADDED + "dist.all_reduce(counts)\n" + SHARE,
        "you counted 22 samples: the padding is still in",
    ),
    "own shard only": (PADDED + SHARE, "each rank knows its own shard only"),
    "mean of the ranks": (
        EXACT + "mine = counts[0] / counts[1].clamp(min=1)\ndist.all_reduce(mine)\nreturn (mine / world_size).item()",
        "you averaged the ranks' accuracies",
    ),
    "the rest dropped": (
        PADDED.replace("shuffle=False", "shuffle=False, drop_last=True") + "dist.all_reduce(counts)\n" + SHARE,
        "you counted 20 samples",
    ),
    "how many": (EXACT + "dist.all_reduce(counts)\nreturn counts[0].item()", "you returned how many are right"),
    "rank 0 only": (
        EXACT + "dist.reduce(counts, 0)\nreturn (counts[0] / counts[1]).item() if rank == 0 else 0.5",
        "all need the same number",
    ),
    "printed": (EXACT + "dist.all_reduce(counts)\nprint(counts[0] / counts[1])", "returned nothing"),
    "divided before adding": (
        EXACT + "mine = counts[0] / counts[1]\ndist.all_reduce(mine)\nreturn (mine / world_size).item()",
        "averaged the ranks' accuracies",
    ),
}


@pytest.mark.parametrize("lines", ACCURACY_RIGHT.values(), ids=ACCURACY_RIGHT)
def test_right_accuracies_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("03/accuracy", written("exact_accuracy(model, dataset)", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), ACCURACY_WRONG.values(), ids=ACCURACY_WRONG)
def test_wrong_accuracies_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("03/accuracy", written("exact_accuracy(model, dataset)", lines), ranks=two_ranks), words)


def test_three_ranks_find_the_exact_accuracy_too(three_ranks: RankGroup) -> None:
    right = written("exact_accuracy(model, dataset)", ACCURACY_RIGHT["shards without padding"])
    assert check("03/accuracy", right, ranks=three_ranks).passed
    padded = written("exact_accuracy(model, dataset)", ACCURACY_WRONG["padding counted"][0])
    assert_wrong(check("03/accuracy", padded, ranks=three_ranks), "you counted 33 samples")


def test_an_answer_that_freezes_the_ranks_is_explained_and_the_ranks_work_again(
    two_ranks: RankGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpu_utils.lesson_checks.answers_on_ranks.PATIENCE", 2.0)
    lines = EXACT + "if rank == 0:\n    dist.all_reduce(counts)\n" + SHARE
    card = check("03/accuracy", written("exact_accuracy(model, dataset)", lines), ranks=two_ranks)
    assert_wrong(card, "the ranks got stuck")
    assert "waits inside all_reduce" in " ".join(str(card).split())
    assert two_ranks.timeout == 60.0
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_after_an_error_on_one_rank_the_group_can_be_used_again(two_ranks: RankGroup) -> None:
    lines = EXACT + "if rank == 1:\n    raise ValueError('mine')\ndist.all_reduce(counts)\n" + SHARE
    card = check("03/accuracy", written("exact_accuracy(model, dataset)", lines), ranks=two_ranks)
    assert card.kind == "error"
    assert "mine" in str(card)
    assert two_ranks.run(lambda: 1) == [1, 1]


@pytest.mark.parametrize("name", ["03/audit", "03/workers", "03/accuracy"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    assert check(name, ...).kind == "open"
    assert str(hint(name)) != str(hint(name))


def test_padding_counts_22_of_21_samples_and_the_courses_loader_counts_21(two_ranks: RankGroup) -> None:
    def counted(padded: bool) -> list[int]:
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler

        import mgpu_utils as mgpu

        numbers: Any = range(21)
        if padded:
            loader = DataLoader(numbers, batch_size=4, sampler=DistributedSampler(numbers, shuffle=False))
        else:
            loader = mgpu.DistributedDataParallel().loader(numbers, 8)
        counts = sum(torch.tensor([(batch == 0).sum(), len(batch)]) for batch in loader)
        assert isinstance(counts, torch.Tensor)
        dist.all_reduce(counts)
        return [int(number) for number in counts]

    assert two_ranks.run(counted, True) == [[2, 22], [2, 22]]
    assert two_ranks.run(counted, False) == [[1, 21], [1, 21]]


def test_without_set_epoch_a_rank_meets_half_of_the_data_and_the_courses_loop_deals_anew(two_ranks: RankGroup) -> None:
    def met(how: str) -> tuple[list[list[int]], int]:
        from torch.utils.data import DistributedSampler

        import mgpu_utils as mgpu

        numbers: Any = range(100)
        sampler: Any = DistributedSampler(numbers, shuffle=True)
        loader = mgpu.DistributedDataParallel().loader(numbers, 10, shuffle=True)
        orders = []
        for epoch in range(4):
            if how == "set_epoch":
                sampler.set_epoch(epoch)
            if how == "course":
                loader.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]
            orders.append([int(n) for batch in loader for n in batch] if how == "course" else list(sampler))
        return orders, len({n for order in orders for n in order})

    forgotten, told, course = (two_ranks.run(met, how) for how in ("forgotten", "set_epoch", "course"))
    for orders, count in forgotten:
        assert all(order == orders[0] for order in orders)
        assert count == 50
    for ranks in (told, course):
        for orders, count in ranks:
            assert len({tuple(order) for order in orders}) == 4
            assert count > 85
        for epoch in range(4):
            assert sorted(ranks[0][0][epoch] + ranks[1][0][epoch]) == list(range(100))
