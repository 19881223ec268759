"""The figure of the strategy comparison: throughput of one model beside the ideal and the machine's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.statistics import outliers, rounds_from_text
from mgpu_utils.figures.style import BLACK, VERMILION, line_tone, new_figure, styled, word_tone, words_on
from mgpu_utils.timing import interval_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_UPRIGHT_LABELS = 5
_WIDEST_LABEL = 14
_A_ROUND, _AN_OUTLIER = "one round", "outlier round, kept in all numbers"
_TEXT_HEIGHTS = (0.4, 0.2, 0.6, 0.1, 0.8)


class _Bar(NamedTuple):
    row: pd.Series
    label: tuple[str, ...]
    hatched: bool = False


def throughput(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw one model's throughput with 95 % intervals, the ideal (N x single) and the machine's limit.

    ``table`` holds rows of one model, precision, number of micro-batches and kind of scaling, as
    `mgpu_utils.benchmark.summarise` gives them. The number in a bar is its speed-up over `single` with the
    threads of one process. A dot is one round, in order from left to right; outliers have a ring.

    Raises: ValueError for a table that mixes any of these, or holds no row.
    """
    for column in ("model", "scaling", "precision", "accumulation"):
        if column in table and table[column].nunique() != 1:
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
    if count > MOST_UPRIGHT_LABELS:
        ax.set_xticks(ticks, [", ".join(label) for label in labels], fontsize=8, rotation=40, ha="right")
        ax.tick_params(axis="x", pad=1)
    else:
        ax.set_xticks(ticks, ["\n".join(map(_narrow, label)) for label in labels], fontsize=8)
    ax.set_xlim(-0.6, ticks[-1] + 0.6)
    ax.set_ylabel("samples/s, all ranks")
    ax.set_ylim(0, max(ax.get_ylim()[1] * 1.05, 1.0))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_title(_title(table))


def _narrow(line: str) -> str:
    """Break the long name of an option in two."""
    at = line.find("_", len(line) // 2 - 2) + 1
    return f"{line[:at]}\n{line[at:]}" if len(line) > _WIDEST_LABEL and at else line


def _base(table: pd.DataFrame) -> pd.Series | None:
    """Return the row of one process with the threads of one device."""
    single = table[[CONTENDERS[name].on_one_device for name in table["strategy"]]].dropna(subset=["samples_per_second"])
    return None if single.empty else single.sort_values("total_threads").iloc[0]


def _groups(table: pd.DataFrame) -> list[tuple[int, list[_Bar]]]:
    """Return the bars by number of devices: first one process alone, then each world size."""
    one_process = int(table["total_threads"].min())
    groups: dict[int, list[_Bar]] = {}
    for _, row in table.iterrows():
        threads, size = int(row["total_threads"]), int(row["world_size"])
        contender = CONTENDERS[row["strategy"]]
        if contender.is_limit:
            continue
        label = contender.label.split(", ")
        if contender.on_one_device:
            if row["device_type"] == "cpu":
                label.append(f"{threads} thread{'s' if threads > 1 else ''}")
            size = threads // one_process
        elif contender.processes == "one":
            stand_in = row["implementation"] != "torch"
            label += ["stand-in", f"{size} threads"] if stand_in else [f"{size} devices"]
        else:
            label.append(f"{size} rank{'s' if size > 1 else ''}")
        if row.get("oversubscribed"):
            label.append("oversubscribed")
        hatched = contender.on_one_device and threads > one_process
        groups.setdefault(size, []).append(_Bar(row, tuple(label), hatched))
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
    row, color = bar.row, CONTENDERS[bar.row["strategy"]].color
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
            color=word_tone(VERMILION),
            fontsize=8,
        )
        return
    ax.bar(
        at,
        value,
        width=0.74,
        color="white" if bar.hatched else color,
        edgecolor=line_tone(color),
        hatch="////" if bar.hatched else None,
    )
    low, high = row["samples_per_second_low"], row["samples_per_second_high"]
    if low == low:
        ax.errorbar(at, value, [[value - low], [high - value]], color=BLACK, capsize=4, linewidth=1.2)
    dots = list(rounds_from_text(row.get("by_round")).values())
    if len(dots) > 1:
        _draw_rounds(ax, at, dots)
    if row["speedup"] == row["speedup"]:
        # Inside the bar and low, where neither the lines nor the interval run, and away from the dots.
        heights = {share: min((abs(dot / value - share) for dot in dots), default=1.0) for share in _TEXT_HEIGHTS}
        share = next((share for share, distance in heights.items() if distance > 0.16), _TEXT_HEIGHTS[0])
        ax.annotate(
            f"{row['speedup']:.2f}x",
            (at, value * share),
            ha="center",
            va="center",
            fontsize=8,
            color=BLACK if bar.hatched else words_on(color),
            bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"} if bar.hatched else None,
        )


