"""A real all-reduce between two processes, with a limit for each step, before a lesson depends on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mgpu_utils.doctor.child import Child, ChildEnded
from mgpu_utils.rendezvous import rank_environment

Outcome = Literal["ok", "wrong", "slow start", "silent", "ended", "not tried"]
_RANK = ("-m", "mgpu_utils.doctor.preflight_rank")
RANKS: tuple[tuple[str, ...], tuple[str, ...]] = ((*_RANK, "0"), (*_RANK, "1"))


@dataclass(frozen=True)
class Limits:
    """Seconds that each step may take: from the start to torch's import, and the all-reduce of each backend."""

    start: float = 30.0
    gloo: float = 6.0
    nccl: float = 15.0


@dataclass(frozen=True)
class Trial:
    """What became of the all-reduce over one backend; `ranks` are those which did not get through it."""

    outcome: Outcome
    seconds: float = 0.0
    ranks: tuple[int, ...] = ()
    detail: str = ""


NOT_TRIED = Trial("not tried")


def all_reduce(gpus: Callable[[], int], limits: Limits, ranks: Sequence[Sequence[str]] = RANKS) -> tuple[Trial, Trial]:
    """Let two ranks add up a tensor over gloo and, where `gpus()` is 2 or more, over nccl.

    The ranks have the environment that the course's ranks get. `gpus` is called when gloo has passed. No process
    is left, whatever happens.
    """
    with (
        Child(ranks[0], rank_environment(0, 2, 0, 1)) as first,
        Child(ranks[1], rank_environment(1, 2, 0, 1)) as second,
    ):
        pair = (first, second)
        trial = _step(pair, "imported", limits.start)
        if trial.outcome != "ok":
            return (Trial("slow start", trial.seconds) if trial.outcome == "silent" else trial), NOT_TRIED
        try:
            second.tell(str(first.wait_for("store", limits.gloo)["port"]))
        except TimeoutError:
            return Trial("silent", limits.gloo, (0,)), NOT_TRIED
        except ChildEnded as error:
            return Trial("ended", 0.0, (0,), str(error)), NOT_TRIED
        gloo = _step(pair, "gloo", limits.gloo)
        if gloo.outcome != "ok" or gpus() < 2:
            return gloo, NOT_TRIED
        for child in pair:
            child.tell("nccl")
        return gloo, _step(pair, "nccl", limits.nccl)


def _step(pair: tuple[Child, Child], name: str, limit: float) -> Trial:
    started = time.monotonic()
    silent, ended, wrong = [], {}, []
    for rank, child in enumerate(pair):
        try:
            event = child.wait_for(name, max(0.0, started + limit - time.monotonic()))
            if not event.get("right", True):
                wrong.append(rank)
        except TimeoutError:
            silent.append(rank)
        except ChildEnded as error:
            ended[rank] = str(error)
    seconds = time.monotonic() - started
    if ended:
        return Trial("ended", seconds, tuple(ended), next(iter(ended.values())))
    if silent:
        return Trial("silent", seconds, tuple(silent))
    return Trial("wrong", seconds, tuple(wrong)) if wrong else Trial("ok", seconds)
