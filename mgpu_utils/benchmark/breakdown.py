"""The breakdown of a step: data, forward, backward, communication that nothing hides, optimizer, for each strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from mgpu_utils.benchmark import breakdown_summary as summary
from mgpu_utils.benchmark.breakdown_summary import middle_mean
from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.kinds import Fields, Kind, Record
from mgpu_utils.benchmark.launching import launch
from mgpu_utils.benchmark.schema import ModelConfig, StrategyName, Strict, nothing_twice
from mgpu_utils.planning import Hardware
from mgpu_utils.step_lanes import Lanes, Slice
from mgpu_utils.step_profile import PARTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mgpu_utils.benchmark.config import BenchmarkConfig
    from mgpu_utils.torchrun import Launcher

_TRACED_STEPS = 2


class BreakdownModel(Strict):
    """One model; the batch is in samples for each device."""

    name: str
    per_device_batch: int = Field(ge=1)


class BreakdownSection(Strict):
    """What the breakdown measures: `blocks` times `steps` plain steps, each followed by `steps` profiled ones."""

    models: list[BreakdownModel] = Field(min_length=1)
    strategies: list[StrategyName] = Field(default=["single", "data_parallel", "ddp"], min_length=1)
    world_sizes: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] | Literal["auto"] = "auto"
    rounds: int = Field(default=3, ge=1)
    steps: int = Field(default=4, ge=1)
    blocks: int = Field(default=8, ge=1)
    warmup: int | Literal["auto"] = "auto"

    _once = field_validator("models", "strategies", "world_sizes")(nothing_twice)


@dataclass(frozen=True)
class StepItem(Fields):
    """One training step to break down; fields as in `mgpu_utils.benchmark.plan.Configuration`."""

    strategy: str
    implementation: str
    device_type: str
    backend: str | None
    world_size: int
    model: str
    per_device_batch: int
    global_batch: int
    steps: int
    blocks: int
    warmup: int | str
    threads_per_process: int
    oversubscribed: bool

    @property
    def processes(self) -> int:
        """How many processes a run has: one rank a device, or one process for all of them."""
        return CONTENDERS[self.strategy].processes_on(self.world_size)


class Breakdown(Kind):
    """Where the time of one training step goes.

    A record's `parts` are seconds of a profiled step, of the slowest rank: the one with the least time left to wait
    for the others. `parts_per_rank` holds those of every rank. `step_seconds` is that rank's step without the
    profiler, `profiled_step_seconds` with it, `missing_share` what of the plain step the parts do not make up
    (negative where they make up more). All are means over the middle half of the steps, sorted by duration: unlike
    medians, such parts add up. `timeline` (in round 0) holds two steps of every rank, for `write_traces`.
    """

    name = "breakdown"
    notebook = "03_break_down_a_step.ipynb"
    section = BreakdownSection

    def configurations(
        self, section: BreakdownSection, config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str]
    ) -> list[StepItem]:
        """See `Kind.configurations`."""
        from mgpu_utils.benchmark.plan import configurations

        models = [
            ModelConfig(
                name=model.name,
                per_device_batch=model.per_device_batch,
                global_batch=model.per_device_batch,
                steps=section.steps,
                warmup=section.warmup,
            )
            for model in section.models
        ]
        comparison = config.model_copy(
            update={
                "models": models,
                "strategies": section.strategies,
                "world_sizes": section.world_sizes,
                "scaling": ["weak"],
                "precisions": ["float32"],
                "accumulation": [1],
            }
        )
        shared = [field.name for field in fields(StepItem) if field.name != "blocks"]
        return [
            StepItem(blocks=section.blocks, **{name: getattr(found, name) for name in shared})
            for found in configurations(comparison, hardware, environ)
            if found.threads_per_process == config.threads_per_process
        ]

    def measure_one(self, item: StepItem, number: int, *, launcher: Launcher, seed: int, timeout: float) -> Record:
        """See `Kind.measure_one`."""
        job = item.to_dict() | {"seed": seed, "traced_steps": 0 if number else min(_TRACED_STEPS, item.steps)}
        record, ranks = launch(
            launcher,
            "mgpu_utils.benchmark.breakdown_worker",
            item,
            job,
            processes=item.processes,
            threads=item.threads_per_process,
            timeout=timeout,
        )
        return record | combine(ranks) if ranks else record

    def summarise(self, records: list[Record]) -> pd.DataFrame:
        """One row a configuration, times in seconds, a column for each part."""
        return summary.summarise(records)

    def findings(self, table: pd.DataFrame) -> list[str]:
        """Where each configuration's time goes, what its communication costs, and whether the parts add up."""
        return summary.findings(table)

    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """The parts of all configurations, and for each model one step of every rank."""
        from mgpu_utils.figures.breakdown import figures

        return figures(records, table)

    def write_more(self, records: list[Record], folder: Path) -> None:
        """Write the traces of `write_traces` into the folder of the results."""
        write_traces(records, folder)

    def quick(self, section: BreakdownSection) -> BreakdownSection:
        """One round of one block of two steps."""
        return section.model_copy(update={"rounds": 1, "blocks": 1, "steps": 2, "warmup": 1})

    def description(self, section: BreakdownSection, items: Sequence[StepItem]) -> list[str]:
        """Models, strategies, world sizes and steps."""
        models = ", ".join(f"{model.name} ({model.per_device_batch} samples a device)" for model in section.models)
        return [
            f"models       {models}",
            f"strategies   {', '.join(dict.fromkeys(item.strategy for item in items))}",
            f"world sizes  {', '.join(map(str, sorted({item.world_size for item in items})))}",
            f"steps        {section.blocks} blocks of {section.steps} plain and {section.steps} profiled ones",
        ]

    def label(self, record: Record) -> str:
        """Model, strategy and world size."""
        return f"{record['model']}, {record['strategy']} on {record['world_size']}"


