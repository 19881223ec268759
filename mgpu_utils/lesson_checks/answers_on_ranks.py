"""Run a learner's answer on the ranks for a check.

Ranks that freeze or get out of step are a wrong answer: explained, and the group restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgpu_utils.exercises import Wrong
from mgpu_utils.hangs import explain
from mgpu_utils.rank_errors import RankError, RankTimeout

# Generous: the first DDP wrap of a fresh rank takes seconds on a busy machine.
PATIENCE = 20.0


def run_answer(ranks: Any, function: Callable[..., Any], *args: Any, advice: str = "") -> list[Any]:
    """One result a rank of `function(*args)`, with a group that is ready for use afterwards, whatever happened.

    Raises Wrong when the ranks wait for each other for ever or call collectives that do not match, with the
    exercise's own `advice` at its end, and RankError when the answer raises on a rank.
    """
    patience, ranks.timeout = ranks.timeout, min(PATIENCE, ranks.timeout)
    try:
        return list(ranks.run(function, *args))
    except RankTimeout as error:
        ranks.restart()
        places = ". ".join(str(state) for state in error.states)
        why = f"the ranks got stuck, and were restarted. {explain(list(error.states))} {places}. {advice}"
        raise Wrong(why.rstrip()) from None
    except RankError as error:
        # A rank that raised can answer again; one that died, or was ended while it waited for that one, cannot.
        if not ranks.needs_restart:
            raise
        ranks.restart()
        if error.failures and error.failures[0].kind == "mismatched":
            # Without what only a cell needs: how to restart the group, and where to read more.
            steps = ". ".join(line.strip(" .") for line in str(error).splitlines()[:-2])
            raise Wrong(f"the ranks got out of step, and were restarted: {steps}. {advice}".rstrip()) from None
        done = "The ranks were restarted, and can be used."
        told = [done if "`ranks.restart()`" in line else line for line in str(error).splitlines()]
        raise RankError("\n".join(told), error.failures) from None
    finally:
        ranks.timeout = patience
