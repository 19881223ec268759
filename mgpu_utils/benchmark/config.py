"""A benchmark's configuration file: what may stand in it, and one clear sentence for what may not."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Scaling = Literal["weak", "strong"]
StrategyName = Literal["single", "data_parallel", "ddp", "independent"]
STRATEGIES: tuple[StrategyName, ...] = ("single", "data_parallel", "ddp", "independent")


class ConfigError(ValueError):
    """A configuration that cannot be used, said in one sentence: where, what is wrong, what is allowed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelConfig(_Strict):
    """One model and how much of it a run does. Batches are in samples."""

    name: str
    per_device_batch: int = Field(ge=1, description="weak scaling: every device gets this many, whatever their number")
    global_batch: int = Field(ge=1, description="strong scaling: all devices share this many")
    steps: int = Field(ge=1)
    warmup: int = Field(default=5, ge=1)


class BenchmarkConfig(_Strict):
    """A whole comparison. ``world_sizes: auto`` takes what the course uses on this machine."""

    models: list[ModelConfig] = Field(min_length=1)
    strategies: list[StrategyName] = Field(default=list(STRATEGIES), min_length=1)
    scaling: list[Scaling] = Field(default=["weak"], min_length=1)
    world_sizes: list[int] | Literal["auto"] = "auto"
    rounds: int = Field(default=5, ge=1)
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads_per_process: int = Field(default=1, ge=1)
    samples_per_epoch: int = Field(
        default=1437, ge=1, description="only to tell steps an epoch; the digits' training set"
    )
    timeout_seconds: float = Field(default=300.0, gt=0)

    @field_validator("world_sizes")
    @classmethod
    def _world_sizes_make_sense(cls, value: list[int] | str) -> list[int] | str:
        if isinstance(value, list):
            if not value:
                raise ValueError("must hold at least one whole number, or be auto")
            if min(value) < 1:
                raise ValueError(f"must be 1 or more, not {min(value)}")
        return value

    @field_validator("models", "strategies", "scaling", "world_sizes")
    @classmethod
    def _nothing_twice(cls, value: Any) -> Any:
        names = [getattr(item, "name", item) for item in value] if isinstance(value, list) else []
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"must not hold {twice[0]} twice")
        return value


def load(path: str | Path) -> BenchmarkConfig:
    """Read and validate a configuration file. Raises: ConfigError naming file, key and what is allowed."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}).{_neighbours(path)}") from None
    try:
        data = yaml.load(text, Loader=_NoDuplicates)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}: is not valid YAML{where}: {getattr(error, 'problem', error)}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold keys and values; the keys are {_listed(BenchmarkConfig.model_fields)}.")
    return validate(data, source=str(path))


def validate(data: dict[str, Any], source: str) -> BenchmarkConfig:
    """Turn plain data into a configuration. Raises: ConfigError; ``source`` says where the data came from."""
    try:
        return BenchmarkConfig.model_validate(data)
    except ValidationError as error:
        sentences = list(dict.fromkeys(_sentence(dict(problem)) for problem in _relevant(error)))
        raise ConfigError(f"{source}: {'; '.join(sentences)}.") from None


def dump(config: BenchmarkConfig) -> str:
    """Return the effective configuration as YAML, every default written out."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False)


def _relevant(error: ValidationError) -> list[Any]:
    """Drop what pydantic says of the other arm of ``list or auto``: of auto for a list, of lists for the rest."""
    problems = error.errors(include_url=False)
    keep = []
    for problem in problems:
        location = problem["loc"]
        if location and location[0] == "world_sizes" and len(location) > 1:
            arm_is_list = str(location[1]).startswith("list")
            given_list = isinstance(problem["input"], list) or (arm_is_list and len(location) > 2)
            if arm_is_list != given_list:
                continue
        keep.append(problem)
    return keep or problems


def _sentence(problem: dict[str, Any]) -> str:
    location, kind, given = problem["loc"], problem["type"], problem["input"]
    context = problem.get("ctx", {})
    parts = [part for part in location if not str(part).startswith(("list[", "literal["))]
    key = _key(parts)
    if kind == "extra_forbidden":
        return _unknown_key(parts)
    if kind == "missing":
        return f"{key} is missing"
    if kind == "literal_error":
        allowed = (
            "a list of whole numbers or auto" if parts[0] == "world_sizes" else context["expected"].replace("'", "")
        )
        return f"{key} is {_shown(given)}, but must be {allowed}{_closest(given, context['expected'])}"
    wanted = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "string_type": "a text",
        "list_type": "a list",
        "model_type": f"a set of keys and values ({_listed(ModelConfig.model_fields)})",
        "dict_type": "a set of keys and values",
        "greater_than_equal": f"at least {context.get('ge')}",
        "greater_than": f"more than {context.get('gt')}",
        "too_short": "a list with at least one entry",
    }.get(kind)
    if wanted is None:
        return f"{key} {problem['msg'].removeprefix('Value error, ')}"
    return f"{key} is {_shown(given)}, but must be {wanted}"


def _unknown_key(parts: list[Any]) -> str:
    inside_model = len(parts) > 2 and parts[0] == "models"
    fields = list(ModelConfig.model_fields if inside_model else BenchmarkConfig.model_fields)
    wrong = str(parts[-1])
    close = difflib.get_close_matches(wrong, fields, n=1)
    elsewhere = BenchmarkConfig.model_fields if inside_model else ModelConfig.model_fields
    hint = f"; did you mean {close[0]}?" if close else ""
    if wrong in elsewhere:
        hint = f"; it belongs {'at the top level' if inside_model else 'to an entry of models'}"
    where = f" in {_key(parts[:-1])}" if inside_model else ""
    return f"unknown key {wrong}{where} (allowed: {_listed(fields)}){hint}"


def _key(parts: list[Any]) -> str:
    key = ""
    for part in parts:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return key


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _closest(given: Any, expected: str) -> str:
    choices = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
    close = difflib.get_close_matches(str(given), choices, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _listed(names: Any) -> str:
    return ", ".join(names)


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