def combine(ranks: Sequence[Mapping[str, Any]]) -> Record:
    """Put together what the ranks of one run measured (see `Breakdown`)."""
    parts = [_parts(rank) for rank in ranks]
    plain = [middle_mean(rank["plain_seconds"]) for rank in ranks]
    # Under DDP all ranks take the same time; the one with the most work of its own is the one the others wait for.
    slowest = max(range(len(ranks)), key=lambda r: sum(parts[r].values()) - parts[r]["exposed_communication"])
    found: Record = {
        "parts": parts[slowest],
        "parts_per_rank": parts,
        "slowest_rank": slowest,
        "step_seconds": plain[slowest],
        "step_seconds_per_rank": plain,
        "profiled_step_seconds": middle_mean(ranks[slowest]["profiled_seconds"]),
        "missing_share": 1 - sum(parts[slowest].values()) / plain[slowest],
        **{name: ranks[0][name] for name in ("warmup_steps", "warmup_steady") if name in ranks[0]},
    }
    timelines = [rank["timeline"] for rank in ranks if "timeline" in rank]
    return found | ({"timeline": _on_one_clock(timelines)} if len(timelines) == len(ranks) else {})


def lanes(timeline: Sequence[Mapping[str, Any]]) -> list[Lanes]:
    """The lanes of every rank in a record's `timeline`, on one clock, in seconds."""
    return [{lane: [Slice(*piece) for piece in held] for lane, held in rank["lanes"].items()} for rank in timeline]


def write_traces(records: Sequence[Record], folder: str | Path) -> list[Path]:
    """Write a trace of two steps of each configuration to `folder`, for https://ui.perfetto.dev; return the files.

    A file is called `trace-STRATEGY-MODEL-WORLD_SIZE.json`.
    """
    from mgpu_utils import perfetto

    written = []
    for record in records:
        if record["status"] == "ok" and "timeline" in record:
            name = f"trace-{record['strategy']}-{record['model']}-{record['world_size']}.json"
            written.append(perfetto.write(Path(folder) / name, lanes(record["timeline"])))
    return sorted(set(written))


def _parts(rank: Mapping[str, Any]) -> dict[str, float]:
    # The same steps as in `profiled_step_seconds`, so that the two can be compared.
    return {name: middle_mean(rank["parts"][name], by=rank["profiled_seconds"]) for name in PARTS}


def _on_one_clock(timelines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Let all times count from one moment: the machine's own clock, and on several machines the barrier before."""
    first: dict[int, int] = {}
    for line in timelines:
        first[line["machine"]] = min(first.get(line["machine"], line["origin_ns"]), line["origin_ns"])
    moved = []
    for line in timelines:
        later = (line["origin_ns"] - first[line["machine"]]) / 1e9
        steps = [[start + later, end + later] for start, end in line["steps"]]
        held = {
            lane: [[name, start + later, end + later] for name, start, end in pieces]
            for lane, pieces in line["lanes"].items()
        }
        moved.append({"steps": steps, "lanes": held})
    return moved


KIND = Breakdown()
