"""One knob at a time: throughput of a training run against bucket size, loader workers, batch, precision, threads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic import Field, field_validator

from mgpu_utils.benchmark.compare import TrainingRuns
from mgpu_utils.benchmark.config import BenchmarkConfig
from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.benchmark.plan import Configuration, check_model, configurations
from mgpu_utils.benchmark.schema import ConfigError, ModelConfig, Precision, StrategyName, Strict, nothing_twice
from mgpu_utils.benchmark.statistics import paired_ratio
from mgpu_utils.planning import Hardware
from mgpu_utils.timing import ENOUGH_FOR_AN_INTERVAL, median_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

KNOBS = ("per_device_batch", "bucket_cap_mb", "num_workers", "precision", "threads_per_process")
# A value counts as good as the best one when it reaches this share of its throughput.
GOOD_ENOUGH = 0.97


class TuneSection(Strict):
    """The run that is varied, and the values of each knob; a knob without values is not turned.

    The base run has the model's own batch, float32, DDP's own bucket size and one thread a rank. Runs that try
    `num_workers` load each batch through a DataLoader, in which every sample takes `load_ms`.
    """

    model: ModelConfig
    strategy: StrategyName = "ddp"
    per_device_batch: list[int] = Field(default=[])
    bucket_cap_mb: list[float] = Field(default=[])
    num_workers: list[int] = Field(default=[])
    load_ms: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    precision: list[Precision] = Field(default=[])
    threads_per_process: list[int] = Field(default=[])
    rounds: int | None = None

    _once = field_validator(*KNOBS)(nothing_twice)

    @field_validator("per_device_batch", "threads_per_process")
    @classmethod
    def _at_least_one(cls, value: list[int]) -> list[int]:
        if value and min(value) < 1:
            raise ValueError(f"must hold numbers of at least 1, not {min(value)}")
        return value

    @field_validator("bucket_cap_mb")
    @classmethod
    def _above_zero(cls, value: list[float]) -> list[float]:
        for number in value:
            if not 0 < number < math.inf:
                raise ValueError(f"must hold numbers above 0, not {number}")
        return value

    @field_validator("num_workers")
    @classmethod
    def _not_negative(cls, value: list[int]) -> list[int]:
        if value and min(value) < 0:
            raise ValueError(f"must hold numbers of at least 0, not {min(value)}")
        return value


@dataclass(frozen=True)
class Setting(Configuration):
    """A training run with one knob set to one value."""

    knob: str = ""
    value: Any = None


class Tune(TrainingRuns):
    """One curve for each knob."""

    name = "tune"
    notebook = "05_tune.ipynb"
    section = TuneSection

    def configurations(
        self, section: TuneSection, config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str]
    ) -> list[Setting]:
        """See `Kind.configurations`."""
        check_model(section.model.name)
        base = _base(section, config, hardware, environ)
        made = []
        for knob in KNOBS:
            for value in getattr(section, knob):
                made.append(_turned(base, knob, value, section, hardware))
        if not made:
            raise ConfigError(f"tune has no values to try; give at least one of {', '.join(KNOBS)} a list")
        return made

    def quick(self, section: TuneSection) -> TuneSection:
        """One round of two steps."""
        return section.model_copy(
            update={"rounds": 1, "model": section.model.model_copy(update={"steps": 2, "warmup": 1})}
        )

    def description(self, section: TuneSection, items: Sequence[Configuration]) -> list[str]:
        """The base run and the knobs."""
        knobs = [f"{knob:20} {', '.join(map(str, getattr(section, knob)))}" for knob in KNOBS if getattr(section, knob)]
        return [f"model        {section.model.name}, {section.strategy} on {items[0].world_size}", *knobs]

    def label(self, record: Record) -> str:
        """The knob and its value."""
        return f"{record['model']}, {record['strategy']}, {record['knob']} {record['value']}"

    def summarise(self, records: list[Record]) -> pd.DataFrame:
        """One row a knob and value.

        ``of_best`` is the throughput as a share of the knob's best value, paired by round; ``knee`` marks the smallest
        value whose ``of_best`` reaches 97 %; fewer than five rounds have none.
        """
        import pandas as pd

        rows = []
        for knob in KNOBS:
            groups: dict[Any, list[Record]] = {}
            for record in records:
                if record["knob"] == knob:
                    groups.setdefault(record["value"], []).append(record)
            rows += _rows([groups[value] for value in sorted(groups, key=_rank_of)])
        return pd.DataFrame(rows)

    def findings(self, table: pd.DataFrame) -> list[str]:
        """One sentence a knob: the best value, and the first one that is as good."""
        said = []
        for knob, rows in table.groupby("knob", sort=False) if not table.empty else []:
            measured = rows[rows["samples_per_second"].notna()]
            if measured.empty:
                continue
            best = measured.sort_values("samples_per_second").iloc[-1]
            knee = measured[measured["knee"]]
            if knee.empty:
                count = int(measured["rounds"].max())
                said.append(f"{knob}: {count} round{' is' if count == 1 else 's are'} too few to call a value the best")
                continue
            text = f"{knob}: {_shown(best['value'])} was best with {best['samples_per_second']:,.0f} samples/s"
            if knee.iloc[0]["value"] != best["value"]:
                text += f"; {_shown(knee.iloc[0]['value'])} reaches {knee.iloc[0]['of_best']:.0%} of it already"
            said.append(text)
        return said

    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """A panel for each knob."""
        from mgpu_utils.figures.tune import tune

        return {"tune": tune(table)}


def _base(
    section: TuneSection, config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str]
) -> Configuration:
    chosen = {
        "models": [section.model],
        "strategies": [section.strategy],
        "scaling": ["weak"],
        "precisions": ["float32"],
        "accumulation": [1],
    }
    return configurations(config.model_copy(update=chosen), hardware, environ)[-1]


def _turned(base: Configuration, knob: str, value: Any, section: TuneSection, hardware: Hardware) -> Setting:
    changes: dict[str, Any] = {knob: value}
    if knob == "per_device_batch":
        changes["global_batch"] = value * base.world_size * base.accumulation
    elif knob == "num_workers":
        changes["load_ms"] = section.load_ms
    elif knob == "threads_per_process":
        changes |= _same_budget(base, value, hardware)
    elif knob == "bucket_cap_mb" and not base.strategy.startswith("ddp"):
        raise ConfigError(f"tune.bucket_cap_mb: {section.strategy} has no buckets; use a strategy of DDP")
    return Setting(**replace(base, **changes).to_dict(), knob=knob, value=value)


def _same_budget(base: Configuration, threads: int, hardware: Hardware) -> dict[str, Any]:
    """More threads a rank on a CPU means fewer ranks: all in all the same cores."""
    if base.device_type != "cpu":
        return {"total_threads": threads * base.world_size}
    budget = base.total_threads
    if threads > budget or budget % threads:
        raise ConfigError(
            f"tune.threads_per_process: {threads} does not divide the {budget} threads of {base.world_size} ranks; "
            "each value must, so that all of them use the same cores"
        )
    ranks = budget // threads
    return {
        "world_size": ranks,
        "global_batch": base.per_device_batch * ranks * base.accumulation,
        "total_threads": budget,
    }


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _rank_of(value: Any) -> float:
    return list(get_args(Precision)).index(value) if isinstance(value, str) else float(value)


def _rows(groups: list[list[Record]]) -> list[dict[str, Any]]:
    rates = [
        {record["round"]: record["samples_per_second"] for record in group if record["status"] == "ok"}
        for group in groups
    ]
    intervals = [median_interval(list(rate.values())) if rate else None for rate in rates]
    known = [interval.median for interval in intervals if interval is not None]
    best = next(
        (rate for rate, found in zip(rates, intervals, strict=True) if found and found.median == max(known)), {}
    )
    rows, knee_found = [], False
    for group, rate, interval in zip(groups, rates, intervals, strict=True):
        share = paired_ratio(rate, best)
        enough = len(rate) >= ENOUGH_FOR_AN_INTERVAL
        knee = enough and not knee_found and share.median >= GOOD_ENOUGH
        knee_found = knee_found or knee
        first = group[0]
        row = {name: first[name] for name in Setting.__dataclass_fields__ if name in first}
        nan = float("nan")
        row |= {
            "rounds": len(rate),
            "failed": len(group) - len(rate),
            "samples_per_second": interval.median if interval else nan,
            "samples_per_second_low": interval.low if interval else nan,
            "samples_per_second_high": interval.high if interval else nan,
            "of_best": share.median,
            "of_best_low": share.low,
            "of_best_high": share.high,
            "knee": knee,
        }
        rows.append(row)
    return rows


KIND = Tune()
