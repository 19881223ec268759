"""Throughput against the value of a knob, with the knee marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.figures.style import BLACK, BLUE, VERMILION, new_figure, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "per_device_batch": "batch of a device (samples)",
    "bucket_cap_mb": "size of DDP's buckets (MiB)",
    "num_workers": "DataLoader workers of a rank",
    "precision": "precision",
    "threads_per_process": "threads of a rank (ranks x threads)",
}
_PANEL = (4.2, 3.2)


def tune(table: pd.DataFrame) -> Figure:
    """Return a figure with one panel for each knob of a `tune` table."""
    knobs = [] if table.empty else list(table.groupby("knob", sort=False))
    columns = min(2, max(1, len(knobs)))
    figure, axes = new_figure(-(-max(1, len(knobs)) // columns), columns, panel=_PANEL)
    for ax, (_, rows) in zip(axes.flat, knobs, strict=False):
        knob_curve(rows, ax)
    for ax in list(axes.flat)[len(knobs) :]:
        ax.set_axis_off()
    if knobs:
        first = table.iloc[0]
        where = "CPU ranks" if first["device_type"] == "cpu" else "GPUs"
        what = f"{first['model']}, {CONTENDERS[first['strategy']].label} on {table['world_size'].max()} {where}"
        figure.suptitle(f"{what}: one knob at a time", x=0.01, ha="left", fontsize=11)
    return figure


def knob_curve(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the throughput of each value of one knob, median and interval, and mark the knee."""
    knob = str(table["knob"].iloc[0])
    with styled():
        if ax is None:
            ax = new_figure(panel=_PANEL)[1][0][0]
        rows = table[table["samples_per_second"].notna()].reset_index(drop=True)
        at = range(len(rows))
        middle = rows["samples_per_second"]
        spread: Any = [
            (middle - rows["samples_per_second_low"]).clip(lower=0).fillna(0),
            (rows["samples_per_second_high"] - middle).clip(lower=0).fillna(0),
        ]
        line = "none" if knob == "precision" else "-"
        ax.errorbar(at, middle, spread, color=BLUE, marker="o", linestyle=line, capsize=3, label="throughput")
        ax.set_xticks(list(at), [_tick(row, knob) for _, row in rows.iterrows()])
        for position in rows.index[rows["knee"]]:
            ax.axvline(position, color=VERMILION, linestyle=":", linewidth=1.4, zorder=0)
            ax.annotate(
                "as good as the best" if knob == "precision" else "knee: 97 % of the best",
                (position, 0.06),
                xycoords=ax.get_xaxis_transform(),
                xytext=(4 if position <= (len(rows) - 1) / 2 else -4, 0),
                textcoords="offset points",
                ha="left" if position <= (len(rows) - 1) / 2 else "right",
                fontsize=8,
                color=BLACK,
            )
        ax.margins(x=0.12)
        ax.set_ylim(0, 1.08 * rows["samples_per_second_high"].fillna(middle).max() if len(rows) else 1)
        ax.set_xlabel(LABELS[knob])
        ax.set_ylabel("samples/s, all ranks")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return ax


def _tick(row: pd.Series, knob: str) -> str:
    if knob == "threads_per_process":
        return f"{row['world_size']} x {row['threads_per_process']}"
    value = row["value"]
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
