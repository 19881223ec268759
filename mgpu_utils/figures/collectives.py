"""The pictures of measured collectives: time with the fitted line, how far it misses, and bus bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.style import BLUE, GREEN, GREY, ORANGE, VERMILION, line_tone, new_figure, styled
from mgpu_utils.timing import interval_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS: dict[str, tuple[str, str, Any]] = {
    "all_reduce": (BLUE, "o", "-"),
    "broadcast": (line_tone(ORANGE), "s", "--"),
    "all_gather": (GREEN, "^", "-."),
    "reduce_scatter": (VERMILION, "D", ":"),
}
_MARKS: tuple[Any, ...] = ((0, (1, 1.5)), (0, (6, 2)), (0, (6, 2, 1, 2)), "-")


def draw(table: pd.DataFrame, marks: Mapping[str, int] | None = None) -> dict[str, Figure]:
    """Return two figures for each world size in `table`: time with misses below it, and bus bandwidth.

    `table` is that of `mgpu_utils.benchmark.collectives`. `marks` are sizes in bytes that get a line, by their names.
    A notebook shows the figures only where it displays them.
    """
    import matplotlib.pyplot as plt

    figures: dict[str, Figure] = {}
    measured = table.dropna(subset=["seconds"]) if len(table) else table
    for world_size in sorted(set(measured["world_size"])) if len(measured) else []:
        rows = measured[measured["world_size"] == world_size]
        with styled():
            figure, axes = new_figure(2, 1, panel=(6.8, 3.0))
            times(rows, axes[0, 0], marks)
            misses(rows, axes[1, 0])
            axes[1, 0].set_xlim(axes[0, 0].get_xlim())
            axes[0, 0].set_xlabel("")
            _legend_below(figure, axes[0, 0])
            figures[f"times_{world_size}_ranks"] = figure
            figure, axes = new_figure(panel=(6.8, 4.0))
            bus_bandwidth(rows, axes[0, 0], marks)
            _legend_below(figure, axes[0, 0])
            figures[f"bus_bandwidth_{world_size}_ranks"] = figure
    for figure in figures.values():
        plt.close(figure)
    return figures


def times(rows: pd.DataFrame, ax: Axes | None = None, marks: Mapping[str, int] | None = None) -> Axes:
    """Draw the time of each collective against the size of its message, measured points on their fitted lines.

    Raises: ValueError for rows of several world sizes, or none.
    """
    import numpy as np

    with styled():
        ax = _axes(rows, ax)
        for name, own in _each(rows):
            color, marker, dashes = _LOOKS[name]
            first = own.iloc[0]
            sizes = np.geomspace(own["bytes"].min(), own["bytes"].max(), 100)
            line = first["latency_us"] + sizes / first["bandwidth_gb_s"] / 1e3
            ax.plot(sizes, line, color=color, linestyle=dashes, linewidth=1.4)
            _points(ax, own, "seconds", 1e6, color, marker, label=name)
        ax.plot([], [], color=GREY, linewidth=1.4, label="lines: latency + bytes / bandwidth")
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: _duration(value))
        ax.set_ylabel("time of a call")
        _finish(ax, rows, "time", marks or {})
    return ax


def misses(rows: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw each measured time as a multiple of what its line says; above 1 is slower than the line.

    Raises: ValueError for rows of several world sizes, or none.
    """
    with styled():
        ax = _axes(rows, ax)
        ax.axhline(1, color=GREY, linewidth=1.0)
        for name, own in _each(rows):
            color, marker, dashes = _LOOKS[name]
            ax.plot(
                own["bytes"], own["line_miss"] + 1, color=color, marker=marker, markersize=5, markerfacecolor="white",
                linestyle=dashes, linewidth=1.0, label=name,
            )  # fmt: skip
        ax.set_yscale("log", base=2)
        most = max(1.5, (rows["line_miss"] + 1).max() * 1.1, 1 / (rows["line_miss"] + 1).min() * 1.1)
        ax.set_ylim(1 / most, most)
        ticks = [tick for tick in (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 4, 8) if 1 / most <= tick <= most]
        ax.set_yticks(ticks, [f"{tick:g}x" for tick in ticks])
        ax.set_ylabel("measured / line")
        _finish(ax, rows, "how far the line misses")
    return ax


