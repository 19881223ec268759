"""From one device to all of them: speed-up and efficiency of each strategy, beside ideal and limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from mgpu_utils.benchmark.compare import TrainingRuns
from mgpu_utils.benchmark.config import BenchmarkConfig
from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.benchmark.plan import Configuration, configurations, planned
from mgpu_utils.benchmark.schema import ConfigError, ModelConfig, Scaling, StrategyName, Strict, counts_make_sense
from mgpu_utils.planning import Hardware

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class ScaleOutSection(Strict):
    """What to measure. ``world_sizes: auto`` takes 1, 2, 4, ... up to the cores or GPUs of this machine."""

    models: list[ModelConfig] = Field(min_length=1)
    strategies: list[StrategyName] = Field(default=["single", "data_parallel", "ddp", "independent"], min_length=1)
    scaling: list[Scaling] = Field(default=["weak"], min_length=1)
    world_sizes: list[int] | Literal["auto"] = "auto"
    oversubscribe: bool = False
    rounds: int | None = None

    _sizes = field_validator("world_sizes")(counts_make_sense)


class ScaleOut(TrainingRuns):
    """Every strategy on 1 to N devices."""

    name = "scale_out"
    on_several_machines = True
    notebook = "02_scale_out.ipynb"
    section = ScaleOutSection

    def configurations(
        self, section: ScaleOutSection, config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str]
    ) -> list[Configuration]:
        """See `Kind.configurations`. Raises: ConfigError when there is no single device to compare with."""
        if "single" not in section.strategies:
            raise ConfigError("scale_out.strategies must hold single: speed-up is over one device")
        chosen = {name: getattr(section, name) for name in ("models", "strategies", "scaling", "oversubscribe")}
        comparison = config.model_copy(update=chosen | {"precisions": ["float32"], "accumulation": [1]})
        sizes: Sequence[int] | str = section.world_sizes
        if sizes == "auto":
            sizes = doubling(most_devices(comparison, hardware, environ))
        return configurations(comparison.model_copy(update={"world_sizes": sizes}), hardware, environ)

    def findings(self, table: pd.DataFrame) -> list[str]:
        """What each strategy reached on several devices; worlds with more threads than cores are named."""
        if table.empty:
            return []
        several = table[(table["world_size"] > 1) | ~table["strategy"].isin(["ddp", "data_parallel"])]
        said = super().findings(several)
        over = sorted(set(table.loc[table["oversubscribed"], "world_size"]))
        if over:
            sizes = ", ".join(map(str, over))
            said.append(f"world size {sizes}: more threads than cores, as asked for; such times say nothing of scaling")
        return said

    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """Speed-up and efficiency against the number of devices."""
        from mgpu_utils.figures.scale_out import scale_out

        return {"scale_out": scale_out(table)}


def most_devices(config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str]) -> int:
    """The most devices that the course would use here without sharing a core."""
    plan = planned(config, hardware, None, environ)
    if plan.backend == "gloo":
        return max(1, hardware.cores // config.threads_per_process)
    return plan.world_size


def doubling(most: int) -> Sequence[int]:
    """Return 1, 2, 4, ... and `most` itself."""
    sizes: list[int] = []
    size = 1
    while size < most:
        sizes.append(size)
        size *= 2
    return [*sizes, most]


KIND = ScaleOut()
