"""The building blocks of a configuration file: strict models, the names of strategies, and the error they raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mgpu_utils.benchmark.contenders import CONTENDERS

Scaling = Literal["weak", "strong"]
Precision = Literal["float32", "bfloat16"]
if TYPE_CHECKING:
    StrategyName = str
else:
    StrategyName = Literal[tuple(CONTENDERS)]


class ConfigError(ValueError):
    """A configuration that cannot be used, said in one sentence: where, what is wrong, what is allowed."""


class Strict(BaseModel):
    """A part of a configuration file: unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelConfig(Strict):
    """One model and how much of it a run does. Batches are in samples.

    `warmup` is the number of steps thrown away before measuring, or `auto`: as many as the run's own step times say.
    """

    name: str
    per_device_batch: int = Field(ge=1, description="weak scaling: every device gets this many, whatever their number")
    global_batch: int = Field(ge=1, description="strong scaling: all devices share this many")
    steps: int = Field(ge=1)
    warmup: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"


def counts_make_sense(value: list[int] | str) -> list[int] | str:
    """A field validator: a list must hold whole numbers of at least 1, each once. Raises: ValueError."""
    if isinstance(value, list):
        if not value:
            raise ValueError("must hold at least one whole number, or be auto")
        if min(value) < 1:
            raise ValueError(f"must be 1 or more, not {min(value)}")
        nothing_twice(value)
    return value


def nothing_twice(value: Any) -> Any:
    """A field validator: a list must not hold the same thing, or things of the same name, twice. Raises: ValueError."""
    names = [getattr(item, "name", item) for item in value] if isinstance(value, list) else []
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"must not hold {twice[0]} twice")
    return value
