"""Checks of lesson 02: a balanced cut, micro-batches for a given bubble, and a last stage that takes turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.lesson_checks.answers_on_ranks import run_answer
from mgpu_utils.lesson_checks.two_stages import gradient_of, run_stage, stages

_COSTS = (
    [1, 1, 1, 1, 1, 1],
    [6, 1, 1, 1, 1],
    [1, 1, 1, 1, 6],
    [1, 5],
    [5, 2, 9],
    [3, 1, 4, 4],
    [0.6, 0.15, 0.17, 3.3, 0.1, 0.12, 0.03, 0.1],
    [10, 1, 1],
)
_BUBBLES = ((2, 0.2), (4, 0.2), (2, 0.1), (4, 0.05), (8, 0.3), (3, 0.4), (1, 0.1), (2, 0.5))
_PIECES = ((16, 16, 16, 16), (4, 4, 2), (5,))
_TOLERANCE = 1e-5
_ADVICE = "Send and receive only with `receive` and `send_back`."


@exercise(
    "02/cut",
    minutes=8,
    difficulty=1,
    hints=[
        "For a given cut, what is the time of the slower stage? Write that down first, as `max(..., ...)`.",
        "`sum(costs[:cut])` and `sum(costs[cut:])` are the two stages. Which cuts leave none of them empty?",
        "Try every cut in `range(1, len(costs))`, and keep the one whose slower stage is the fastest.",
    ],
    explain="A pipeline is as fast as its slowest stage, so that is the one to make fast.",
)
def cut(answer: Callable[[list[float]], Any]) -> None:
    """`answer(costs)` gives the number of layers in the first of two stages, such that the slower is fastest."""
    for costs in _COSTS:
        found = answer(list(costs))
        where = f"for the costs {costs}"
        if found is None:
            raise Wrong("best_cut returned nothing: end it with `return`")
        if isinstance(found, bool) or not isinstance(found, int):
            kind = "a pair" if isinstance(found, list | tuple) else f"{found!r}"
            raise Wrong(f"{where} you returned {kind}; the number of a layer is wanted")
        if found in (0, len(costs)):
            raise Wrong(f"{where} you cut before layer {found}, which leaves one stage without any layer")
        if not 0 < found < len(costs):
            raise Wrong(f"{where} you returned {found}; there are the layers 0 to {len(costs) - 1}")
        slower = [max(sum(costs[:place]), sum(costs[place:])) for place in range(1, len(costs))]
        if slower[found - 1] > min(slower) + 1e-9:
            _explain_cut(found, costs, slower)


def _explain_cut(found: int, costs: Sequence[float], slower: Sequence[float]) -> None:
    best = slower.index(min(slower)) + 1
    where = f"for the costs {list(costs)} the slower stage takes {slower[found - 1]:g} with your cut before {found}"
    if found == len(costs) // 2:
        raise Wrong(f"{where}; the same number of layers on both sides is not the same time")
    if found == best + 1:
        raise Wrong(f"{where}; one layer less in the first stage would be better there")
    if found == best - 1:
        raise Wrong(f"{where}; one layer more in the first stage would be better there")
    raise Wrong(f"{where}, and there is a better cut")


@exercise(
    "02/bubble",
    minutes=6,
    difficulty=1,
    hints=[
        "The idle share is `(stages - 1) / (m + stages - 1)`. It falls when m grows.",
        "Start with m = 1 and count up until the share is small enough. Or solve the formula for m, and round up.",
        "0.2 cannot be written exactly in binary. Allow for 0.000000001 when you compare.",
    ],
    explain="Four times as many micro-batches as there are stages leave less than a fifth of the time idle.",
)
def bubble(answer: Callable[[int, float], Any]) -> None:
    """`answer(stages, share)` gives the smallest number of micro-batches with at most that share of idle time."""
    for depth, share in _BUBBLES:
        found = answer(depth, share)
        wanted = _fewest(depth, share, idle_slots)
        where = f"for {depth} stages and a share of {share:g}"
        if found is None:
            raise Wrong("micro_batches_for returned nothing: end it with `return`")
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise Wrong(f"{where} you returned {found!r}; a whole number is wanted")
        if found != int(found):
            raise Wrong(f"{where} you returned {found:g}; micro-batches come whole")
        if found == wanted:
            continue
        if found < 1:
            raise Wrong(f"{where} you returned {found:g}; there is at least one micro-batch")
        if int(found) == _fewest(depth, share, lambda p, m: (p - 1) / m):
            raise Wrong(
                f"{where} you returned {found:g}: (p - 1) / m compares the idle slots with the busy ones; "
                "compare them with all slots"
            )
        if int(found) == _fewest(depth, share, lambda p, m: p / (m + p)):
            raise Wrong(f"{where} you returned {found:g}: the last stage starts after p - 1 slots, not p")
        idle = idle_slots(depth, int(found))
        if idle > share + 1e-9:
            raise Wrong(f"{where} you returned {found:g}, with which {idle:.1%} of the slots are empty")
        raise Wrong(f"{where} you returned {found:g}; a smaller number is enough")


def idle_slots(depth: int, micro_batches: int) -> float:
    """Share of empty slots, counted on a table of who works when (a forward takes one slot on each stage)."""
    busy = {(stage, stage + piece) for stage in range(depth) for piece in range(micro_batches)}
    slots = max(slot for _, slot in busy) + 1
    return 1 - len(busy) / (depth * slots)


def _fewest(depth: int, share: float, idle: Callable[[int, int], float]) -> int:
    count = 1
    while idle(depth, count) > share + 1e-9:
        count += 1
    return count


@exercise(
    "02/turns",
    minutes=15,
    difficulty=3,
    hints=[
        "One loop over `pieces`, and in it everything: receive, forward, backward, send back.",
        "A received tensor has no history. Call `.requires_grad_()` on it, and its `.grad` is there after "
        "`backward()`.",
        "The mean over all images is the sum of all pieces' losses, divided by the number of all images: "
        '`cross_entropy(..., reduction="sum") / total`.',
    ],
    explain="Both stages have the gradients of one device, and rank 1 kept one micro-batch at a time.",
)
def turns(answer: Callable[..., Any], ranks: Any) -> None:
    """`answer(stage, pieces, receive, send_back)` runs as the last of two stages, on rank 1."""
    if ranks.world_size < 2:
        raise Wrong("two ranks are needed: `ranks = mgpu.start_ranks(2)`")
    for sizes in _PIECES:
        first, last, *_ = run_answer(ranks, run_stage, answer, list(sizes), advice=_ADVICE)
        assert last is not None
        if last.trouble:
            raise Wrong(f"on rank 1, with micro-batches of {_listed(sizes)}: {last.trouble}")
        _check_events(last.events, sizes)
        _compare(first.gradient, last.gradient, sizes)
        if [event for event in last.events if event == "receive"] and last.events[:2] == ["receive", "receive"]:
            raise Wrong(
                "the gradients are right, but rank 1 received more before it had sent anything back: then it keeps "
                f"up to {_kept(last.events)} micro-batches at a time"
            )


def _check_events(events: Sequence[str], sizes: Sequence[int]) -> None:
    received, sent = events.count("receive"), events.count("send_back")
    if not received:
        raise Wrong("receive() was never called, so nothing from rank 0 was used")
    if received < len(sizes):
        raise Wrong(f"only {received} of {len(sizes)} micro-batches were received")
    if not sent:
        raise Wrong("nothing was sent back, so rank 0 cannot learn")
    if sent < len(sizes):
        raise Wrong(f"only {sent} of {len(sizes)} gradients were sent back; rank 0 waits for one a micro-batch")


def _kept(events: Sequence[str]) -> int:
    kept = most = 0
    for event in events:
        kept += 1 if event == "receive" else -1
        most = max(most, kept)
    return most


def _compare(first: Tensor, last: Tensor, sizes: Sequence[int]) -> None:
    total = sum(sizes)
    even = [size / total for size in sizes]
    wanted_first, wanted_last = _reference(sizes, even)
    if torch.allclose(last, wanted_last, atol=_TOLERANCE):
        if torch.allclose(first, wanted_first, atol=_TOLERANCE):
            return
        raise Wrong(
            "rank 1 has the right gradients, rank 0 has not: what you sent back is not the gradient of the loss "
            "with respect to what was received"
        )
    where = f"with micro-batches of {_listed(sizes)}"
    guesses = (
        ([1.0] * len(sizes), "each loss is a mean over one micro-batch, and the means were added up"),
        ([1 / len(sizes)] * len(sizes), "the mean of the means counts an image of a small micro-batch for more"),
        (list(map(float, sizes)), "the losses are sums over images; the mean over all of them is wanted"),
        ([0.0] * (len(sizes) - 1) + [even[-1]], "only the last micro-batch is in the gradient"),
        ([0.0] * (len(sizes) - 1) + [1.0], "only the last micro-batch is in the gradient"),
    )
    for weights, words in guesses:
        guess = _reference(sizes, weights)[1]
        if torch.allclose(last, guess, atol=_TOLERANCE * max(1.0, max(weights))):
            raise Wrong(f"{where} rank 1's gradient is not that of one device: {words}")
    difference = float((last - wanted_last).abs().max())
    raise Wrong(f"{where} rank 1's gradient differs from that of one device by up to {difference:.2g}")


def _reference(sizes: Sequence[int], weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Gradients of both stages for the losses of the micro-batches with these weights, on one device."""
    images, labels = digits(train=True)[: sum(sizes)]
    front, back = stages()
    pieces = zip(images.split(list(sizes)), labels.split(list(sizes)), weights, strict=True)
    losses = [weight * cross_entropy(back(front(piece)), target) for piece, target, weight in pieces]
    torch.stack(losses).sum().backward()
    return gradient_of(front), gradient_of(back)


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) + " images"
