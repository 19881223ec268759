"""The figure of the strategy comparison: throughput of one model beside the ideal and the machine's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mgpu_utils.figures.style import BLACK, STRATEGY_COLORS, STRATEGY_LABELS, VERMILION, new_figure, styled
from mgpu_utils.timing import interval_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MOST_UPRIGHT_LABELS = 5
_DARK = {"single", "ddp", "independent"}


class _Bar(NamedTuple):
    row: pd.Series
    label: tuple[str, ...]
    hatched: bool = False


def throughput(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw one model's throughput with 95 % intervals, the ideal (N x single) and the machine's limit.

    ``table`` holds rows of one model and one kind of scaling, as `mgpu_utils.benchmark.summarise` gives
    them. The number in a bar is its speed-up over `single` with the threads of one process.

    Raises: ValueError for a table that mixes models or kinds of scaling, or holds no row.
    """
    for column in ("model", "scaling"):
        if table[column].nunique() != 1:
            raise ValueError(f"One panel shows one {column}, but the table holds {sorted(set(table[column]))}.")
    with styled():
        if ax is None:
            _, axes = new_figure()
            ax = axes[0, 0]
        _draw(table, ax)
    return ax


def _draw(table: pd.DataFrame, ax: Axes) -> None:
    base = _base(table)
    groups = _groups(table)
    count = sum(len(bars) for _, bars in groups)
    at, ticks = 0.0, []
    for size, bars in groups:
        for offset, bar in enumerate(bars):
            _draw_bar(ax, at + offset, bar)
            ticks.append(at + offset)
        # One group: the lines reach over the bars of one process as well, to be compared with them.
        left = -0.5 if len(groups) == 2 else at - 0.5
        if size > 1 or len(groups) == 1:
            _draw_levels(ax, left, at + len(bars) - 0.5, base, size, table)
        at += len(bars) + (0.0 if len(groups) == 2 else 0.5)
    labels = [bar.label for _, bars in groups for bar in bars]
    if count > _MOST_UPRIGHT_LABELS:
        ax.set_xticks(ticks, [", ".join(label) for label in labels], fontsize=8, rotation=40, ha="right")
        ax.tick_params(axis="x", pad=1)
    else:
        ax.set_xticks(ticks, ["\n".join(label) for label in labels], fontsize=8)
    ax.set_xlim(-0.6, ticks[-1] + 0.6)
    ax.set_ylabel("samples/s, all ranks")
    ax.set_ylim(0, max(ax.get_ylim()[1] * 1.05, 1.0))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    first = table.iloc[0]
    weak = first["scaling"] == "weak"
    batch = _batches(table, "per_device_batch" if weak else "global_batch")
    ax.set_title(f"{first['model']}, {first['scaling']} scaling ({batch} samples {'a device' if weak else 'in all'})")


def _base(table: pd.DataFrame) -> pd.Series | None:
    """Return the row of one process with the threads of one device."""
    single = table[(table["strategy"] == "single") & table["samples_per_second"].notna()]
    return None if single.empty else single.sort_values("total_threads").iloc[0]


def _groups(table: pd.DataFrame) -> list[tuple[int, list[_Bar]]]:
    """Return the bars by number of devices: first one process alone, then each world size."""
    one_process = int(table["total_threads"].min())
    groups: dict[int, list[_Bar]] = {}
    for _, row in table.iterrows():
        threads, size = int(row["total_threads"]), int(row["world_size"])
        name = STRATEGY_LABELS[row["strategy"]]
        label: tuple[str, ...]
        if row["strategy"] == "single":
            several = threads > one_process
            words = f"{threads} thread{'s' if threads > 1 else ''}"
            label = (name, words) if row["device_type"] == "cpu" else (name,)
            groups.setdefault(threads // one_process, []).append(_Bar(row, label, hatched=several))
        elif row["strategy"] == "data_parallel":
            stand_in = row["implementation"] != "torch"
            label = (name, "stand-in", f"{size} threads") if stand_in else (name, f"{size} devices")
            groups.setdefault(size, []).append(_Bar(row, label))
        elif row["strategy"] == "ddp":
            groups.setdefault(size, []).append(_Bar(row, (name, f"{size} rank{'s' if size > 1 else ''}")))
    if not groups:
        sizes = sorted({int(size) for size in table["world_size"]})
        groups = {
            size: [
                _Bar(row, ("independent", f"{size} jobs")) for _, row in table[table["world_size"] == size].iterrows()
            ]
            for size in sizes
        }
    return sorted(groups.items())


def _draw_bar(ax: Axes, at: float, bar: _Bar) -> None:
    row, color = bar.row, STRATEGY_COLORS[bar.row["strategy"]]
    value = row["samples_per_second"]
    if value != value:
        ax.annotate(
            "failed",
            (at, 0),
            xytext=(0, 4),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="bottom",
            color=VERMILION,
            fontsize=8,
        )
        return
    ax.bar(
        at,
        value,
        width=0.74,
        color="white" if bar.hatched else color,
        edgecolor=color,
        hatch="////" if bar.hatched else None,
    )
    low, high = row["samples_per_second_low"], row["samples_per_second_high"]
    if low == low:
        ax.errorbar(at, value, [[value - low], [high - value]], color=BLACK, capsize=4, linewidth=1.2)
    if row["speedup"] == row["speedup"]:
        # Inside the bar and low, where neither the lines nor the interval run.
        ax.annotate(
            f"{row['speedup']:.2f}x",
            (at, value * 0.4),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if row["strategy"] in _DARK and not bar.hatched else "black",
            bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"} if bar.hatched else None,
        )


def _draw_levels(ax: Axes, left: float, right: float, base: pd.Series | None, size: int, table: pd.DataFrame) -> None:
    if base is not None:
        ideal = base["samples_per_second"] * size
        ax.hlines(ideal, left, right, color=BLACK, linestyle="--", linewidth=1.2, zorder=4, label="ideal: N x single")
    limit = table[(table["strategy"] == "independent") & (table["world_size"] == size)].dropna(
        subset=["samples_per_second"]
    )
    if limit.empty:
        return
    spread = interval_words(int(limit.iloc[0]["rounds"]))
    median, low, high = limit.iloc[0][
        ["samples_per_second", "samples_per_second_low", "samples_per_second_high"]
    ].astype(float)
    color = STRATEGY_COLORS["independent"]
    ax.hlines(median, left, right, color=color, linewidth=1.8, label=f"limit: N independent jobs, {spread}")
    if low == low:
        ax.fill_between([left, right], low, high, color=color, alpha=0.2, linewidth=0)


def _batches(table: pd.DataFrame, column: str) -> str:
    several = table[table["world_size"] > 1]
    values = sorted(set((table if several.empty else several)[column]))
    return " or ".join(str(value) for value in values)
