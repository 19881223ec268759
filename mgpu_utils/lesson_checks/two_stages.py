"""Run a learner's last stage in a pipeline of two stages: what it received and sent, and the gradients after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong
from mgpu_utils.models import digits_cnn

CUT = 3
_HIDDEN = (16, 8, 8)


class Outcome(NamedTuple):
    """What a rank has after the step: its stage's gradient, what the answer did in which order, what went wrong."""

    gradient: Tensor
    events: list[str]
    trouble: str | None


def stages() -> tuple[nn.Sequential, nn.Sequential]:
    """The two stages of the digits network, cut before layer 3."""
    net = digits_cnn(seed=0)
    assert isinstance(net, nn.Sequential)
    return nn.Sequential(*list(net)[:CUT]), nn.Sequential(*list(net)[CUT:])


def run_stage(answer: Callable[..., Any], sizes: list[int]) -> Outcome | None:
    """One step of the two-stage pipeline, with the learner's function on rank 1; runs on every rank."""
    import torch.distributed as dist

    rank = dist.get_rank()
    if rank > 1:
        return None
    device = torch.device("cuda", rank) if "nccl" in str(dist.get_backend()) else torch.device("cpu")
    images, labels = (tensor.to(device) for tensor in digits(train=True)[: sum(sizes)])
    front, back = stages()
    if rank == 0:
        return _first(front.to(device), images, sizes)
    return _last(back.to(device), labels, sizes, answer)


def _first(stage: nn.Module, images: Tensor, sizes: list[int]) -> Outcome:
    import torch.distributed as dist

    outputs = [stage(piece) for piece in images.split(sizes)]
    mail = [dist.isend(output.detach(), 1) for output in outputs]
    for output in outputs:
        grad = torch.empty_like(output)
        dist.recv(grad, 1)
        output.backward(grad)
    for letter in mail:
        if letter is not None:
            letter.wait()
    return Outcome(gradient_of(stage), [], None)


def _last(stage: nn.Module, labels: Tensor, sizes: list[int], answer: Callable[..., Any]) -> Outcome:
    import torch.distributed as dist

    events: list[str] = []
    waiting = list(sizes)
    owed = [(size, *_HIDDEN) for size in sizes]
    mail = []

    def receive() -> Tensor:
        if not waiting:
            raise Wrong(f"receive() was called {len(sizes) + 1} times, for {len(sizes)} micro-batches")
        hidden = torch.empty(waiting.pop(0), *_HIDDEN, device=labels.device)
        dist.recv(hidden, 0)
        events.append("receive")
        return hidden

    def send_back(grad: Any) -> None:
        if grad is None:
            raise Wrong(
                "send_back was given None: the received tensor has no gradient. Was it asked for one before the "
                "forward, and is `backward()` done?"
            )
        if not isinstance(grad, Tensor):
            raise Wrong(f"send_back was given a {type(grad).__name__}; the gradient of what was received is wanted")
        if not owed:
            raise Wrong(f"send_back was called {len(sizes) + 1} times, for {len(sizes)} micro-batches")
        if tuple(grad.shape) != owed[0]:
            raise Wrong(f"send_back was given the shape {tuple(grad.shape)}; what was received had {owed[0]}")
        owed.pop(0)
        mail.append(dist.isend(grad.detach().contiguous(), 0))
        events.append("send_back")

    trouble = None
    try:
        answer(stage, labels.split(sizes), receive, send_back)
    except Exception as error:
        trouble = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
    # Rank 0 waits for every gradient, so what the answer left out is made up here, and told afterwards.
    done = list(events)
    while waiting:
        receive()
    while owed:
        send_back(torch.zeros(owed[0], device=labels.device))
    for letter in mail:
        if letter is not None:
            letter.wait()
    return Outcome(gradient_of(stage), done, trouble)


def gradient_of(stage: nn.Module) -> Tensor:
    """All gradients of a stage in one row; zeros where there is none."""
    rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in stage.parameters()]
    return torch.cat([row.flatten() for row in rows])
