"""What one machine's part of a launch did, and what the parts of all machines come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mgpu_utils import torchrun_logs
from mgpu_utils.torchrun_logs import RankLog

_LONGEST_LOG = 2**16


@dataclass(frozen=True)
class Outcome:
    """The launcher's exit code, whether it ended by itself, and of each rank of this machine its value and log.

    ``delivered`` holds ``[value]`` for a rank that delivered, None for one that did not.
    """

    returncode: int
    finished: bool
    delivered: list[list[Any] | None]
    ranks: list[RankLog]
    said: str

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON-able data for another machine, the end of each long log only."""
        ranks = [
            asdict(log) | {"stdout": log.stdout[-_LONGEST_LOG:], "stderr": log.stderr[-_LONGEST_LOG:]}
            for log in self.ranks
        ]
        ok = failure({0: self}) is None
        return asdict(self) | {"ranks": ranks, "said": self.said[-_LONGEST_LOG:], "ok": ok}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """Return the outcome which another machine sent."""
        fields = {name: data[name] for name in ("returncode", "finished", "delivered", "said")}
        return cls(ranks=[RankLog(**log) for log in data["ranks"]], **fields)


def failure(outcomes: Mapping[int, Outcome]) -> str | None:
    """Return why a launch failed, None where it went well; ``outcomes`` by node rank.

    A rank that delivered has succeeded, however its process ended; where none delivers, the exit codes count.
    """
    delivered = [value for outcome in outcomes.values() for value in outcome.delivered]
    if all(delivered) or not (any(delivered) or any(outcome.returncode for outcome in outcomes.values())):
        return None
    reasons = [
        (outcome.finished, node_rank, torchrun_logs.failure(outcome.ranks, outcome.said, outcome.returncode))
        for node_rank, outcome in sorted(outcomes.items())
        if not all(outcome.delivered)
    ]
    # The machine that was ended from outside, or only saw another one go, does not know the cause.
    _, node_rank, reason = min(reasons, key=lambda one: (not one[0], torchrun_logs.is_echo(one[2])))
    return reason if len(outcomes) == 1 else f"node rank {node_rank}, {reason}"
