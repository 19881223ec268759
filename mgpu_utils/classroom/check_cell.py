"""Run one check inside the learner's kernel and publish its result for the process that marks.

Imported anew from its file for each check, as are the checks themselves: what the notebook's code did to the
modules of this package in its own process changes no mark.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from mgpu_utils.classroom.kernel_session import MARK

_ANEW = ("mgpu_utils.exercises", "mgpu_utils.lesson_checks")
_WORDS = {"right": "passed", "wrong": "wrong", "error": "error", "open": "open"}


def mark(
    nonce: str,
    name: str,
    arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
    start_ranks: Callable[[], Any] | None = None,
    world_size: int = 0,
) -> None:
    """Check exercise `name` and publish its status with the `nonce` that only this call was given.

    `arguments` is called for what the check takes; `start_ranks` makes the ranks of the lesson anew where those of
    the notebook are gone, or are others.
    """
    from IPython.display import display

    try:
        given, named = arguments()
    except Exception as error:
        status, message = "error", f"{type(error).__name__}: {error}"
    else:
        if "ranks" in named and start_ranks is not None:
            named["ranks"] = _usable(named["ranks"], start_ranks, world_size)
        for module in [module for module in sys.modules if module.startswith(_ANEW)]:
            del sys.modules[module]
        card = importlib.import_module("mgpu_utils.exercises").check(name, *given, **named)
        status, message = _WORDS[card.kind], " ".join(card.lines)
    display({MARK: {"nonce": nonce, "name": name, "status": status, "message": message}}, raw=True)


def _usable(ranks: Any, start_ranks: Callable[[], Any], world_size: int) -> Any:
    from mgpu_utils.ranks import RankGroup

    if type(ranks) is not RankGroup or (world_size and ranks.world_size != world_size):
        return start_ranks()
    if ranks.needs_restart or not ranks._kernels:
        ranks.restart()
    return ranks
