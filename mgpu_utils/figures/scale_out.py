"""Speed-up and efficiency against the number of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.figures.style import BLACK, line_tone, new_figure, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = (4.4, 3.3)
_MARKERS = "osD^vPX*"


def scale_out(table: pd.DataFrame) -> Figure:
    """Return a figure with a row for each model and kind of scaling: speed-up on the left, efficiency on the right."""
    groups = [] if table.empty else list(table.groupby(["model", "scaling"], sort=False))
    figure, axes = new_figure(max(1, len(groups)), 2, panel=_PANEL)
    for row, ((model, scaling), rows) in zip(axes, groups, strict=False):
        speedup(rows, row[0])
        efficiency(rows, row[1])
        row[0].set_title(f"{model}, {scaling} scaling", loc="left", fontsize=10)
    if not groups:
        for ax in axes.flat:
            ax.set_axis_off()
        axes[0][0].text(0, 0.5, "nothing was measured")
        return figure
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    stand_in = (table["implementation"] == "threaded stand-in").any()
    note = "  (DataParallel: threaded stand-in)" if stand_in else ""
    figure.suptitle(f"Scaling out{note}", x=0.01, ha="left", fontsize=11)
    return figure


def speedup(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw throughput over that of `single`, median and 95 % interval, against the number of devices."""
    return _curves(table, ax, "speedup", "speed-up over one device", ideal=True)


def efficiency(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw speed-up over the number of devices, which is 100 % for an ideal machine."""
    ax = _curves(table, ax, "efficiency", "efficiency", ideal=False)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.axhline(1, color=BLACK, linestyle="--", linewidth=1.2)
    return ax


def _curves(table: pd.DataFrame, ax: Axes | None, column: str, label: str, *, ideal: bool) -> Axes:
    import numpy as np

    with styled():
        if ax is None:
            ax = new_figure(panel=_PANEL)[1][0][0]
        sizes = sorted(set(table["world_size"]))
        if ideal:
            ax.plot(sizes, sizes, color=BLACK, linestyle="--", linewidth=1.2, label="ideal: N x one device")
        for at, name in enumerate(name for name in CONTENDERS if name in set(table["strategy"])):
            rows = table[(table["strategy"] == name) & table[column].notna()].sort_values("world_size")
            if CONTENDERS[name].on_one_device:
                continue
            _curve(ax, rows, name, column, shift=0.012 * at)
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.set_xlim(sizes[0] * 0.85, sizes[-1] * 1.18)
        # One round has no interval and a failed run no value: both are NaN.
        drawn = table[[column, f"{column}_high"]].to_numpy(float).ravel()
        highest = np.nanmax([sizes[-1] if ideal else 1.0, *drawn])
        ax.set_ylim(0, 1.08 * highest)
        kind = "CPU ranks" if set(table["device_type"]) == {"cpu"} else "GPUs"
        ax.set_xlabel(f"devices ({kind})")
        ax.set_ylabel(label)
    return ax


def _curve(ax: Axes, rows: pd.DataFrame, name: str, column: str, shift: float) -> None:
    contender = CONTENDERS[name]
    # A little beside one another, so that no interval hides another one.
    xs = rows["world_size"] * (1 + shift)
    middle = rows[column]
    spread: Any = [
        (middle - rows[f"{column}_low"]).clip(lower=0).fillna(0),
        (rows[f"{column}_high"] - middle).clip(lower=0).fillna(0),
    ]
    line = ":" if contender.is_limit else "-"
    label = "limit: N independent jobs" if contender.is_limit else contender.label
    color, marker = line_tone(contender.color), _MARKERS[list(CONTENDERS).index(name) % len(_MARKERS)]
    ax.errorbar(xs, middle, spread, color=color, linestyle=line, marker=marker, capsize=3, label=label)
    over = rows["oversubscribed"].astype(bool)
    if over.any():
        ax.plot(xs[over], middle[over], marker, markerfacecolor="white", markeredgecolor=color, zorder=5)
