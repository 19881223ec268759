"""The comparison of strategies for readers: the table, the figure and the sentences below them."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from mgpu_utils import plots
from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.plan import STAND_IN
from mgpu_utils.benchmark.statistics import Verdict, judge, outlier_words, rounds_from_text, verdict
from mgpu_utils.figures.throughput import MOST_UPRIGHT_LABELS
from mgpu_utils.timing import Interval, interval_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PANEL, _ONE_PANEL, _FOR_SLANTED_LABELS = (4.6, 3.4), (6.4, 4.0), 1.2
_TITLE_CHARACTERS_AN_INCH = 12.5
_MOST_OUTLIERS_NAMED = 6
# What one panel holds one value of.
_PANEL_OF = ("model", "precision", "accumulation")


def short_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of a `summarise` table that fit a page, as text with intervals in brackets."""
    import pandas as pd

    rows = []
    varying = [name for name in ("precision", "accumulation") if table[name].nunique() > 1]
    for row in _rows(table):
        rows.append(
            {
                "model": row["model"],
                "strategy": CONTENDERS[row["strategy"]].label,
                **{name: row[name] for name in varying},
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
                "peak MiB each": row.get("peak_memory", ""),
            }
        )
    return pd.DataFrame(rows).set_index(["model", "strategy"])


def draw(tables: dict[str, pd.DataFrame]) -> Figure:
    """Return one figure with a row of panels for each kind of scaling.

    The columns are the models, each once for every precision and number of micro-batches it was measured with.
    """
    panels = list(dict.fromkeys(_panel(row) for table in tables.values() for row in _rows(table)))
    width, height = _ONE_PANEL if len(panels) < 2 else _PANEL
    bars = Counter((_panel(row), row["scaling"]) for table in tables.values() for row in _rows(table))
    if max(bars.values(), default=0) > MOST_UPRIGHT_LABELS + 1:
        height += _FOR_SLANTED_LABELS
    panel = (width, height)
    figure, axes = plots.new_figure(max(1, len(tables)), max(1, len(panels)), panel=panel)
    for row, table in zip(axes, tables.values(), strict=False):
        belongs_to = [_panel(one) for one in _rows(table)]
        for ax, wanted in zip(row, panels, strict=True):
            rows = table[[one == wanted for one in belongs_to]]
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
        hatched = sorted(
            {row["total_threads"] for row in rows if CONTENDERS[row["strategy"]].on_one_device} - {threads}
        )
        same = f"; hatched: one process with {_range(hatched, ' or ')} threads" if hatched else ""
        lines.append(f"{each} a rank{same}; {inside}")
    else:
        lines.append(inside)
    if any(row["implementation"] == STAND_IN for row in rows):
        lines.append("DataParallel is the threaded stand-in: nn.DataParallel itself needs two GPUs")
    return "\n".join(lines)


def findings(table: pd.DataFrame) -> list[str]:
    """Return in words what each strategy reached beside one process and beside the machine's limit.

    Then which rounds are outliers, and which runs were still speeding up when they were measured.
    """
    rows = _rows(table)
    said = [_reached(row) for row in rows if _is_compared(row) and row["speedup"] == row["speedup"]]
    far = []
    for row in rows:
        far += outlier_words(rounds_from_text(row["by_round"]), f"{_who(row)} ({_context(row)})")
    if far:
        more = len(far) - _MOST_OUTLIERS_NAMED
        named = [*far[:_MOST_OUTLIERS_NAMED], *([f"and {more} more, ringed in the figure"] if more > 0 else [])]
        said.append(f"outliers, kept in all numbers: {'; '.join(named)}")
    unsteady = [
        f"{row['unsteady_runs']} of {row['rounds']} of {_who(row)} ({_context(row)})"
        for row in rows
        if row["unsteady_runs"]
    ]
    if unsteady:
        said.append(f"runs that were still speeding up when measuring began: {'; '.join(unsteady)}")
    return said


def _reached(row: dict[str, Any]) -> str:
    threads = row["total_threads"]
    text = f"{_name(row)}: {verdict(_ratio(row, 'speedup'), row['speedup_rounds'], 'single')}"
    if row["speedup_equal_threads"] == row["speedup_equal_threads"]:
        than = f"one process with the same {threads} thread{'s' if threads > 1 else ''}"
        text += f"; {verdict(_ratio(row, 'speedup_equal_threads'), row['speedup_equal_threads_rounds'], than)}"
    share, rounds = _ratio(row, "limit_share"), row["limit_share_rounds"]
    if share.median == share.median:
        text += f"; {share.median:.0%} of this machine's limit"
        if share.low == share.low:
            text += f" ({interval_words(rounds)} {share.low:.0%} to {share.high:.0%})"
        if judge(share, rounds) is Verdict.NO_DIFFERENCE:
            text += ": no difference from it seen"
    if row["speedup_equal_threads"] > 1.5 * row["speedup"]:
        text += f"; one process was slower with {threads} threads than with fewer: was the machine busy?"
    return text


def _is_compared(row: dict[str, Any]) -> bool:
    contender = CONTENDERS[row["strategy"]]
    return not (contender.on_one_device or contender.is_limit)


def _name(row: dict[str, Any]) -> str:
    return f"{_context(row)}: {_who(row)}"


def _context(row: dict[str, Any]) -> str:
    """What is trained: "digits_cnn, weak", and what is unusual about it."""
    unusual = [] if row["precision"] == "float32" else [row["precision"]]
    if row["accumulation"] > 1:
        unusual.append(f"{row['accumulation']} micro-batches")
    return ", ".join([row["model"], row["scaling"], *unusual])


def _who(row: dict[str, Any]) -> str:
    """Who trains it: "DDP on 2"."""
    contender, threads = CONTENDERS[row["strategy"]], row["total_threads"]
    label = contender.label + (" (stand-in)" if row["implementation"] == STAND_IN else "")
    if not contender.on_one_device:
        label += f" on {row['world_size']}"
    elif row["device_type"] == "cpu":
        label += f" with {threads} thread{'s' if threads > 1 else ''}"
    return label + (" (more threads than cores)" if row["oversubscribed"] else "")


def _panel(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _PANEL_OF)


def _ratio(row: dict[str, Any], name: str) -> Interval:
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def _devices(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "nothing"
    kind = "CPU" if rows[0]["device_type"] == "cpu" else "GPU"
    ranked = [row for row in rows if CONTENDERS[row["strategy"]].communicates]
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
