"""Measure one run after another, each in fresh processes, and keep every record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from mgpu_utils import torchrun
from mgpu_utils.benchmark import machine_load, records
from mgpu_utils.benchmark.kinds import Item, Record
from mgpu_utils.benchmark.launching import launch
from mgpu_utils.benchmark.plan import Configuration
from mgpu_utils.benchmark.progress import follow
from mgpu_utils.benchmark.settings import Settings
from mgpu_utils.benchmark.warmup import slowest
from mgpu_utils.machine_crew import Crew

Run = tuple[int, Any]


def measure(settings: Settings) -> list[Record]:
    """Measure what the folder does not hold yet, showing progress; return the latest record of every run."""
    with torchrun.Launcher(Crew.from_environment()) as launcher:
        return measure_all(settings, launcher=launcher, progress=follow)


def measure_all(
    settings: Settings,
    *,
    launcher: torchrun.Launcher,
    progress: Callable[[Iterable[Run]], Iterable[Run]] = iter,
) -> list[Record]:
    """Measure what the folder does not hold yet, appending each record; return the latest of every run.

    A run that fails is recorded with its reason and the next one goes on.
    """
    path = settings.records_path
    with settings.alone():
        for number, item in progress(records.remaining(settings.runs, records.read(path))):
            records.append(path, _one_record(settings, item, number, launcher))
    return records.latest(records.read(path))


def measure_one(
    configuration: Configuration, number: int, *, launcher: torchrun.Launcher, seed: int, timeout: float
) -> Record:
    """Measure one training run once in fresh processes; return its record, whether it went well or not."""
    started_at = time.time()
    each = configuration.processes // configuration.nnodes
    record, ranks = launch(
        launcher,
        "mgpu_utils.benchmark.worker",
        configuration,
        configuration.to_dict() | {"seed": seed},
        processes=each,
        threads=configuration.threads_per_process,
        timeout=timeout,
        nnodes=configuration.nnodes,
    )
    record["round"] = number
    return record | combine(ranks, started_at, on_this_machine=each) if ranks else record


def combine(ranks: list[dict[str, Any]], started_at: float, on_this_machine: int | None = None) -> Record:
    """Put together what the ranks of one run measured.

    The slowest rank sets the time: samples of all ranks over its seconds is the total, and a rank's share of
    that total stands beside it, so that neither is read as the other. A step's time is that of its slowest rank.
    The clocks of two machines differ, so start-up is told by the first `on_this_machine` ranks.
    """
    seconds = max(rank["seconds"] for rank in ranks)
    total = sum(rank["samples"] for rank in ranks) / seconds
    steps = [rank.get("step_seconds") or [] for rank in ranks]
    return {
        "seconds": seconds,
        "seconds_per_rank": [rank["seconds"] for rank in ranks],
        "samples_per_second": total,
        "samples_per_second_per_rank": total / len(ranks),
        "step_seconds": slowest(steps),
        "warmup_seconds": max(rank["warmup_seconds"] for rank in ranks),
        **{name: ranks[0][name] for name in ("warmup_steps", "warmup_slow_steps", "warmup_steady") if name in ranks[0]},
        "startup_seconds": max(rank["ready_at"] for rank in ranks[:on_this_machine]) - started_at,
        "peak_memory": [rank["peak_memory"] for rank in ranks if "peak_memory" in rank],
    }


def _one_record(settings: Settings, item: Item, number: int, launcher: torchrun.Launcher) -> Record:
    head = {
        "benchmark": settings.kind.name,
        "key": item.key,
        "round": number,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with machine_load.watch() as load:
        record = settings.kind.measure_one(
            item, number, launcher=launcher, seed=settings.config.seed, timeout=settings.config.timeout_seconds
        )
    return head | record | {"machine": load}
