"""A layer that takes a given time, for stages whose cost has to be known on a machine that is not quiet."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn


class WaitingLayer(nn.Module):
    """Hands its input on unchanged, after `seconds_per_sample` times the batch; twice that for the gradient.

    It waits and computes nothing, so that ranks which share a core do not slow each other down. Backward takes
    twice the time of forward because it computes two things in a real layer: the gradients of the inputs and of
    the weights.
    """

    def __init__(self, seconds_per_sample: float) -> None:
        super().__init__()
        if not seconds_per_sample > 0:
            raise ValueError(f"seconds_per_sample must be above 0, not {seconds_per_sample}.")
        self.seconds_per_sample = seconds_per_sample

    def forward(self, x: Tensor) -> Tensor:
        """The input, of any shape (B, ...), later."""
        result = _Wait.apply(x, self.seconds_per_sample)
        assert isinstance(result, Tensor)
        return result

    def extra_repr(self) -> str:
        return f"seconds_per_sample={self.seconds_per_sample:g}"


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds_per_sample: float) -> Tensor:
        ctx.seconds_per_sample = seconds_per_sample
        time.sleep(seconds_per_sample * len(x))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * ctx.seconds_per_sample * len(grad))
        return grad, None
