"""From a configuration and a machine to the list of runs: what is measured, in which order, on what."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from mgpu_utils.benchmark.contenders import CONTENDERS, Contender
from mgpu_utils.benchmark.kinds import Fields, Item
from mgpu_utils.benchmark.schema import ConfigError, ModelConfig
from mgpu_utils.machines import spread
from mgpu_utils.planning import Hardware, Plan, decide

TORCH = "torch"
STAND_IN = "threaded stand-in"
AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True)
class Configuration(Fields):
    """One training run to measure, the same in every round.

    Batches in samples; ``total_threads`` over all processes; ``global_batch`` over all devices and micro-batches.
    ``warmup`` is a number of steps or "auto". ``bucket_cap_mb`` None leaves DDP's own. ``num_workers`` None has the
    batches ready in memory; else a DataLoader with so many workers reads samples that take ``load_ms`` each.
    """

    strategy: str
    implementation: str
    device_type: str
    backend: str | None
    world_size: int
    model: str
    scaling: str
    per_device_batch: int
    global_batch: int
    steps: int
    warmup: int | str
    threads_per_process: int
    total_threads: int
    precision: str = "float32"
    accumulation: int = 1
    bucket_cap_mb: float | None = None
    num_workers: int | None = None
    load_ms: float = 0.0
    oversubscribed: bool = False
    nnodes: int = 1

    @property
    def processes(self) -> int:
        """How many processes a run has: one rank a device, or one process for all of them."""
        return CONTENDERS[self.strategy].processes_on(self.world_size)


DEFAULTS = {field.name: field.default for field in fields(Configuration) if field.default is not MISSING}


class Scope(Protocol):
    """What decides the world sizes: the keys of a configuration file, or those of a section."""

    @property
    def world_sizes(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    @property
    def threads_per_process(self) -> int: ...
    @property
    def oversubscribe(self) -> bool: ...


class Comparison(Scope, Protocol):
    """What decides the configurations of a comparison."""

    @property
    def models(self) -> Sequence[ModelConfig]: ...
    @property
    def strategies(self) -> Sequence[Any]: ...
    @property
    def scaling(self) -> Sequence[Any]: ...
    @property
    def precisions(self) -> Sequence[Any]: ...
    @property
    def accumulation(self) -> Sequence[int]: ...


def configurations(
    config: Comparison, hardware: Hardware, environ: Mapping[str, str] | None = None
) -> list[Configuration]:
    """Return what ``config`` measures on ``hardware``, each configuration once.

    Raises: ConfigError for whatever this machine cannot run, before anything is started.
    """
    sizes = world_sizes(config, hardware, environ)
    found: dict[str, Configuration] = {}
    for model in config.models:
        check_model(model.name)
        for scaling in config.scaling:
            for size in sizes:
                plan = planned(config, hardware, size, environ)
                for configuration in _for_one_size(config, model, scaling, size, plan, hardware.cores):
                    found.setdefault(configuration.key, configuration)
    for strategy in config.strategies:
        if not any(configuration.strategy == strategy for configuration in found.values()):
            raise ConfigError(
                f"strategy {strategy} cannot run with world sizes {sizes} on this machine's GPU: it needs a world "
                "size of at least 2, or device cpu"
            )
    return list(found.values())


def world_sizes(config: Scope, hardware: Hardware, environ: Mapping[str, str] | None = None) -> list[int]:
    """Return the world sizes to measure. Raises: ConfigError for one above this machine's cores or GPUs."""
    if config.world_sizes == "auto":
        plan = planned(config, hardware, None, environ)
        on_cpu = plan.backend == "gloo"
        most = max(1, hardware.cores // config.threads_per_process)
        return [min(plan.world_size, most) if on_cpu else plan.world_size]
    for size in config.world_sizes:
        threads = size * config.threads_per_process
        try:
            on_cpu = planned(config, hardware, size, environ).backend == "gloo"
        except ConfigError:
            if config.device == "cuda" or threads <= hardware.cores:
                raise
            on_cpu = True
        if on_cpu and threads > hardware.cores and not config.oversubscribe:
            each = f" with {config.threads_per_process} threads each" if config.threads_per_process > 1 else ""
            have = f"{hardware.cores} usable CPU core" + ("s" if hardware.cores != 1 else "")
            most = hardware.cores // config.threads_per_process
            cure = f"use world sizes up to {most}" if most else "lower threads_per_process"
            raise ConfigError(
                f"world size {size}{each} is above what this machine has ({have}); {cure}, or set oversubscribe: true "
                "to measure it all the same, marked as such"
            )
    return list(config.world_sizes)


def order(items: Sequence[AnyItem], rounds: int, seed: int) -> list[tuple[int, AnyItem]]:
    """Return every item once a round, each round in its own shuffled order.

    Interleaved, so that a machine which slows down on the way slows all of them down alike.
    """
    runs: list[tuple[int, AnyItem]] = []
    for number in range(rounds):
        shuffled = list(items)
        random.Random(seed * 1_000_003 + number).shuffle(shuffled)
        runs.extend((number, item) for item in shuffled)
    return runs


def placed(items: Sequence[Any], one_machine: Hardware, nnodes: int) -> list[Any]:
    """Spread runs over several machines like this one: as few as hold them, equally full.

    What runs in one process stays on the first machine, and is left out where it does not fit there. Raises:
    ConfigError for a world size that cannot be spread equally.
    """
    found: list[Any] = []
    for item in items:
        on_cpu = item.device_type == "cpu"
        strategy = getattr(item, "strategy", None)
        if strategy is not None and CONTENDERS[strategy].processes == "one":
            if (item.total_threads if on_cpu else item.world_size) <= (
                one_machine.cores if on_cpu else one_machine.count
            ):
                found.append(item)
            continue
        most = one_machine.cores // item.threads_per_process if on_cpu else one_machine.count
        try:
            used, _ = spread(item.world_size, max(1, most), nnodes)
        except ValueError as error:
            raise ConfigError(str(error).rstrip(".")) from None
        found.append(replace(item, nnodes=used))
    return found


def planned(config: Scope, hardware: Hardware, size: int | None, environ: Mapping[str, str] | None) -> Plan:
    """The course's decision about devices for this world size. Raises: ConfigError where there is none."""
    try:
        return decide(hardware, size, config.device, environ)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error).rstrip(".")) from None


