"""What a benchmark leaves in its folder and shows in its notebook: the plan, the table, the figures, the failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu_utils.benchmark import kinds
from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.benchmark.settings import SUMMARY, Settings
from mgpu_utils.whole_file import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def plan_table(settings: Settings) -> pd.DataFrame:
    """Return what is going to be measured, one row a configuration; what is the same in all rows is left out."""
    import pandas as pd

    table = pd.DataFrame([item.to_dict() for item in settings.configurations])
    varying = [name for name in table.columns if table[name].map(str).nunique() > 1]
    return table[varying] if varying else table


def write(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Write ``summary.csv`` and each figure as ``.png`` and ``.svg`` into the folder; return the figures by name."""
    table = settings.kind.summarise(records)
    write_whole(settings.out / SUMMARY, table.to_csv(index=False, float_format="%.6g"))
    figures = settings.kind.figures(records, table)
    for name, figure in figures.items():
        _save(figure, settings.out, name)
    settings.kind.write_more(records, settings.out)
    return figures


def findings(settings: Settings, records: list[Record]) -> list[str]:
    """Return the results in sentences, with a last one about what else the machine was doing meanwhile."""
    from mgpu_utils.benchmark import machine_load

    said = settings.kind.findings(settings.kind.summarise(records))
    disturbed = machine_load.runs_note(record.get("machine") for record in records if record["status"] == "ok")
    return [*said, disturbed] if disturbed else said


def failures(records: list[Record]) -> list[str]:
    """Return one line for each configuration and reason of failure, with the rounds that failed so."""
    rounds: dict[str, list[int]] = {}
    for record in records:
        if record["status"] == "failed":
            label = kinds.get(record.get("benchmark", "compare")).label(record)
            rounds.setdefault(f"{label}: {record['reason']}", []).append(record["round"] + 1)
    return [f"{line} (round {', '.join(map(str, numbers))})" for line, numbers in rounds.items()]


def _save(figure: Figure, folder: Path, name: str) -> None:
    for kind in ("png", "svg"):
        path = folder / f"{name}.{kind}"
        temporary = path.with_name(f".{path.name}.tmp")
        # Without the date the same records give the same file.
        try:
            figure.savefig(temporary, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
