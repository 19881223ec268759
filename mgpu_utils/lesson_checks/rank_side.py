"""What the rank's half of a check needs: its device, and one verdict that all ranks share."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from mgpu_utils.data import digits


def rank_device() -> torch.device:
    """The device of the rank that this runs on."""
    on_gpu = "nccl" in str(dist.get_backend())
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def get_ready(ranks: Any) -> None:
    """Have every rank import and load what a check needs, so that its patience is for the learner's answer alone."""
    ranks.run(load_digits_and_ddp)


def load_digits_and_ddp() -> None:
    """The first use of both takes seconds on a busy machine; runs on a rank."""
    digits(train=True)
    nn.parallel.DistributedDataParallel(nn.Linear(1, 1).to(rank_device()))


def first_problem(problem: str | None) -> tuple[int, str] | None:
    """The lowest rank that has a problem, and what it is; known to every rank, so that none goes on alone."""
    problems: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    return next(((rank, text) for rank, text in enumerate(problems) if text), None)
