"""What one benchmark run does: its parameters checked and converted, its folder prepared."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_utils.benchmark import records
from mgpu_utils.benchmark.config import BenchmarkConfig, ConfigError, dump, load, validate
from mgpu_utils.benchmark.environment import differences, environment, hardware
from mgpu_utils.benchmark.plan import Configuration, configurations, order
from mgpu_utils.devices import survey

RECORDS, CONFIG, ENVIRONMENT, SUMMARY = "records.jsonl", "config.yaml", "environment.json", "summary.csv"


class ParameterError(ValueError):
    """A notebook parameter whose value cannot be used; the sentence names the parameter."""


@dataclass(frozen=True)
class Settings:
    """The effective configuration, what it means on this machine, and the folder of the results."""

    config: BenchmarkConfig
    out: Path
    environment: dict[str, Any]
    configurations: list[Configuration]

    @property
    def runs(self) -> list[tuple[int, Configuration]]:
        """Every run as (round, configuration), in the order of measuring."""
        return order(self.configurations, self.config.rounds, self.config.seed)

    @property
    def records_path(self) -> Path:
        """The file that holds what was measured."""
        return self.out / RECORDS

    def prepare(self, *, resume: bool) -> None:
        """Make the folder ready. Raises: ConfigError when what lies there does not fit (see `check_folder`)."""
        self.check_folder(resume=resume)
        self.out.mkdir(parents=True, exist_ok=True)
        replace_text(self.out / CONFIG, dump(self.config))
        replace_text(self.out / ENVIRONMENT, json.dumps(self.environment, indent=2) + "\n")

    def check_folder(self, *, resume: bool) -> None:
        """Raises: ConfigError when the folder holds results and ``resume`` is off, or results of something else."""
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"{self.out} is a file; the results need a folder")
        if not any((self.out / name).exists() for name in (RECORDS, SUMMARY)):
            others = sorted(path.name for path in self.out.glob("*")) if self.out.is_dir() else []
            if not resume and set(others) - {CONFIG, ENVIRONMENT}:
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
            changed = _changed(load(self.out / CONFIG).model_dump(), self.config.model_dump())
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

    def __str__(self) -> str:
        names = dict.fromkeys(item.strategy for item in self.configurations)
        sizes = sorted({item.world_size for item in self.configurations})
        models = ", ".join(f"{model.name} ({model.steps} steps)" for model in self.config.models)
        return "\n".join(
            [
                f"models       {models}",
                f"strategies   {', '.join(names)}",
                f"scaling      {', '.join(self.config.scaling)}",
                f"world sizes  {', '.join(map(str, sizes))}",
                f"rounds       {self.config.rounds}, seed {self.config.seed}",
                f"threads      {self.config.threads_per_process} a process",
                f"runs         {len(self.runs)}, each in fresh processes",
            ]
        )


def settle(config: BenchmarkConfig, out: str | Path) -> Settings:
    """Check ``config`` against this machine. Raises: ConfigError for what cannot run here."""
    found = survey()
    return Settings(
        config=config,
        out=Path(out),
        environment=environment(found, threads_per_process=config.threads_per_process),
        configurations=configurations(config, hardware(found), os.environ),
    )


def from_parameters(
    *, config: Any, out: Any, steps: Any = 0, world_sizes: Any = (), quick: Any = False, resume: Any = False
) -> Settings:
    """Check and convert a notebook's parameters, then prepare the folder of the results.

    papermill hands lists, lower-case booleans and numbers like ``1e1`` over as texts or floats; each is
    converted here. ``steps`` 0 and empty ``world_sizes`` leave the configuration file's; ``quick`` does one
    round of two steps.

    Raises: ParameterError naming the parameter; ConfigError for what the configuration file holds.
    """
    chosen = load(_text("config", config)).model_dump()
    count, sizes = whole_number("steps", steps, least=0), whole_numbers("world_sizes", world_sizes)
    if sizes:
        chosen["world_sizes"] = sizes
    if yes_or_no("quick", quick):
        chosen["rounds"] = 1
        for model in chosen["models"]:
            model.update(steps=2, warmup=1)
    if count:
        for model in chosen["models"]:
            model["steps"] = count
    settings = settle(validate(chosen, source=str(config)), _text("out", out))
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


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"parameter {name} is {value!r}, but must be the path of a file or folder.")
    return value


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [f"{key} was {before.get(key)}, is {now[key]}" for key in now if before.get(key) != now[key]]
