"""Made-up configurations and records, so that arithmetic is tested without running anything."""

from __future__ import annotations

from typing import Any


def plain_config(**changes: Any) -> dict[str, Any]:
    """A valid configuration as plain data."""
    model = {"name": "digits_cnn", "per_device_batch": 32, "global_batch": 50, "steps": 10, "warmup": 2}
    return {"models": [model], "scaling": ["weak"], "world_sizes": [2], "rounds": 5} | changes


def record(strategy: str, number: int, samples_per_second: float, **changes: Any) -> dict[str, Any]:
    """A record of a run that went well, on two CPU ranks unless said otherwise."""
    processes = 2 if strategy in ("ddp", "independent") else 1
    size = 1 if strategy == "single" else 2
    return {
        "strategy": strategy,
        "implementation": "threaded stand-in" if strategy == "data_parallel" else "torch",
        "device_type": "cpu",
        "backend": "gloo" if strategy == "ddp" else None,
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
        "seconds": 1.0,
        "samples_per_second": samples_per_second,
        "samples_per_second_per_rank": samples_per_second / processes,
        "warmup_seconds": 0.1,
        "startup_seconds": 3.0,
    } | changes