def bus_bandwidth(rows: pd.DataFrame, ax: Axes | None = None, marks: Mapping[str, int] | None = None) -> Axes:
    """Draw the bus bandwidth of each collective against the size of its message.

    Raises: ValueError for rows of several world sizes, or none.
    """
    with styled():
        ax = _axes(rows, ax)
        for name, own in _each(rows):
            color, marker, dashes = _LOOKS[name]
            ax.plot(own["bytes"], own["busbw_gb_s"], color=color, linestyle=dashes, linewidth=1.2)
            _points(ax, own, "busbw_gb_s", 1.0, color, marker, label=name)
        ax.set_ylim(bottom=0)
        ax.set_ylabel("bus bandwidth, GB/s")
        _finish(ax, rows, "bus bandwidth", marks or {})
    return ax


def _legend_below(figure: Figure, ax: Axes) -> None:
    """Move the legend of a panel out of the way of its points."""
    handles, labels = ax.get_legend_handles_labels()
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)


def _axes(rows: pd.DataFrame, ax: Axes | None) -> Axes:
    if rows.empty or rows["world_size"].nunique() != 1:
        raise ValueError(f"One panel shows one world size, but the rows hold {sorted(set(rows['world_size']))}.")
    if ax is None:
        _, axes = new_figure()
        ax = axes[0, 0]
    return ax


def _each(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(name, own) for name in _LOOKS if len(own := rows[rows["collective"] == name].sort_values("bytes"))]


def _points(ax: Axes, own: pd.DataFrame, column: str, scale: float, color: str, marker: str, label: str) -> None:
    value = own[column] * scale
    # The interval of the seconds; a bandwidth goes with their inverse, so its ends change places.
    if column == "seconds":
        low, high = own["seconds_low"] * scale, own["seconds_high"] * scale
    else:
        low, high = value * own["seconds"] / own["seconds_high"], value * own["seconds"] / own["seconds_low"]
    spread = [(value - low).clip(lower=0).fillna(0), (high - value).clip(lower=0).fillna(0)]
    ax.errorbar(
        own["bytes"], value, spread, color=color, marker=marker, markersize=5, markerfacecolor="white",
        linestyle="none", elinewidth=1.0, capsize=2, label=label,
    )  # fmt: skip


def _finish(ax: Axes, rows: pd.DataFrame, what: str, marks: Mapping[str, int] | None = None) -> None:
    from mgpu_utils.benchmark.collectives_table import size_words

    ax.set_xscale("log", base=2)
    sizes = sorted(set(rows["bytes"]))
    step = max(1, -(-len(sizes) // 9))
    ax.set_xticks(sizes[::step], [size_words(size) for size in sizes[::step]], fontsize=8)
    ax.minorticks_off()
    ax.grid(axis="y", color="0.9")
    ax.set_xlabel("size of the message")
    for (name, size), dashes in zip((marks or {}).items(), _MARKS, strict=False):
        if sizes[0] <= size <= sizes[-1]:
            ax.axvline(size, color=GREY, linestyle=dashes, linewidth=1.2, zorder=0, label=f"{name}: {size_words(size)}")
    first = rows.iloc[0]
    # With one round there is no spread to draw.
    bars = f" (bars: {interval_words(int(first['rounds']))})" if marks is not None and first["rounds"] > 1 else ""
    ax.set_title(f"{what}: {first['world_size']} ranks over {first['backend']}{bars}")
    if marks is not None:
        ax.legend(fontsize=8)


def _duration(microseconds: float) -> str:
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= unit:
            return f"{microseconds / unit:g} {name}"
    return f"{microseconds:g} us"