def check_model(name: str) -> None:
    """Raises: ConfigError for a model that the course does not have."""
    from mgpu_utils.models import MODELS

    if name not in MODELS:
        raise ConfigError(f"model {name} is not known; the models are {', '.join(MODELS)}")


def _for_one_size(
    config: Comparison, model: ModelConfig, scaling: str, size: int, plan: Plan, cores: int
) -> list[Configuration]:
    made = []
    for precision in config.precisions:
        for micro_batches in config.accumulation:
            for strategy in config.strategies:
                contender = CONTENDERS[strategy]
                threads = [config.threads_per_process]
                if contender.on_one_device and plan.rank_devices[0].type == "cpu" and size > 1:
                    # The same budget of threads in one process: else N ranks are compared with idle cores.
                    threads.append(config.threads_per_process * size)
                for count in threads:
                    item = _one(contender, model, scaling, size, plan, count, precision, micro_batches, cores)
                    if item is not None:
                        made.append(item)
    return made


def _one(
    contender: Contender,
    model: ModelConfig,
    scaling: str,
    size: int,
    plan: Plan,
    threads: int,
    precision: str,
    micro_batches: int,
    cores: int,
) -> Configuration | None:
    on_cpu = plan.rank_devices[0].type == "cpu"
    one_process = contender.processes == "one"
    if one_process and not contender.on_one_device and not on_cpu and size == 1:
        # On one GPU nn.DataParallel only calls the plain module, which `single` measures already.
        return None
    devices = 1 if contender.on_one_device else size
    if scaling == "weak":
        per_device = model.per_device_batch
    else:
        pieces = devices * micro_batches
        if model.global_batch % pieces:
            into = f"world size {size}" + (f" times {micro_batches} micro-batches" if micro_batches > 1 else "")
            raise ConfigError(
                f"global_batch {model.global_batch} of {model.name} does not divide by {into}; strong "
                "scaling measures fixed shapes only, so choose a batch that divides"
            )
        per_device = model.global_batch // pieces
    total_threads = threads * devices
    return Configuration(
        strategy=contender.name,
        implementation=STAND_IN if one_process and not contender.on_one_device and on_cpu else TORCH,
        device_type=plan.rank_devices[0].type,
        backend=plan.backend if contender.communicates else None,
        world_size=devices,
        model=model.name,
        scaling=scaling,
        per_device_batch=per_device,
        global_batch=per_device * devices * micro_batches,
        steps=model.steps,
        warmup=model.warmup,
        threads_per_process=threads,
        total_threads=total_threads,
        precision=precision,
        accumulation=micro_batches,
        oversubscribed=on_cpu and total_threads > cores,
    )
