"""What learners answer in lesson 04, what the checks tell them, and the facts that the lesson rests on."""

from __future__ import annotations

import pytest
import torch
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.models import digits_cnn
from mgpu_utils.ranks import RankGroup

written = LearnerCell(
    "import io\n"
    "import torch\n"
    "from torch import nn\n"
    "import mgpu_utils as mgpu\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP"
).answer

AGREE_RIGHT = {
    "every tensor of the state dict": "for t in model.state_dict().values():\n    dist.broadcast(t, src=0)",
    "parameters, then buffers": """
        with torch.no_grad():
            for t in [*model.parameters(), *model.buffers()]:
                dist.broadcast(t, 0)
    """,
    "as an object": """
        box = [model.state_dict() if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        model.load_state_dict(box[0])
    """,
    "all but rank 0's zeroed, then summed": """
        for t in model.state_dict().values():
            if rank != 0:
                t.zero_()
            dist.all_reduce(t)
    """,
    "returns the model too": "for t in model.state_dict().values():\n    dist.broadcast(t, src=0)\nreturn model",
}
AGREE_WRONG = {
    "buffers forgotten": (
        "for p in model.parameters():\n    dist.broadcast(p.data, src=0)",
        "the parameters agree, but the buffer 'offset' does not",
    ),
    "averaged": (
        "for t in model.state_dict().values():\n    dist.all_reduce(t)\n    t.copy_(t / world_size)",
        "the ranks agree, but on the mean of their models",
    ),
    "added up": ("for t in model.state_dict().values():\n    dist.all_reduce(t)", "on the sum of their models"),
    "from the wrong rank": (
        "for t in model.state_dict().values():\n    dist.broadcast(t, src=1)",
        "the ranks agree, but on rank 1's model",
    ),
    "seeded too late": ("torch.manual_seed(0)", "every rank's model is as it was before"),
    "drawn anew": (
        "for m in model.modules():\n    torch.manual_seed(0)\n"
        "    m.reset_parameters() if hasattr(m, 'reset_parameters') else None",
        "on a model that none of them had",
    ),
    "copies sent": (
        "for t in model.state_dict().values():\n    dist.broadcast(t.clone(), src=0)",
        "nothing was written into its own tensors",
    ),
    "another model returned": (
        "import copy\nnew = copy.deepcopy(model)\nfor t in new.state_dict().values():\n    dist.broadcast(t, src=0)\n"
        "return new",
        "the model that you were given is as before",
    ),
    "first layer only": (
        "dist.broadcast(model[0].weight.data, src=0)\ndist.broadcast(model[0].bias.data, src=0)",
        "some tensors agree, but '3.weight' is still another one",
    ),
    "frozen": (
        "for t in model.state_dict().values():\n    dist.broadcast(t, src=0)\nmodel[0].requires_grad_(False)",
        "the model gets no gradient any more",
    ),
}


@pytest.mark.parametrize("lines", AGREE_RIGHT.values(), ids=AGREE_RIGHT)
def test_right_agreements_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("04/agree", written("agree(model)", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), AGREE_WRONG.values(), ids=AGREE_WRONG)
def test_wrong_agreements_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("04/agree", written("agree(model)", lines), ranks=two_ranks), words)


def test_three_ranks_agree_too(three_ranks: RankGroup) -> None:
    right = written("agree(model)", AGREE_RIGHT["every tensor of the state dict"])
    assert check("04/agree", right, ranks=three_ranks).passed


def test_a_broadcast_under_if_rank_0_is_explained_and_the_ranks_work_again(
    two_ranks: RankGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpu_utils.lesson_checks.answers_on_ranks.PATIENCE", 2.0)
    lines = "if rank == 1:\n    for t in model.state_dict().values():\n        dist.broadcast(t, src=0)"
    card = check("04/agree", written("agree(model)", lines), ranks=two_ranks)
    assert card.kind in ("wrong", "error"), card
    assert two_ranks.run(lambda: 1) == [1, 1]


CHECKPOINT_RIGHT = {
    "names compared": """
        if set(state) != set(model.state_dict()):
            state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
        model.load_state_dict(state)
    """,
    "tried first": """
        try:
            model.load_state_dict(state)
        except RuntimeError:
            model.load_state_dict({name[len("module."):]: tensor for name, tensor in state.items()})
    """,
    "the model wrapped": """
        target = model if set(state) == set(model.state_dict()) else nn.DataParallel(model)
        target.load_state_dict(state)
    """,
    "the package": "from mgpu_utils.state_dicts import load_state\nload_state(model, state)",
}
CHECKPOINT_WRONG = {
    "not strict": ("model.load_state_dict(state, strict=False)", "nothing was loaded"),
    "as it comes": ("model.load_state_dict(state)", "a checkpoint of a wrapped model was refused"),
    "always taken off": (
        "model.load_state_dict({n[len('module.'):]: t for n, t in state.items()})",
        "a plain checkpoint was refused",
    ),
    "taken off wherever it stands": (
        "model.load_state_dict({n.replace('module.', ''): t for n, t in state.items()})",
        "a plain checkpoint of a model whose only layer is called `module` was refused",
    ),
    "taken off where there is one": (
        "from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present as consume\n"
        "consume(state, 'module.')\nmodel.load_state_dict(state)",
        "a plain checkpoint of a model whose only layer is called `module` was refused",
    ),
    "whenever all keys have it": (
        "if all(n.startswith('module.') for n in state):\n"
        "    state = {n.removeprefix('module.'): t for n, t in state.items()}\n"
        "model.load_state_dict(state)",
        "whose only layer is called `module` was refused",
    ),
    "right and not strict": (
        "if set(state) != set(model.state_dict()):\n"
        "    state = {n.removeprefix('module.'): t for n, t in state.items()}\n"
        "model.load_state_dict(state, strict=False)",
        "a checkpoint of another model was accepted without an error",
    ),
    "into another model": (
        "m = mgpu.digits_cnn()\ntry:\n    m.load_state_dict(state)\nexcept RuntimeError:\n    pass\nreturn m",
        "nothing was loaded",
    ),
}


@pytest.mark.parametrize("lines", CHECKPOINT_RIGHT.values(), ids=CHECKPOINT_RIGHT)
def test_right_loaders_pass(lines: str) -> None:
    card = check("04/checkpoint", written("load_any(model, state)", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), CHECKPOINT_WRONG.values(), ids=CHECKPOINT_WRONG)
def test_wrong_loaders_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("04/checkpoint", written("load_any(model, state)", lines)), words)


