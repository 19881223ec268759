"""What a benchmark leaves behind and says: the table, the figure and the sentences below them."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu_utils import plots
from mgpu_utils.benchmark.plan import STAND_IN
from mgpu_utils.benchmark.records import Record
from mgpu_utils.benchmark.settings import Settings
from mgpu_utils.benchmark.summary import summarise_each, write_csv
from mgpu_utils.timing import interval_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FIGURE = "throughput"
_PANEL, _ONE_PANEL = (4.6, 3.4), (6.4, 4.0)
_TITLE_CHARACTERS_AN_INCH = 12.5


def write(records: list[Record], folder: Path) -> Figure:
    """Write ``summary.csv``, ``throughput.png`` and ``.svg`` into ``folder``; return the figure."""
    tables = summarise_each(records)
    write_csv(tables, folder / "summary.csv")
    figure = draw(tables)
    for kind in ("png", "svg"):
        path = folder / f"{FIGURE}.{kind}"
        temporary = path.with_name(f".{path.name}.tmp")
        # Without the date the same records give the same file.
        figure.savefig(temporary, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
        os.replace(temporary, path)
    return figure


def plan_table(settings: Settings) -> pd.DataFrame:
    """Return what is going to be measured, one row a configuration."""
    import pandas as pd

    columns = ["scaling", "model", "strategy", "world_size", "threads", "per_device_batch", "global_batch"]
    rows = [item.to_dict() | {"threads": item.total_threads} for item in settings.configurations]
    return pd.DataFrame(rows)[columns]


def short_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of a `summarise` table that fit a page, as text with intervals in brackets."""
    import pandas as pd

    rows = []
    for row in _rows(table):
        rows.append(
            {
                "model": row["model"],
                "strategy": plots.STRATEGY_LABELS[row["strategy"]],
                "ranks or devices": row["world_size"],
                "threads": row["total_threads"],
                "batch a device": row["per_device_batch"],
                "global batch": row["global_batch"],
                "samples/s": _with_interval(row, "samples_per_second", "{:,.0f}"),
                "samples/s a rank": _shown(row["samples_per_second_per_rank"], "{:,.0f}"),
                "speedup": _with_interval(row, "speedup", "{:.2f}"),
                "same threads": _with_interval(row, "speedup_equal_threads", "{:.2f}"),
                "efficiency": _shown(row["efficiency"], "{:.0%}"),
                "of limit": _with_interval(row, "limit_share", "{:.0%}"),
                "start-up s": _shown(row["startup_seconds"], "{:.1f}"),
            }
        )
    return pd.DataFrame(rows).set_index(["model", "strategy"])


def draw(tables: dict[str, pd.DataFrame]) -> Figure:
    """Return one figure with a row of panels for each kind of scaling and a column for each model."""
    models = list(dict.fromkeys(name for table in tables.values() for name in table["model"]))
    panel = _ONE_PANEL if len(models) < 2 else _PANEL
    figure, axes = plots.new_figure(max(1, len(tables)), max(1, len(models)), panel=panel)
    for row, table in zip(axes, tables.values(), strict=False):
        for ax, model in zip(row, models, strict=True):
            rows = table[table["model"] == model]
            if rows.empty:
                ax.set_axis_off()
                continue
            plots.throughput(rows, ax)
    legends = [ax.get_legend_handles_labels() for ax in axes.flat]
    unique = {label: handle for handles, labels in legends for handle, label in zip(handles, labels, strict=True)}
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    width = int(figure.get_figwidth() * _TITLE_CHARACTERS_AN_INCH)
    lines = [
        piece for line in title(tables).split("\n") for piece in textwrap.wrap(line, width, break_on_hyphens=False)
    ]
    figure.suptitle("\n".join(lines), fontsize=10)
    return figure


