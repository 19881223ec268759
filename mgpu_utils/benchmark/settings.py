"""What one benchmark run does: its parameters checked and converted, its folder prepared."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgpu_utils.benchmark import records, several_machines
from mgpu_utils.benchmark.config import BenchmarkConfig, ConfigError, dump, load, plain, validate
from mgpu_utils.benchmark.environment import differences, environment, hardware
from mgpu_utils.benchmark.kinds import NAMES, Kind, get
from mgpu_utils.benchmark.plan import order, placed
from mgpu_utils.devices import survey
from mgpu_utils.file_lock import locked
from mgpu_utils.whole_file import write_whole

RECORDS, CONFIG, ENVIRONMENT, SUMMARY = "records.jsonl", "config.yaml", "environment.json", "summary.csv"
LOCK = ".lock"


class ParameterError(ValueError):
    """A notebook parameter whose value cannot be used; the sentence names the parameter."""


@dataclass(frozen=True)
class Settings:
    """One benchmark's effective configuration, what it means on this machine, and the folder of its results."""

    kind: Kind
    config: BenchmarkConfig
    out: Path
    environment: dict[str, Any]
    configurations: Sequence[Any]

    @property
    def section(self) -> Any:
        """What this benchmark is to do."""
        return self.config.section(self.kind.name)

    @property
    def rounds(self) -> int:
        """How often each configuration is measured."""
        return self.kind.rounds(self.section, self.config)

    @property
    def runs(self) -> list[tuple[int, Any]]:
        """Every run as (round, configuration), in the order of measuring."""
        return order(self.configurations, self.rounds, self.config.seed)

    @property
    def records_path(self) -> Path:
        """The file that holds what was measured."""
        return self.out / RECORDS

    def prepare(self, *, resume: bool) -> None:
        """Make the folder ready. Raises: ConfigError when what lies there does not fit (see `check_folder`)."""
        self.check_folder(resume=resume)
        self.out.mkdir(parents=True, exist_ok=True)
        write_whole(self.out / CONFIG, dump(self.config))
        write_whole(self.out / ENVIRONMENT, json.dumps(self.environment, indent=2) + "\n")

    def check_folder(self, *, resume: bool) -> None:
        """Raises: ConfigError when the folder holds results and ``resume`` is off, or results of something else."""
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"{self.out} is a file; the results need a folder")
        if not any((self.out / name).exists() for name in (RECORDS, SUMMARY)):
            others = sorted(path.name for path in self.out.glob("*")) if self.out.is_dir() else []
            if not resume and set(others) - {CONFIG, ENVIRONMENT, LOCK, *NAMES}:
                raise ConfigError(f"{self.out} holds other files ({', '.join(others[:3])}, ...); choose an empty --out")
            return
        if not resume:
            raise ConfigError(
                f"{self.out} holds results already; add --resume to go on there (in the notebook: "
                "resume = True), or choose another --out"
            )
        if not self.records_path.exists():
            return
        if (self.out / CONFIG).is_file():
            changed = _changed(plain(load(self.out / CONFIG)), plain(self.config))
            if changed:
                raise ConfigError(
                    f"{self.out} was measured with another configuration ({'; '.join(changed)}); choose another --out, "
                    "or resume with the configuration it was started with"
                )
        if (self.out / ENVIRONMENT).is_file():
            before = json.loads((self.out / ENVIRONMENT).read_text(encoding="utf-8"))
            changed = differences(before, self.environment)
            if changed:
                raise ConfigError(
                    f"{self.out} was measured on something else ({'; '.join(changed)}), which does not belong in one "
                    "table with this; choose another --out"
                )
        records.read(self.records_path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While entered, no other process measures into this folder. Raises: ConfigError when one does."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.out / LOCK, patience=0.0))
            except TimeoutError:
                raise ConfigError(
                    f"another benchmark is measuring into {self.out} at this moment; wait for it, "
                    "or choose another --out"
                ) from None
            yield

    def __str__(self) -> str:
        about = [
            f"benchmark    {self.kind.name}",
            *self.kind.description(self.section, self.configurations),
            f"rounds       {self.rounds}, seed {self.config.seed}",
            f"runs         {len(self.runs)}, each in fresh processes",
        ]
        return "\n".join(about)


def settle(
    config: BenchmarkConfig, out: str | Path, benchmark: str = "compare", *, nnodes: int | None = None
) -> Settings:
    """Check one benchmark of ``config`` against this machine, or against ``nnodes`` machines like it.

    Raises: ConfigError for what cannot run here.
    """
    kind = get(benchmark)
    if benchmark not in config.benchmarks:
        wanted = "models at the top level" if benchmark == "compare" else f"a section {benchmark}"
        raise ConfigError(f"this configuration has no part for {benchmark}: it needs {wanted}")
    found = survey()
    mine = config.only(benchmark)
    nnodes = several_machines.nnodes() if nnodes is None else nnodes
    one = hardware(found)
    items: list[Any]
    if nnodes > 1 and kind.on_several_machines:
        all_of_them = replace(one, count=one.count * nnodes, cores=one.cores * nnodes)
        items = placed(kind.configurations(mine.section(benchmark), mine, all_of_them, os.environ), one, nnodes)
    else:
        items = list(kind.configurations(mine.section(benchmark), mine, one, os.environ))
    return Settings(
        kind=kind,
        config=mine,
        out=Path(out),
        environment=environment(found, threads_per_process=config.threads_per_process),
        configurations=items,
    )


def from_parameters(
    benchmark: str = "compare",
    *,
    config: Any,
    out: Any,
    steps: Any = 0,
    world_sizes: Any = (),
    quick: Any = False,
    resume: Any = False,
) -> Settings:
    """Check and convert a notebook's parameters, then prepare the folder of the results.

    papermill hands lists, lower-case booleans and numbers like ``1e1`` over as texts or floats; each is
    converted here. ``steps`` 0 and empty ``world_sizes`` leave the configuration file's; ``quick`` measures as
    little as shows that everything runs.

    Raises: ParameterError naming the parameter; ConfigError for what the configuration file holds.
    """
    whole = load(_text("config", config))
    count, sizes = whole_number("steps", steps, least=0), whole_numbers("world_sizes", world_sizes)
    if benchmark not in whole.benchmarks:
        raise ConfigError(f"{config}: has no part for {benchmark}; it has {', '.join(whole.benchmarks)}.")
    kind, section = get(benchmark), whole.section(benchmark)
    if yes_or_no("quick", quick):
        section = kind.quick(section)
    if sizes:
        section = section.model_copy(update={"world_sizes": sizes})
    if count:
        models = [model.model_copy(update={"steps": count}) for model in section.models]
        section = section.model_copy(update={"models": models})
    chosen = whole.with_section(benchmark, section)
    settings = settle(validate(plain(chosen.only(benchmark)), source=str(config)), _text("out", out), benchmark)
    settings.prepare(resume=yes_or_no("resume", resume))
    return settings


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """Return ``value`` (10, 10.0, "10", "1e1") as an int. Raises: ParameterError naming ``name``."""
    number = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError):
            number = float(value)
    if not number.is_integer() or number < least:
        raise ParameterError(f"parameter {name} is {value!r}, but must be a whole number of at least {least}.")
    return int(number)


def whole_numbers(name: str, value: Any) -> list[int]:
    """Return ``value`` ([1, 2], "[1,2]", "1,2", 2) as a list of ints. Raises: ParameterError naming ``name``."""
    items = value
    if isinstance(value, str):
        items = value.strip().removeprefix("[").removesuffix("]")
        items = items.split(",") if items else []
    elif isinstance(value, int):
        items = [value]
    try:
        if isinstance(items, (list, tuple)):
            return [whole_number(name, item) for item in items]
    except ParameterError:
        pass
    raise ParameterError(
        f"parameter {name} is {value!r}, but must be a list of whole numbers of at least 1, like [1, 2]."
    )


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` (True, "false", "True") as a bool. Raises: ParameterError naming ``name``."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ParameterError(f"parameter {name} is {value!r}, but must be true or false.")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"parameter {name} is {value!r}, but must be the path of a file or folder.")
    return value


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [f"{key} was {before.get(key)}, is {now[key]}" for key in now if before.get(key) != now[key]]
