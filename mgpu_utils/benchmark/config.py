"""A benchmark's configuration file: what may stand in it, and one clear sentence for what may not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator

from mgpu_utils.benchmark import kinds
from mgpu_utils.benchmark.config_errors import sentences, unknown_key
from mgpu_utils.benchmark.schema import ConfigError as ConfigError
from mgpu_utils.benchmark.schema import (
    ModelConfig,
    Precision,
    Scaling,
    StrategyName,
    Strict,
    counts_make_sense,
    nothing_twice,
)

_BASICS: tuple[str, ...] = ("single", "data_parallel", "ddp", "independent")


class BenchmarkConfig(Strict):
    """A whole file: the comparison's own keys, and in `sections` what the other benchmarks are to do.

    ``world_sizes: auto`` takes what the course uses on this machine. ``accumulation`` is the number of micro-batches a
    step, each of ``per_device_batch`` samples. ``oversubscribe`` allows more threads than cores; results are marked.
    """

    models: list[ModelConfig] = Field(default=[])
    strategies: list[StrategyName] = Field(default=list(_BASICS), min_length=1)
    scaling: list[Scaling] = Field(default=["weak"], min_length=1)
    precisions: list[Precision] = Field(default=["float32"], min_length=1)
    accumulation: list[int] = Field(default=[1], min_length=1)
    world_sizes: list[int] | Literal["auto"] = "auto"
    oversubscribe: bool = False
    rounds: int = Field(default=5, ge=1)
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads_per_process: int = Field(default=1, ge=1)
    samples_per_epoch: int = Field(
        default=1437, ge=1, description="only to tell steps an epoch; the digits' training set"
    )
    timeout_seconds: float = Field(default=300.0, gt=0)
    sections: dict[str, Any] = Field(default={}, exclude=True)

    _counts = field_validator("world_sizes", "accumulation")(counts_make_sense)
    _once = field_validator("models", "strategies", "scaling", "precisions")(nothing_twice)

    @property
    def benchmarks(self) -> list[str]:
        """What this file asks for, in the order of measuring."""
        return [name for name in kinds.NAMES if name in self.sections or (name == "compare" and self.models)]

    def section(self, benchmark: str) -> Any:
        """What `benchmark` is to do: its section, or for the comparison the file's own keys."""
        return self if benchmark == "compare" else self.sections.get(benchmark)

    def only(self, benchmark: str) -> BenchmarkConfig:
        """The same configuration with everything left out that is about other benchmarks."""
        if benchmark == "compare":
            return self.model_copy(update={"sections": {}})
        return self.model_copy(update={"models": [], "sections": {benchmark: self.sections[benchmark]}})

    def with_section(self, benchmark: str, section: Any) -> BenchmarkConfig:
        """The same configuration with another section for `benchmark`."""
        return (
            section
            if benchmark == "compare"
            else self.only(benchmark).model_copy(update={"sections": {benchmark: section}})
        )


def load(path: str | Path) -> BenchmarkConfig:
    """Read and validate a configuration file. Raises: ConfigError naming file, key and what is allowed."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}).{_neighbours(path)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file in UTF-8.") from None
    try:
        data = yaml.load(text, Loader=_NoDuplicates)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}: is not valid YAML{where}: {getattr(error, 'problem', error)}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold keys and values; the keys are {', '.join(_keys())}.")
    return validate(data, source=str(path))


def validate(data: Mapping[str, Any], source: str) -> BenchmarkConfig:
    """Turn plain data into a configuration. Raises: ConfigError; ``source`` says where the data came from."""
    own = {name: value for name, value in data.items() if name not in kinds.NAMES[1:]}
    if "sections" in own or "compare" in own:
        wrong = "sections" if "sections" in own else "compare"
        hint = "; the comparison's keys stand at the top level" if wrong == "compare" else ""
        raise ConfigError(f"{source}: {unknown_key(wrong, _keys()).split('; did')[0]}{hint}.")
    unknown = [name for name in own if name not in BenchmarkConfig.model_fields]
    others = [name for name in unknown if name not in ModelConfig.model_fields]
    if others:
        raise ConfigError(f"{source}: {'; '.join(unknown_key(str(name), _keys()) for name in others)}.")
    try:
        config = BenchmarkConfig.model_validate(own)
    except ValidationError as error:
        raise ConfigError(f"{source}: {sentences(error, BenchmarkConfig)}.") from None
    sections = {name: _section(name, data[name], source) for name in kinds.NAMES[1:] if name in data}
    config = config.model_copy(update={"sections": sections})
    if not config.benchmarks:
        raise ConfigError(
            f"{source}: nothing to measure: it needs models (for the comparison) or one of the sections "
            f"{', '.join(kinds.NAMES[1:])}."
        )
    return config


def plain(config: BenchmarkConfig) -> dict[str, Any]:
    """Return the effective configuration as plain data, every default written out."""
    sections = {name: section.model_dump() for name, section in config.sections.items()}
    return config.model_dump() | sections


def dump(config: BenchmarkConfig) -> str:
    """Return the effective configuration as YAML, every default written out."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def _section(name: str, value: Any, source: str) -> BaseModel:
    model = kinds.get(name).section
    if not isinstance(value, dict):
        raise ConfigError(
            f"{source}: {name} is {value!r}, but must be a set of keys and values ({', '.join(model.model_fields)})."
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{source}: {sentences(error, model, name)}.") from None


def _keys() -> list[str]:
    return [name for name in BenchmarkConfig.model_fields if name != "sections"] + list(kinds.NAMES[1:])


def _neighbours(path: Path) -> str:
    there = sorted(other.name for other in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
    return f" In {path.parent} there are: {', '.join(there)}." if there else ""


class _NoDuplicates(yaml.SafeLoader):
    """YAML lets a later key silently replace an earlier one of the same name; here it is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for (key, _), name in zip(node.value, keys, strict=True):
            if keys.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {name} stands there twice", key.start_mark)
        return super().construct_mapping(node, deep)
