"""One measured launch: a worker module in fresh processes, and the record of how it went."""

from __future__ import annotations

import json
from typing import Any

from mgpu_utils.benchmark.kinds import Item, Record
from mgpu_utils.torchrun import Launcher


def launch(
    launcher: Launcher,
    module: str,
    item: Item,
    job: dict[str, Any],
    *,
    processes: int,
    threads: int,
    timeout: float,
    nnodes: int = 1,
) -> tuple[Record, list[Any]]:
    """Run a worker module on `job`; return the record so far and what its ranks delivered, nothing where it failed.

    The record holds the item's fields, `total_seconds`, and `status` ("ok", or "failed" with `reason`). `processes` and
    `threads` count those of one machine and of one process.
    """
    result = launcher.run(
        module,
        [json.dumps(job)],
        nproc_per_node=processes,
        nnodes=nnodes,
        threads_per_rank=threads,
        timeout=timeout,
        # Once an accelerator is in use a process cannot be forked.
        fork=job["device_type"] == "cpu",
    )
    record = item.to_dict() | {"total_seconds": result.seconds}
    if not result.ok:
        return record | {"status": "failed", "reason": result.reason}, []
    if all(value is None for value in result.delivered):
        return record | {"status": "failed", "reason": "it ended (sys.exit?) before any rank delivered a result"}, []
    return record | {"status": "ok"}, result.delivered
