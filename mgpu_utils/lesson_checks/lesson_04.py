"""Checks of lesson 04: ranks that agree, checkpoints with and without prefix, and the same weights with other luck."""

from __future__ import annotations

import copy
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.models import digits_cnn
from mgpu_utils.parameter_hashes import parameter_hashes

_BATCH = 64
_TOLERANCE = 1e-4

State = dict[str, Tensor]


@exercise(
    "04/agree",
    minutes=8,
    difficulty=2,
    hints=[
        "Which collective gives every rank the tensor of one of them? It stands under *By hand* above.",
        "Which tensors are there besides `model.parameters()`? Look at `model.state_dict()`.",
        "`for tensor in model.state_dict().values(): dist.broadcast(tensor, src=0)`: on every rank, without an `if`.",
    ],
    explain="Rank 0's model is everywhere, and the gradient of both ranks together is that of one device.",
)
def agree(answer: Callable[[nn.Module], Any], ranks: Any) -> None:
    """After `answer(model)` every rank's model holds rank 0's parameters and buffers."""
    results = run_answer(ranks, agree_on_rank, answer)
    before, after, returned, gradients = (list(part) for part in zip(*results, strict=True))
    wanted, buffers = before[0], [name for name, _ in _with_buffers(0).named_buffers()]
    different = [name for name in wanted if any(not _same(state[name], wanted[name]) for state in after)]
    if different:
        _explain_disagreement(before, after, returned, different, buffers)
    baseline = _with_buffers(0)
    baseline.load_state_dict(wanted)
    images, labels = digits(train=True)[:_BATCH]
    cross_entropy(baseline(images), labels).backward()
    single = torch.cat([p.grad.flatten() for p in baseline.parameters() if p.grad is not None])
    for rank, gradient in enumerate(gradients):
        if gradient is None:
            raise Wrong(
                f"on rank {rank} the model gets no gradient any more: it no longer trains what it computes with"
            )
        if not torch.allclose(gradient, single, atol=_TOLERANCE):
            raise Wrong(f"the tensors agree, but rank {rank}'s gradient is not that of one device")


def _explain_disagreement(
    before: list[State], after: list[State], returned: list[State | None], different: list[str], buffers: list[str]
) -> None:
    wanted = before[0]
    unchanged = all(_same(a[n], b[n]) for a, b in zip(after, before, strict=True) for n in wanted)
    if unchanged and all(state and all(_same(state[n], wanted[n]) for n in wanted) for state in returned):
        raise Wrong("what you return agrees, but the model that you were given is as before: overwrite it in place")
    if unchanged:
        raise Wrong("every rank's model is as it was before; nothing was written into its own tensors")
    if set(different) <= set(buffers):
        raise Wrong(
            f"the parameters agree, but the buffer {different[0]!r} does not; a model is more than its parameters"
        )
    name = next(name for name in different if name not in buffers)
    # A weight drawn at random tells whose model it is; others can be equal from the start.
    told = next((n for n in different if n.endswith("weight") and not _same(before[0][n], before[1][n])), name)
    if all(_same(state[told], after[0][told]) for state in after):
        values = torch.stack([state[told].double() for state in before])
        for meaning, value in (("the mean", values.mean(dim=0)), ("the sum", values.sum(dim=0))):
            if torch.allclose(after[0][told].double(), value, atol=1e-5):
                raise Wrong(f"the ranks agree, but on {meaning} of their models; rank 0's own model is wanted")
        for rank, state in enumerate(before):
            if rank and _same(after[0][told], state[told]):
                raise Wrong(f"the ranks agree, but on rank {rank}'s model; rank 0's is wanted")
        raise Wrong("the ranks agree, but on a model that none of them had; rank 0's is wanted, as it was")
    if len(different) < len(wanted) - len(buffers) and any(_same(after[1][n], wanted[n]) for n in wanted if n != told):
        raise Wrong(f"some tensors agree, but {told!r} is still another one on each rank")
    raise Wrong(f"{told!r} is still another one on each rank")


def agree_on_rank(answer: Callable[[nn.Module], Any]) -> tuple[State, State, State | None, Tensor | None]:
    """Give the learner's function a model of this rank's own; runs on a rank. Collective: one all-reduce."""
    import torch.distributed as dist

    rank, world_size, device = dist.get_rank(), dist.get_world_size(), _rank_device()
    model = _with_buffers(rank).to(device)
    before = copy.deepcopy(model.state_dict())
    result = answer(model)
    returned = result.state_dict() if isinstance(result, nn.Module) and result is not model else None
    after = copy.deepcopy(model.state_dict())
    images, labels = (part[rank::world_size].to(device) for part in digits(train=True)[:_BATCH])
    (cross_entropy(model(images), labels, reduction="sum") / _BATCH).backward()
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    total = torch.cat([*grads, torch.zeros(1, device=device)])
    whole = torch.zeros(1 + sum(p.numel() for p in model.parameters()), device=device)
    whole[: len(total)] = total
    dist.all_reduce(whole)
    complete = len(total) == len(whole)
    return before, after, returned, whole[:-1] if complete else None


def _with_buffers(rank: int) -> nn.Module:
    model = digits_cnn(seed=40 + rank)
    model.register_buffer("offset", torch.full((2,), 0.5 + rank))
    model.register_buffer("calls", torch.tensor(3 + rank))
    return model


def _same(one: Tensor, two: Tensor) -> bool:
    return torch.equal(one.cpu(), two.cpu())


def _rank_device() -> torch.device:
    import torch.distributed as dist

    on_gpu = "nccl" in str(dist.get_backend())
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


