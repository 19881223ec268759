"""Made-up result folders: what `mgpu bench` would leave behind, written without measuring anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]

LAPTOP: dict[str, Any] = {
    "system": "Linux",
    "architecture": "x86_64",
    "python": "3.11.7",
    "versions": {"torch": "2.13.0+cpu", "numpy": "2.4.6", "mgpu-utils": "0.1.0"},
    "torch_build": "CPU only",
    "accelerator": None,
    "device_count": 0,
    "device_names": [],
    "device_memory": [],
    "cpu": "Example Processor 9000",
    "cores_usable": 2,
    "cores_in_machine": 2,
    "threads_per_process": 1,
}
TWO_GPUS = LAPTOP | {
    "versions": LAPTOP["versions"] | {"torch": "2.13.0+cu130"},
    "torch_build": "CUDA 13.0",
    "accelerator": "cuda",
    "device_count": 2,
    "device_names": ["Example GPU 80GB", "Example GPU 80GB"],
    "device_memory": [80 * 2**30] * 2,
    "cores_usable": 16,
    "cores_in_machine": 16,
}
CONFIG = """models:
- name: digits_cnn
  per_device_batch: 32
  global_batch: 64
  steps: 10
  warmup: 2
rounds: 5
"""
SPEEDS = {"single": 1000.0, "data_parallel": 700.0, "ddp": 1400.0, "independent": 1800.0}
SPREAD = (1.0, 1.01, 0.99, 1.02, 0.98)


def run(strategy: str, number: int, samples_per_second: float, **changes: Any) -> Record:
    """The record of one training run that went well, on CPU ranks unless said otherwise."""
    processes = 2 if strategy in ("ddp", "independent") else 1
    size = 1 if strategy == "single" else 2
    on_gpu = changes.get("device_type") == "cuda"
    stand_in = strategy == "data_parallel" and not on_gpu
    record = {
        "strategy": strategy,
        "implementation": "threaded stand-in" if stand_in else "torch",
        "device_type": "cpu",
        "backend": ("nccl" if on_gpu else "gloo") if strategy == "ddp" else None,
        "world_size": size,
        "model": "digits_cnn",
        "scaling": "weak",
        "per_device_batch": 32,
        "global_batch": 32 * size,
        "steps": 10,
        "warmup": 2,
        "threads_per_process": 1,
        "total_threads": size,
        "round": number,
        "status": "ok",
        "steps_per_epoch": 45 // size,
        "seconds": 320 * size / samples_per_second,
        "samples_per_second": samples_per_second,
        "samples_per_second_per_rank": samples_per_second / processes,
        "warmup_seconds": 0.1,
        "startup_seconds": 3.0,
        "measured_at": f"2026-05-0{number + 1}T10:00:00+00:00",
    }
    return record | changes


def failed(record: Record, reason: str) -> Record:
    """The record of the same run, gone wrong."""
    measured = ("seconds", "samples_per_second", "samples_per_second_per_rank", "warmup_seconds", "startup_seconds")
    kept = {name: value for name, value in record.items() if name not in measured}
    return kept | {"status": "failed", "reason": reason}


def runs(factor: float = 1.0, rounds: int = 5, slower: dict[str, float] | None = None, **changes: Any) -> list[Record]:
    """Every strategy in so many rounds; ``slower`` multiplies the speed of single strategies."""
    return [
        run(name, number, speed * factor * SPREAD[number % 5] * (slower or {}).get(name, 1.0), **changes)
        for number in range(rounds)
        for name, speed in SPEEDS.items()
    ]


def call(size: int, number: int, seconds: float, **changes: Any) -> Record:
    """A record of a benchmark that this version knows nothing about."""
    name = f"all_reduce/{size}"
    about = {"benchmark": "made_up_kind", "key": name, "round": number, "status": "ok"}
    return about | {"bytes": size, "seconds": seconds} | changes


def write_result(
    folder: Path,
    records: Iterable[Record],
    environment: dict[str, Any] | None = LAPTOP,
    config: str | None = CONFIG,
    change: Callable[[str], str] = lambda text: text,
) -> Path:
    """Write a result folder and return it; ``change`` may damage the text of its records."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "records.jsonl").write_text(change(text))
    if environment is not None:
        (folder / "environment.json").write_text(json.dumps(environment))
    if config is not None:
        (folder / "config.yaml").write_text(config)
    return folder