def title(tables: dict[str, pd.DataFrame]) -> str:
    """Say on what was measured, how threads were shared out, and which bar is a stand-in."""
    rows = [row for table in tables.values() for row in _rows(table)]
    measured_on = f"Training throughput on {_devices(rows)}"
    rounds = sorted({row["rounds"] for row in rows if row["rounds"]})
    spread = "nothing was measured"
    if rounds:
        interval = interval_words(rounds[0])
        spread = f"median and {interval}" if "range" in interval else f"median of {_range(rounds)} rounds, {interval}"
    lines = [f"{measured_on}: {spread}"]
    inside = "in each bar: speed-up over single"
    if rows and rows[0]["device_type"] == "cpu":
        threads = min(row["threads_per_process"] for row in rows)
        each = "one thread" if threads == 1 else f"{threads} threads"
        hatched = sorted({row["total_threads"] for row in rows if row["strategy"] == "single"} - {threads})
        same = f"; hatched: one process with {_range(hatched, ' or ')} threads" if hatched else ""
        lines.append(f"{each} a rank{same}; {inside}")
    else:
        lines.append(inside)
    if any(row["implementation"] == STAND_IN for row in rows):
        lines.append("DataParallel is the threaded stand-in: nn.DataParallel itself needs two GPUs")
    return "\n".join(lines)


def findings(table: pd.DataFrame) -> list[str]:
    """Return in words what each strategy reached beside one process and beside the machine's limit."""
    said = []
    for row in _rows(table):
        if row["strategy"] not in ("data_parallel", "ddp") or row["speedup"] != row["speedup"]:
            continue
        name = plots.STRATEGY_LABELS[row["strategy"]] + (" (stand-in)" if row["implementation"] == STAND_IN else "")
        text = f"{row['model']}, {row['scaling']}: {name} on {row['world_size']}: {row['speedup']:.2f} x single"
        if row["speedup_equal_threads"] == row["speedup_equal_threads"]:
            threads = row["total_threads"]
            text += f", {row['speedup_equal_threads']:.2f} x one process with the same {threads} threads"
        if row["limit_share"] == row["limit_share"]:
            text += f", {row['limit_share']:.0%} of this machine's limit"
            if row["limit_share_low"] == row["limit_share_low"]:
                low, high = row["limit_share_low"], row["limit_share_high"]
                text += f" ({interval_words(row['rounds'])} {low:.0%} to {high:.0%})"
        if row["speedup_equal_threads"] > 1.5 * row["speedup"]:
            threads = row["total_threads"]
            text += f"; one process was slower with {threads} threads than with fewer: was the machine busy?"
        said.append(text)
    return said


def failures(records: list[Record]) -> list[str]:
    """Return one line for each configuration and reason of failure, with the rounds that failed so."""
    rounds: dict[str, list[int]] = {}
    for record in records:
        if record["status"] == "failed":
            threads = f"{record['total_threads']} thread{'s' if record['total_threads'] > 1 else ''}"
            what = f"{record['model']}, {record['scaling']}, {record['strategy']} on {record['world_size']} ({threads})"
            rounds.setdefault(f"{what}: {record['reason']}", []).append(record["round"] + 1)
    return [f"{line} (round {', '.join(map(str, numbers))})" for line, numbers in rounds.items()]


def _devices(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "nothing"
    kind = "CPU" if rows[0]["device_type"] == "cpu" else "GPU"
    ranked = [row for row in rows if row["strategy"] == "ddp"]
    if not ranked:
        sizes = sorted({row["world_size"] for row in rows})
        return f"{_range(sizes)} {kind} process{'es' if sizes[-1] > 1 else ''}"
    sizes = sorted({row["world_size"] for row in ranked})
    plural = "s" if sizes[-1] > 1 else ""
    return f"{_range(sizes)} {kind} rank{plural}, {ranked[0]['backend']}"


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _shown(value: float, form: str) -> str:
    return "" if value != value else form.format(value)


def _with_interval(row: dict[str, Any], name: str, form: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    spread = "" if low != low or low == high else f" [{form.format(low)}, {form.format(high)}]"
    return _shown(row[name], form) + spread


def _range(values: list[int], joint: str = " to ") -> str:
    if not values:
        return "0"
    return str(values[0]) if len(values) == 1 else f"{values[0]}{joint}{values[-1]}"
