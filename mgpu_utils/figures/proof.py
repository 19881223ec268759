"""Pictures of updates: when replicas part, how far weights differ, and what three strategies reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.alt_text import shortened
from mgpu_utils.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    STRATEGY_COLORS,
    STRATEGY_LABELS,
    VERMILION,
    fill,
    line_tone,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgpu_utils.step_hashes import StepHashes

_LINES: tuple[tuple[str, Any], ...] = (
    (BLUE, "-"),
    (VERMILION, "--"),
    (GREEN, ":"),
    (PURPLE, "-."),
    (line_tone(ORANGE), (0, (5, 1, 1, 1))),
)
_STRATEGY_HATCHES = {"single": "", "data_parallel": "////", "ddp": "...."}
_FLOOR = 1e-9


def step_hashes(table: StepHashes) -> Axes:
    """Draw the hash of all parameters of each row after each step; those unlike most others of the step are framed."""
    from matplotlib.patches import Rectangle

    count = len(table.rows)
    with styled():
        # No narrower than the title.
        width = max(6.0, min(8.6, 1.6 + 0.86 * table.steps))
        _, axes = new_figure(panel=(width, 1.0 + 0.36 * count))
        ax = axes[0, 0]
        for row, hashes in enumerate(table.rows.values()):
            for column, digits in enumerate(hashes):
                odd = digits != table.usual(column)
                looks: dict[str, Any] = {"facecolor": "#DCEBF5", "edgecolor": "white", "lw": 1.0}
                if odd:
                    looks = {"facecolor": "white", "edgecolor": VERMILION, "hatch": "////", "lw": 1.6}
                ax.add_patch(Rectangle((column + 0.03, -row - 0.42), 0.94, 0.84, **looks))
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2} if odd else None
                place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5, "family": "monospace"}
                ax.text(column + 0.5, -row, digits[:8], bbox=box, color=BLACK, **place)
        ax.set_label(
            shortened([f"{row}: {', '.join(one[:8] for one in held)}" for row, held in table.rows.items()], joint="; ")
        )
        numbers = range(table.first, table.first + table.steps)
        ax.set_xticks([column + 0.5 for column in range(table.steps)], [f"step {number}" for number in numbers])
        ax.set_yticks([-row for row in range(count)], list(table.rows))
        ax.tick_params(length=0)
        ax.set_xlim(0, table.steps)
        ax.set_ylim(-count + 0.4, 0.55)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        found = "equal after every step" if table.agree else f"different from step {table.parted} (hatched)"
        ax.set_title(f"Hash of all parameters after each step: {found}")
    return ax


def weight_difference(
    curves: Mapping[str, Sequence[float]], title: str, *, first: int = 1, tolerance: float | None = None
) -> Axes:
    """Draw the largest difference of any weight from a reference after each step, on a logarithmic axis.

    `first` is the number of the first step; `tolerance` is drawn as a line. Exact equality is drawn at the bottom.
    """
    with styled():
        _, axes = new_figure(panel=(8.0, 3.4))
        ax = axes[0, 0]
        _draw_differences(ax, curves, first, tolerance)
        ax.set_ylabel("largest difference\nof any weight")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        ax.set_title(title)
    return ax


def broken_and_cured(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, tolerance: float | None = None
) -> list[Axes]:
    """Draw one panel a cause: how far the weights differ from one device's, broken and cured, after each step."""
    with styled():
        figure, axes = new_figure(1, len(panels), panel=(max(2.95, 4.6 / len(panels)), 3.3))
        for ax, (name, (broken, cured)) in zip(axes[0], panels.items(), strict=True):
            _draw_differences(ax, {"cured": cured, "broken": broken}, 1, tolerance)
            ax.set_title(name)
            ax.sharey(axes[0, 0])
        for ax in axes[0, 1:]:
            ax.tick_params(labelleft=False)
        axes[0, 0].set_ylabel("largest difference of any weight\nfrom one device")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return list(axes[0])


def _draw_differences(ax: Axes, curves: Mapping[str, Sequence[float]], first: int, tolerance: float | None) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, (name, values) in enumerate(curves.items()):
        color, dashes = _LINES[number % len(_LINES)]
        shown = [max(float(value), _FLOOR) for value in values]
        ax.plot(range(first, first + len(shown)), shown, color=color, linestyle=dashes, linewidth=1.9, label=name)
    if tolerance is not None:
        ax.axhline(tolerance, color=GREY, linewidth=1.1, linestyle=(0, (1, 2)), label=f"{tolerance:g}")
    ax.set_yscale("log")
    ax.set_ylim(_FLOOR / 2, max(ax.get_ylim()[1], 1.0))
    powers = range(-9, 1, 3)
    ax.set_yticks(
        [10.0**power for power in powers], ["equal", *(f"$10^{{{power}}}$" for power in list(powers)[1:-1]), "1"]
    )
    ax.minorticks_off()
    ax.grid(axis="y", color="#DDDDDD")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
    ax.set_xlabel("step")


def accuracy_and_throughput(
    accuracy: Mapping[str, float],
    samples_per_second: Mapping[str, tuple[float, float, float]],
    names: Mapping[str, str] | None = None,
    title: str = "",
) -> list[Axes]:
    """Draw test accuracy (left) and training throughput (right) of the strategies, one row each.

    Args:
        accuracy: shares from 0 to 1, by the strategy's name ("single", "data_parallel", "ddp").
        samples_per_second: median and both ends of its interval, by the same names.
        names: what to call them; the course's words by default.
        title: what both panels share, such as the devices.
    """
    with styled():
        figure, axes = new_figure(1, 2, panel=(4.3, 0.95 + 0.52 * len(accuracy)))
        rows = list(accuracy)
        shown = {name: (names or {}).get(name) or STRATEGY_LABELS.get(name, name) for name in rows}
        for number, name in enumerate(rows):
            looks = fill(STRATEGY_COLORS.get(name, GREEN), _STRATEGY_HATCHES.get(name, ""))
            axes[0, 0].barh(-number, 100 * accuracy[name], 0.62, **looks)
            axes[0, 0].text(100 * accuracy[name], -number, f" {100 * accuracy[name]:.2f}", va="center")
            middle, low, high = samples_per_second[name]
            axes[0, 1].barh(-number, middle, 0.62, **looks)
            axes[0, 1].plot([low, high], [-number, -number], color=BLACK, linewidth=1.6, marker="|", markersize=8)
            axes[0, 1].text(max(middle, high), -number, f"  {middle:,.0f}", va="center")
        axes[0, 0].set_yticks([-number for number in range(len(rows))], [shown[name] for name in rows])
        axes[0, 1].set_yticks([-number for number in range(len(rows))], [""] * len(rows))
        axes[0, 0].set_xlim(0, 122)
        axes[0, 0].set_xticks([0, 25, 50, 75, 100])
        axes[0, 0].set_xlabel("test accuracy (%)")
        axes[0, 1].set_xlim(0, 1.28 * max(max(values[0], values[2]) for values in samples_per_second.values()))
        axes[0, 1].set_xlabel("training samples a second\n(median, 95 % interval)")
        told = [
            f"{shown[name]}: {middle:,.0f} ({low:,.0f} to {high:,.0f})"
            for name, (middle, low, high) in samples_per_second.items()
        ]
        axes[0, 1].set_label("; ".join(told))
        axes[0, 0].set_title("Accuracy")
        axes[0, 1].set_title("Throughput")
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return list(axes[0])
