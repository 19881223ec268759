"""From a configuration and a machine to the list of runs: what is measured, in which order, on what."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mgpu_utils.benchmark.config import BenchmarkConfig, ConfigError, ModelConfig, StrategyName
from mgpu_utils.planning import Hardware, Plan, decide

TORCH = "torch"
STAND_IN = "threaded stand-in"


@dataclass(frozen=True)
class Configuration:
    """One thing to measure, the same in every round. Batches in samples; ``total_threads`` over all processes."""

    strategy: StrategyName
    implementation: str
    device_type: str
    backend: str | None
    world_size: int
    model: str
    scaling: str
    per_device_batch: int
    global_batch: int
    steps: int
    warmup: int
    threads_per_process: int
    total_threads: int

    @property
    def key(self) -> str:
        """A text which tells this configuration from every other one."""
        return "/".join(str(value) for value in asdict(self).values())

    @property
    def processes(self) -> int:
        """How many processes a run has: one rank a device, or one process for all of them."""
        return self.world_size if self.strategy in ("ddp", "independent") else 1

    def to_dict(self) -> dict[str, Any]:
        """The fields as a record holds them."""
        return asdict(self)


def configurations(
    config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str] | None = None
) -> list[Configuration]:
    """Return what ``config`` measures on ``hardware``, each configuration once.

    Raises: ConfigError for whatever this machine cannot run, before anything is started.
    """
    sizes = world_sizes(config, hardware, environ)
    known = _known_models()
    found: dict[str, Configuration] = {}
    for model in config.models:
        if model.name not in known:
            raise ConfigError(f"model {model.name} is not known; the models are {', '.join(known)}")
        for scaling in config.scaling:
            for size in sizes:
                plan = _planned(config, hardware, size, environ)
                for configuration in _for_one_size(config, model, scaling, size, plan):
                    found.setdefault(configuration.key, configuration)
    for strategy in config.strategies:
        if not any(configuration.strategy == strategy for configuration in found.values()):
            raise ConfigError(
                f"strategy {strategy} cannot run with world sizes {sizes} on this machine's GPU: it needs a world "
                "size of at least 2, or device cpu"
            )
    return list(found.values())


def world_sizes(config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str] | None = None) -> list[int]:
    """Return the world sizes to measure. Raises: ConfigError for one above this machine's cores or GPUs."""
    if config.world_sizes == "auto":
        plan = _planned(config, hardware, None, environ)
        on_cpu = plan.backend == "gloo"
        most = max(1, hardware.cores // config.threads_per_process)
        return [min(plan.world_size, most) if on_cpu else plan.world_size]
    for size in config.world_sizes:
        threads = size * config.threads_per_process
        try:
            on_cpu = _planned(config, hardware, size, environ).backend == "gloo"
        except ConfigError:
            if config.device == "cuda" or threads <= hardware.cores:
                raise
            on_cpu = True
        if on_cpu and threads > hardware.cores:
            each = f" with {config.threads_per_process} threads each" if config.threads_per_process > 1 else ""
            have = f"{hardware.cores} usable CPU core" + ("s" if hardware.cores != 1 else "")
            most = hardware.cores // config.threads_per_process
            cure = f"use world sizes up to {most}" if most else "lower threads_per_process"
            raise ConfigError(f"world size {size}{each} is above what this machine has ({have}); {cure}")
    return list(config.world_sizes)


def order(items: list[Configuration], rounds: int, seed: int) -> list[tuple[int, Configuration]]:
    """Return every configuration once a round, each round in its own shuffled order.

    Interleaved, so that a machine which slows down on the way slows all configurations down alike.
    """
    runs: list[tuple[int, Configuration]] = []
    for number in range(rounds):
        shuffled = list(items)
        random.Random(seed * 1_000_003 + number).shuffle(shuffled)
        runs.extend((number, item) for item in shuffled)
    return runs


def _for_one_size(
    config: BenchmarkConfig, model: ModelConfig, scaling: str, size: int, plan: Plan
) -> list[Configuration]:
    if scaling == "strong" and model.global_batch % size:
        raise ConfigError(
            f"global_batch {model.global_batch} of {model.name} does not divide by world size {size}; strong "
            "scaling measures fixed shapes only, so choose a batch that divides"
        )
    one_thread = config.threads_per_process
    on_cpu = plan.rank_devices[0].type == "cpu"
    shared: dict[str, Any] = {
        "device_type": plan.rank_devices[0].type,
        "model": model.name,
        "scaling": scaling,
        "steps": model.steps,
        "warmup": model.warmup,
    }
    per_device = model.per_device_batch if scaling == "weak" else model.global_batch // size
    together = per_device * size
    alone = model.per_device_batch if scaling == "weak" else model.global_batch
    made: list[Configuration] = []

    def add(strategy: StrategyName, **fields: Any) -> None:
        defaults: dict[str, Any] = {
            "implementation": TORCH,
            "backend": None,
            "world_size": size,
            "per_device_batch": per_device,
            "global_batch": together,
            "threads_per_process": one_thread,
            "total_threads": one_thread * size,
        }
        made.append(Configuration(strategy=strategy, **shared, **(defaults | fields)))

    for strategy in config.strategies:
        if strategy == "single":
            one: dict[str, Any] = {"world_size": 1, "per_device_batch": alone, "global_batch": alone}
            add("single", **one, total_threads=one_thread)
            if on_cpu and size > 1:
                # The same budget of threads in one process: else N ranks are compared with idle cores.
                add("single", **one, threads_per_process=one_thread * size)
        elif strategy == "data_parallel":
            # On one GPU nn.DataParallel only calls the plain module, which `single` measures already.
            if on_cpu or size > 1:
                add("data_parallel", implementation=STAND_IN if on_cpu else TORCH)
        elif strategy == "ddp":
            add("ddp", backend=plan.backend)
        else:
            add("independent")
    return made


def _planned(config: BenchmarkConfig, hardware: Hardware, size: int | None, environ: Mapping[str, str] | None) -> Plan:
    try:
        plan = decide(hardware, size, config.device, environ)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error).rstrip(".")) from None
    return plan


def _known_models() -> list[str]:
    from mgpu_utils.models import MODELS

    return list(MODELS)