def _draw_rounds(ax: Axes, at: float, values: list[float]) -> None:
    """Draw each round's value, from left to right over the bar, with a ring around outliers."""
    from matplotlib.patheffects import withStroke

    labels = set(ax.get_legend_handles_labels()[1])
    step = 0.56 / (len(values) - 1)
    places = [at - 0.28 + step * number for number in range(len(values))]
    ax.scatter(
        places,
        values,
        s=9,
        color="white",
        edgecolor=BLACK,
        linewidth=0.7,
        zorder=5,
        label=None if _A_ROUND in labels else _A_ROUND,
    )
    far = outliers(values)
    if far:
        ax.scatter(
            [places[number] for number in far],
            [values[number] for number in far],
            s=60,
            facecolor="none",
            edgecolor=BLACK,
            linewidth=1.2,
            # Bars have every colour of the palette; with a white rim the ring is seen on all of them.
            path_effects=[withStroke(linewidth=3.2, foreground="white")],
            zorder=4.5,
            label=None if _AN_OUTLIER in labels else _AN_OUTLIER,
        )


def _draw_levels(ax: Axes, left: float, right: float, base: pd.Series | None, size: int, table: pd.DataFrame) -> None:
    if base is not None:
        ideal = base["samples_per_second"] * size
        ax.hlines(ideal, left, right, color=BLACK, linestyle="--", linewidth=1.2, zorder=4, label="ideal: N x single")
    limits = table[[CONTENDERS[name].is_limit for name in table["strategy"]]]
    limit = limits[limits["world_size"] == size].dropna(subset=["samples_per_second"])
    if limit.empty:
        return
    spread = interval_words(int(limit.iloc[0]["rounds"]))
    median, low, high = limit.iloc[0][
        ["samples_per_second", "samples_per_second_low", "samples_per_second_high"]
    ].astype(float)
    color = line_tone(CONTENDERS[limit.iloc[0]["strategy"]].color)
    ax.hlines(median, left, right, color=color, linewidth=1.8, label=f"limit: N independent jobs, {spread}")
    if low == low:
        ax.fill_between([left, right], low, high, color=color, alpha=0.2, linewidth=0)


def _title(table: pd.DataFrame) -> str:
    first = table.iloc[0]
    weak = first["scaling"] == "weak"
    batch = _batches(table, "per_device_batch" if weak else "global_batch")
    each = "a device" if weak else "in all"
    lines = [f"{first['model']}, {first['scaling']} scaling ({batch} samples {each})"]
    precision, micro_batches = first.get("precision", "float32"), first.get("accumulation", 1)
    unusual = [] if precision == "float32" else [precision]
    if micro_batches > 1:
        unusual.append(f"{micro_batches} micro-batches a step" + (" of so many samples each" if weak else ""))
    return "\n".join([*lines, *([", ".join(unusual)] if unusual else [])])


def _batches(table: pd.DataFrame, column: str) -> str:
    several = table[table["world_size"] > 1]
    values = sorted(set((table if several.empty else several)[column]))
    return " or ".join(str(value) for value in values)
