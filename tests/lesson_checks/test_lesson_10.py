"""Lesson 10: what learners really answer, and what the checks tell them."""

from __future__ import annotations

import pytest
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup

written = LearnerCell("import torch\nfrom itertools import islice\nimport torch.distributed as dist").answer

# One step with scaler and clipping.

UPDATE = "model, optimizer, scaler, loss, max_norm"
SCALED = "optimizer.zero_grad()\nscaler.scale(loss).backward()\n"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
UNSCALE, STEP, NEXT = "scaler.unscale_(optimizer)\n", "scaler.step(optimizer)\n", "scaler.update()\n"
UPDATE_RIGHT = {
    "in order": SCALED + UNSCALE + CLIP + STEP + NEXT,
    "clipped by hand": SCALED
    + UNSCALE
    + """
norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
if norm > max_norm:
    for p in model.parameters():
        p.grad.mul_(max_norm / norm)
"""
    + STEP
    + NEXT,
    "scaled limit, no unscale": SCALED + CLIP.replace("max_norm)", "max_norm * scaler.get_scale())") + STEP + NEXT,
}
UPDATE_WRONG = {
    "clipped before unscaling": (SCALED + CLIP + UNSCALE + STEP + NEXT, "clipped while they were still 64 times"),
    "never unscaled by hand": (SCALED + CLIP + STEP + NEXT, "clipped while they were still 64 times"),
    "no clipping": (SCALED + STEP + NEXT, "steps without clipping"),
    "clipped after the step": (SCALED + UNSCALE + STEP + CLIP + NEXT, "steps without clipping"),
    "clipped before backward": (
        "optimizer.zero_grad()\n" + CLIP + "scaler.scale(loss).backward()\n" + STEP + NEXT,
        "steps without clipping",
    ),
    "the optimizer steps, scaled": (SCALED + "optimizer.step()", "far too large"),
    "the optimizer steps, clipped": (SCALED + CLIP + "optimizer.step()", "still held the scaler's factor"),
    "no scaler": (
        "optimizer.zero_grad()\nloss.backward()\n" + CLIP + "optimizer.step()",
        "when rank 1 overflowed, weights changed",
    ),
    "the optimizer steps, unscaled": (
        SCALED + UNSCALE + CLIP + "optimizer.step()\n" + NEXT,
        "when rank 1 overflowed, weights changed",
    ),
    "no update of the scale": (
        SCALED + UNSCALE + CLIP + STEP + "scaler._per_optimizer_states.clear()",
        "the scale never changes",
    ),
    "no step": (SCALED + UNSCALE + CLIP + NEXT, "no weight has changed"),
    "one rank clips": (
        SCALED + UNSCALE + "if dist.get_rank() == 0:\n    " + CLIP + STEP + NEXT,
        "the ranks no longer hold the same weights",
    ),
    "gradients pile up": (
        "scaler.scale(loss).backward()\n" + UNSCALE + CLIP + STEP + NEXT,
        "differ from those of one device by up to",
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", UPDATE_RIGHT.values(), ids=UPDATE_RIGHT)
def test_right_updates_pass(body: str, two_ranks: RankGroup) -> None:
    card = check("10/update", written(UPDATE, body), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("body", "words"), UPDATE_WRONG.values(), ids=UPDATE_WRONG)
def test_wrong_updates_are_told_what_is_wrong(body: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("10/update", written(UPDATE, body), ranks=two_ranks), words)


def test_a_forgotten_update_of_the_scale_stops_with_pytorchs_own_words(two_ranks: RankGroup) -> None:
    card = check("10/update", written(UPDATE, SCALED + UNSCALE + CLIP + STEP), ranks=two_ranks)
    assert card.kind == "error"
    assert "unscale_() is being called after step()" in str(card)


# A resumed run.

RESUME = "path, model, optimizer, loader, update, last"
LOAD = """
saved = torch.load(path, map_location="cpu", weights_only=True)
model.module.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
"""
GO_ON = """
done = saved["epoch"] * len(loader) + saved["batch"]
for epoch in range(saved["epoch"], last // len(loader) + 1):
    loader.batch_sampler.set_epoch(epoch)
    for step, (images, labels) in enumerate(loader, start=epoch * len(loader)):
        if done <= step < last:
            update(images, labels)
"""
RESUME_RIGHT = {
    "numbered steps": LOAD + GO_ON,
    "slices": LOAD
    + """
epoch, first = saved["epoch"], saved["batch"]
step = epoch * len(loader) + first
while step < last:
    loader.batch_sampler.set_epoch(epoch)
    for images, labels in islice(loader, first, first + last - step):
        update(images, labels)
        step += 1
    epoch, first = epoch + 1, 0
""",
    "the course's own loader": """
from mgpu_utils.checkpoints import load_checkpoint
saved = load_checkpoint(path, model=model, optimizer=optimizer)
"""
    + GO_ON,
}
RESUME_WRONG = {
    "nothing loaded": ("saved = torch.load(path, weights_only=True)\n" + GO_ON, "did not have the weights"),
    "loaded loosely into the wrapper": (
        LOAD.replace("model.module.load_state_dict(", "model.load_state_dict(strict=False, state_dict=") + GO_ON,
        "ranks 0 and 1 did not have the weights",
    ),
    "no optimizer": (LOAD.replace("optimizer.load", "# optimizer.load") + GO_ON, "not the optimizer's momentum"),
    "optimizer on rank 0 only": (
        LOAD.replace("optimizer.load", "if dist.get_rank() == 0: optimizer.load") + GO_ON,
        "rank 1 had the right weights, but not the optimizer's momentum",
    ),
    "epoch never set": (LOAD + GO_ON.replace("loader.batch_sampler.set_epoch(epoch)", "pass"), "order of epoch 0"),
    "epoch set once": (
        LOAD
        + "loader.batch_sampler.set_epoch(saved['epoch'])\n"
        + GO_ON.replace("loader.batch_sampler.set_epoch(epoch)", "pass"),
        "wrong order after the next epoch",
    ),
    "epoch begun again": (LOAD + GO_ON.replace("done <= step < last", "step < last"), "began this epoch again"),
    "one batch twice": (LOAD + GO_ON.replace("done <= step", "done - 1 <= step"), "before the checkpoint again"),
    "one batch left out": (LOAD + GO_ON.replace("done <= step", "done < step"), "left out a batch"),
    "one step too many": (LOAD + GO_ON.replace("step < last", "step <= last"), "went on after the last step"),
    "this epoch only": (
        LOAD + GO_ON.replace("range(saved[\"epoch\"], last // len(loader) + 1)", "[saved['epoch']]"),
        "of the",
    ),
    "nothing done": (LOAD, "`update` was never called"),
    "a step on the side": (
        LOAD + GO_ON + "\nwith torch.no_grad():\n    model.module[0].bias.add_(1)\n",
        "did anything besides `update`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", RESUME_RIGHT.values(), ids=RESUME_RIGHT)
def test_right_resumes_pass(body: str, two_ranks: RankGroup) -> None:
    card = check("10/resume", written(RESUME, body), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("body", "words"), RESUME_WRONG.values(), ids=RESUME_WRONG)
def test_wrong_resumes_are_told_what_is_wrong(body: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("10/resume", written(RESUME, body), ranks=two_ranks), words)


def test_loading_the_plain_weights_into_the_wrapper_is_shown_as_pytorchs_error(two_ranks: RankGroup) -> None:
    card = check("10/resume", written(RESUME, LOAD.replace("model.module.", "model.") + GO_ON), ranks=two_ranks)
    assert card.kind == "error"
    assert "module." in str(card)


# Who left.

LEAVER_RIGHT = {
    "count": """
for step, column in enumerate(zip(*hashes)):
    usual = max(column, key=column.count)
    for rank, value in enumerate(column):
        if value != usual:
            return rank, step
return None""",
    "sorted middle": """
for step in range(len(hashes[0])):
    column = [row[step] for row in hashes]
    odd = [rank for rank, value in enumerate(column) if column.count(value) == 1]
    if odd:
        return (odd[0], step)""",
}
LEAVER_WRONG = {
    "compared with rank 0": (
        """
for step in range(len(hashes[0])):
    for rank in range(4):
        if hashes[rank][step] != hashes[0][step]:
            return rank, step""",
        "one of three that agree",
    ),
    "ranks first": (
        """
for rank, row in enumerate(hashes):
    for step, value in enumerate(row):
        if [other[step] for other in hashes].count(value) == 1:
            return rank, step""",
        "which left as well, but not first",
    ),
    "the last step": (
        """
for step in reversed(range(len(hashes[0]))):
    column = [row[step] for row in hashes]
    for rank, value in enumerate(column):
        if column.count(value) == 1:
            return rank, step""",
        "not the first at which it differs",
    ),
    "counted from 1": (
        LEAVER_RIGHT["count"].replace("return rank, step", "return rank, step + 1"),
        "counted from 0",
    ),
    "turned round": (LEAVER_RIGHT["count"].replace("rank, step\n", "step, rank\n"), "the other way round"),
    "never None": (LEAVER_RIGHT["count"].replace("return None", "return (0, 0)"), "all hashes of each step are equal"),
    "always None": ("return None", "but you returned None"),
    "only the rank": (LEAVER_RIGHT["count"].replace("return rank, step", "return rank"), "a pair of two whole numbers"),
    "some other": ("return (3, 6)", "you returned (3, 6)"),
}


@pytest.mark.parametrize("body", LEAVER_RIGHT.values(), ids=LEAVER_RIGHT)
def test_right_leavers_pass(body: str) -> None:
    card = check("10/leaver", written("hashes", body))
    assert card.passed, card


@pytest.mark.parametrize(("body", "words"), LEAVER_WRONG.values(), ids=LEAVER_WRONG)
def test_wrong_leavers_are_told_what_is_wrong(body: str, words: str) -> None:
    assert_wrong(check("10/leaver", written("hashes", body)), words)


@pytest.mark.parametrize("name", ["10/update", "10/resume", "10/leaver"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    assert check(name, ...).kind == "open"
    assert hint(name).kind == "hint"
    assert str(hint(name)) != str(hint(name, 1))
