"""Measure a list of configurations one run after another, each in fresh processes, and keep every record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mgpu_utils import torchrun
from mgpu_utils.benchmark import records
from mgpu_utils.benchmark.plan import Configuration
from mgpu_utils.benchmark.progress import follow
from mgpu_utils.benchmark.settings import Settings

Run = tuple[int, Configuration]


def measure_all(
    runs: list[Run],
    records_path: Path,
    *,
    seed: int,
    timeout: float,
    samples_per_epoch: int,
    progress: Callable[[Iterable[Run]], Iterable[Run]] = iter,
) -> list[records.Record]:
    """Measure what `records_path` does not hold yet, appending each record; return the latest of every run.

    A run that fails is recorded with its reason and the next one goes on.
    """
    with torchrun.Launcher() as launcher:
        for number, configuration in progress(records.remaining(runs, records.read(records_path))):
            record = measure_one(configuration, number, launcher=launcher, seed=seed, timeout=timeout)
            record["steps_per_epoch"] = -(-samples_per_epoch // configuration.global_batch)
            records.append(records_path, record)
    return records.latest(records.read(records_path))


def measure_one(
    configuration: Configuration, number: int, *, launcher: torchrun.Launcher, seed: int, timeout: float
) -> records.Record:
    """Measure one configuration once in fresh processes; return its record, whether it went well or not."""
    job = configuration.to_dict() | {"seed": seed}
    started_at = time.time()
    result = launcher.run(
        "mgpu_utils.benchmark.worker",
        [json.dumps(job)],
        nproc_per_node=configuration.processes,
        threads_per_rank=configuration.threads_per_process,
        timeout=timeout,
    )
    record = configuration.to_dict() | {"round": number}
    if not result.ok:
        return record | {"status": "failed", "reason": result.reason, "total_seconds": result.seconds}
    return record | {"status": "ok", "total_seconds": result.seconds} | combine(result.delivered, started_at)


def combine(ranks: list[dict[str, Any]], started_at: float) -> records.Record:
    """Put together what the ranks of one run measured.

    The slowest rank sets the time: samples of all ranks over its seconds is the total, and a rank's share of
    that total stands beside it, so that neither is read as the other.
    """
    seconds = max(rank["seconds"] for rank in ranks)
    total = sum(rank["samples"] for rank in ranks) / seconds
    return {
        "seconds": seconds,
        "seconds_per_rank": [rank["seconds"] for rank in ranks],
        "samples_per_second": total,
        "samples_per_second_per_rank": total / len(ranks),
        "warmup_seconds": max(rank["warmup_seconds"] for rank in ranks),
        "startup_seconds": max(rank["ready_at"] for rank in ranks) - started_at,
    }


def measure(settings: Settings) -> list[records.Record]:
    """Measure what the folder does not hold yet, showing progress; return the latest record of every run."""
    return measure_all(
        settings.runs,
        settings.records_path,
        seed=settings.config.seed,
        timeout=settings.config.timeout_seconds,
        samples_per_epoch=settings.config.samples_per_epoch,
        progress=follow,
    )