LUCK_RIGHT = {
    "two seeds": """
        torch.manual_seed(seed)
        model = mgpu.digits_cnn()
        torch.manual_seed(100 + rank)
        return model
    """,
    "a seed for the model alone": "model = mgpu.digits_cnn(seed=seed)\ntorch.manual_seed(rank)\nreturn model",
    "forked": """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = mgpu.digits_cnn()
        torch.manual_seed(torch.initial_seed() + 1 + rank)
        return model
    """,
}
LUCK_WRONG = {
    "one seed": ("torch.manual_seed(seed)\nreturn mgpu.digits_cnn()", "afterwards the ranks draw the same numbers"),
    "the model's seed only": ("return mgpu.digits_cnn(seed=seed)", "afterwards the ranks draw the same numbers"),
    "rank in the model's seed": (
        "torch.manual_seed(seed + rank)\nreturn mgpu.digits_cnn()",
        "gave different weights on different ranks",
    ),
    "the same luck afterwards": (
        "torch.manual_seed(seed)\nm = mgpu.digits_cnn()\ntorch.manual_seed(1)\nreturn m",
        "the ranks draw the same numbers",
    ),
    "no seed": ("return mgpu.digits_cnn()", "different weights on one and the same rank"),
    "seed not used": (
        "torch.manual_seed(0)\nm = mgpu.digits_cnn()\ntorch.manual_seed(rank)\nreturn m",
        "two different seeds gave the same weights",
    ),
    "no return": ("torch.manual_seed(seed)\nmgpu.digits_cnn()", "rank 0 returned nothing"),
}


@pytest.mark.parametrize("lines", LUCK_RIGHT.values(), ids=LUCK_RIGHT)
def test_right_builders_pass(lines: str, two_ranks: RankGroup) -> None:
    card = check("04/luck", written("build(seed)", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), LUCK_WRONG.values(), ids=LUCK_WRONG)
def test_wrong_builders_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("04/luck", written("build(seed)", lines), ranks=two_ranks), words)


@pytest.mark.parametrize("name", ["04/agree", "04/checkpoint", "04/luck"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    assert check(name, ...).kind == "open"
    assert str(hint(name)) != str(hint(name))


def test_a_wrapped_checkpoint_without_strict_loads_nothing_and_says_nothing() -> None:
    saved = torch.nn.DataParallel(digits_cnn(seed=1)).state_dict()
    fresh = digits_cnn(seed=2)
    result = fresh.load_state_dict(saved, strict=False)
    assert (len(result.missing_keys), len(result.unexpected_keys)) == (10, 10)
    assert torch.equal(fresh[0].weight, digits_cnn(seed=2)[0].weight)


def test_an_optimizer_made_before_to_empty_holds_tensors_that_the_model_no_longer_has() -> None:
    with torch.device("meta"):
        model = digits_cnn()
    held = list(model.parameters())
    optimizer = torch.optim.SGD(held, lr=1.0)
    model.to_empty(device="cpu")
    model.load_state_dict(digits_cnn(seed=1).state_dict())
    model(torch.rand(2, 1, 8, 8)).sum().backward()
    optimizer.step()
    assert torch.equal(model[0].weight, digits_cnn(seed=1)[0].weight), "no error, and nothing was trained"
    assert not {id(p) for p in held} & {id(p) for p in model.parameters()}
    converted = digits_cnn()
    held = list(converted.parameters())
    converted.to(torch.float64)
    assert [id(p) for p in held] == [id(p) for p in converted.parameters()]


def test_averaged_gradients_keep_the_distance_between_replicas_that_started_differently(two_ranks: RankGroup) -> None:
    def distances(optimizer: str) -> list[float]:
        import torch
        import torch.distributed as dist
        from torch.nn.functional import cross_entropy

        import mgpu_utils as mgpu

        model = mgpu.digits_cnn(seed=dist.get_rank())
        make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
        updates = make(model.parameters(), lr=0.01)
        found = []
        for images, labels in list(mgpu.DistributedDataParallel().loader(mgpu.digits(train=True), 64))[:8]:
            flat = torch.cat([p.detach().flatten() for p in model.parameters()])
            theirs = flat.clone()
            dist.broadcast(theirs, src=0)
            found.append(float((flat - theirs).norm()))
            updates.zero_grad()
            cross_entropy(model(images), labels).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= 2  # type: ignore[operator]
            updates.step()
        return found

    for optimizer in ("sgd", "adam"):
        _, found = two_ranks.run(distances, optimizer)
        assert found[0] > 1
        assert max(found) - min(found) < 1e-3
