"""The comparison of strategies: training runs side by side, as a share of one device and of the machine's limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mgpu_utils.benchmark import config as config_module
from mgpu_utils.benchmark.kinds import Kind, Record
from mgpu_utils.benchmark.measuring import measure_one
from mgpu_utils.benchmark.plan import Configuration, configurations
from mgpu_utils.planning import Hardware

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mgpu_utils.torchrun import Launcher


class TrainingRuns(Kind):
    """What all benchmarks of training runs share: the worker, and how a failed run is called."""

    def measure_one(self, item: Configuration, number: int, *, launcher: Launcher, seed: int, timeout: float) -> Record:
        """See `Kind.measure_one`."""
        return measure_one(item, number, launcher=launcher, seed=seed, timeout=timeout)

    def quick(self, section: Any) -> Any:
        """One round of two steps."""
        models = [model.model_copy(update={"steps": 2, "warmup": 1}) for model in section.models]
        return section.model_copy(update={"rounds": 1, "models": models})

    def description(self, section: Any, items: Sequence[Configuration]) -> list[str]:
        """Models, strategies, world sizes and threads."""
        sizes = sorted({item.world_size for item in items})
        models = ", ".join(f"{model.name} ({model.steps} steps)" for model in section.models)
        lines = [
            f"models       {models}",
            f"strategies   {', '.join(dict.fromkeys(item.strategy for item in items))}",
            f"scaling      {', '.join(dict.fromkeys(item.scaling for item in items))}",
            f"world sizes  {', '.join(map(str, sizes))}",
            f"threads      {min(item.threads_per_process for item in items)} a process",
        ]
        precisions = list(dict.fromkeys(item.precision for item in items))
        return lines + ([f"precision    {', '.join(precisions)}"] if precisions != ["float32"] else [])

    def summarise(self, records: list[Record]) -> pd.DataFrame:
        """One row a configuration; weak scaling before strong."""
        import pandas as pd

        from mgpu_utils.benchmark.summary import summarise_each

        tables = summarise_each(records)
        return pd.concat(tables.values(), ignore_index=True) if tables else pd.DataFrame()

    def findings(self, table: pd.DataFrame) -> list[str]:
        """See `Kind.findings`."""
        from mgpu_utils.benchmark.report import findings

        if table.empty:
            return []
        return [line for _, rows in table.groupby("scaling", sort=False) for line in findings(rows)]

    def label(self, record: Record) -> str:
        """Model, scaling, strategy, world size and threads."""
        count = record["total_threads"]
        threads = f"{count} thread{'s' if count > 1 else ''}"
        extra = "".join(f", {record[name]}{unit}" for name, plain, unit in _UNUSUAL if record.get(name, plain) != plain)
        return (
            f"{record['model']}, {record['scaling']}, {record['strategy']} on {record['world_size']} ({threads}{extra})"
        )


_UNUSUAL = (("precision", "float32", ""), ("accumulation", 1, " micro-batches"))


class Compare(TrainingRuns):
    """Every strategy on every model, weak and strong scaling."""

    name = "compare"
    on_several_machines = True
    notebook = "01_compare_strategies.ipynb"
    section: type[BaseModel] = config_module.BenchmarkConfig

    def configurations(
        self, section: Any, config: Any, hardware: Hardware, environ: Mapping[str, str]
    ) -> list[Configuration]:
        """See `Kind.configurations`."""
        return configurations(section, hardware, environ)

    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """Throughput, a panel for each model and kind of scaling."""
        from mgpu_utils.benchmark.report import draw

        tables = {} if table.empty else {str(kind): rows for kind, rows in table.groupby("scaling", sort=False)}
        return {"throughput": draw(tables)}


KIND = Compare()