class _Holder(nn.Module):
    """A model with a layer of its own called `module`, alone or beside others."""

    def __init__(self, head: bool) -> None:
        super().__init__()
        self.module = nn.Linear(4, 3)
        if head:
            self.head = nn.Linear(3, 2)


@exercise(
    "04/checkpoint",
    minutes=8,
    difficulty=2,
    hints=[
        "When do you know that a prefix is there? Compare the names in `state` with those that the model has.",
        "`model.state_dict()` has the model's own names. If they are the names of `state`, there is nothing to do.",
        "`name.removeprefix('module.')` takes it off once. Leave `strict` alone, and let what does not fit raise.",
    ],
    explain="Plain and wrapped checkpoints load, and a foreign one still stops with an error.",
)
def checkpoint(answer: Callable[[nn.Module, State], Any]) -> None:
    """`answer(model, state)` loads plain and wrapped checkpoints in place, and raises for those of other models."""
    cnn, holder, headed = digits_cnn, lambda seed: _holder(False, seed), lambda seed: _holder(True, seed)
    cases: tuple[tuple[str, Callable[[int], nn.Module], bool], ...] = (
        ("a plain checkpoint", cnn, False),
        ("a checkpoint of a wrapped model", cnn, True),
        ("a plain checkpoint of a model whose only layer is called `module`", holder, False),
        ("a wrapped checkpoint of a model whose only layer is called `module`", holder, True),
        ("a plain checkpoint of a model with a layer called `module` and another", headed, False),
        ("a wrapped checkpoint of a model with a layer called `module` and another", headed, True),
    )
    for name, build, wrapped in cases:
        model, source = build(1), build(2)
        state = _saved(source, wrapped)
        try:
            answer(model, state)
        except (RuntimeError, KeyError, ValueError, AssertionError) as error:
            first = str(error).strip().splitlines()[0].rstrip(":")
            raise Wrong(f"{name} was refused: `{type(error).__name__}: {first}`") from None
        _check_loaded(name, model, source, build(1))
    for name, state in (
        ("a checkpoint of another model", _saved(_holder(True, 3), False)),
        ("a wrapped checkpoint of another model", _saved(_holder(True, 3), True)),
        ("a checkpoint with half of the tensors", dict(list(_saved(digits_cnn(3), True).items())[:5])),
    ):
        try:
            answer(digits_cnn(seed=1), state)
        except Exception:
            continue
        raise Wrong(f"{name} was accepted without an error, and whoever uses the model will not know")


def _check_loaded(name: str, model: nn.Module, source: nn.Module, untouched: nn.Module) -> None:
    found, wanted, old = model.state_dict(), source.state_dict(), untouched.state_dict()
    if set(found) != set(wanted):
        raise Wrong(f"after {name} the model has other tensors than before")
    wrong = [key for key in wanted if not torch.equal(found[key], wanted[key])]
    if not wrong:
        return
    if all(torch.equal(found[key], old[key]) for key in wanted):
        raise Wrong(f"after {name} there was no error, and the model still has its random weights: nothing was loaded")
    raise Wrong(f"after {name} the model's {wrong[0]!r} is not that of the checkpoint")


def _holder(head: bool, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _Holder(head)


def _saved(model: nn.Module, wrapped: bool) -> State:
    # On CPU tensors nn.DataParallel is only a wrapper, and that is all that is wanted of it here.
    module = nn.DataParallel(model) if wrapped else model
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@exercise(
    "04/luck",
    minutes=6,
    difficulty=2,
    hints=[
        "Two things are wanted of the random state: alike while the model is built, and unlike afterwards.",
        "`torch.manual_seed` may be called more than once.",
        "First `torch.manual_seed(seed)`, then build, then a seed in which `rank` takes part.",
    ],
    explain="Equal replicas, and on each rank an augmentation of its own.",
)
def luck(answer: Callable[[int], Any], ranks: Any) -> None:
    """`answer(seed)` builds equal models on all ranks, and leaves them with different random numbers to come."""
    results = run_answer(ranks, luck_on_rank, answer)
    for rank, (hashes, _) in enumerate(results):
        if isinstance(hashes, str):
            raise Wrong(f"rank {rank} returned {hashes}; the network is wanted: end your function with `return`")
    same, again, other = zip(*(hashes for hashes, _ in results), strict=True)
    if any(one != two for one, two in zip(same, again, strict=True)):
        raise Wrong("two calls with the same seed gave different weights on one and the same rank")
    if any(one != same[0] for one in same):
        raise Wrong("the same seed gave different weights on different ranks")
    if same[0] == other[0]:
        raise Wrong("two different seeds gave the same weights")
    draws = [draw for _, draw in results]
    if len(set(draws)) < len(draws):
        raise Wrong("the weights are right, but afterwards the ranks draw the same numbers")


def luck_on_rank(answer: Callable[[int], Any]) -> tuple[Any, Real | float]:
    """Hashes of models from seeds 3, 3 and 4, and the first number drawn afterwards; runs on a rank."""
    import torch.distributed as dist

    hashes: list[Any] = []
    for number, seed in enumerate((3, 3, 4)):
        # Ranks have drawn different numbers before, as they have in a real program.
        torch.manual_seed(1000 + 10 * number + dist.get_rank())
        model = answer(seed)
        if not isinstance(model, nn.Module):
            return "nothing" if model is None else f"a {type(model).__name__}", 0.0
        hashes.append(parameter_hashes(model))
    # And here they have not, so that what differs afterwards is the learner's doing.
    torch.manual_seed(77)
    answer(3)
    return hashes, torch.rand(()).item()
