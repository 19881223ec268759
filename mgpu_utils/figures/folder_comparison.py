"""The figure of a report: what the same configurations reach in other result folders, as a ratio with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mgpu_utils.figures.alt_text import shortened
from mgpu_utils.figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, line_tone, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOKS = tuple(zip(map(line_tone, (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)), "os^Dvp", strict=True))
# A row of dots for each configuration, a dot for each folder in it.
_INCHES_A_ROW, _INCHES_A_DOT, _INCHES_AROUND = 0.2, 0.1, 1.2
# From here on a linear axis would press small differences together.
_WIDE_RANGE = 3.0


class Ratio(NamedTuple):
    """How one folder compares with the first in one configuration; ``labelled`` when circumstances differ."""

    configuration: str
    folder: str
    ratio: float
    low: float
    high: float
    labelled: bool


def folder_ratios(ratios: Sequence[Ratio], than: str, ax: Axes | None = None) -> Axes:
    """Draw each ratio with its unpaired interval; hollow where machine, versions or set-up differ.

    Raises: ValueError for no ratio.
    """
    if not ratios:
        raise ValueError("There is no ratio to draw.")
    with styled():
        if ax is None:
            rows, dots = (len({item[place] for item in ratios}) for place in (0, 1))
            height = _INCHES_AROUND + rows * (_INCHES_A_ROW + _INCHES_A_DOT * dots) + _INCHES_A_ROW * dots
            _, axes = new_figure(panel=(7.4, height))
            ax = axes[0, 0]
        _draw(list(ratios), than, ax)
    return ax


def _draw(ratios: list[Ratio], than: str, ax: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    names = list(dict.fromkeys(item.configuration for item in ratios))
    folders = list(dict.fromkeys(item.folder for item in ratios))
    told: set[tuple[str, bool]] = set()
    for item in ratios:
        color, marker = _LOOKS[folders.index(item.folder) % len(_LOOKS)]
        at = names.index(item.configuration) + 0.6 * ((folders.index(item.folder) + 0.5) / len(folders) - 0.5)
        spread = None if math.isnan(item.low) else [[item.ratio - item.low], [item.high - item.ratio]]
        label = item.folder + (" (different environment or set-up)" if item.labelled else "")
        ax.errorbar(
            item.ratio,
            at,
            xerr=spread,
            fmt=marker,
            color=color,
            markerfacecolor="white" if item.labelled else color,
            capsize=3,
            linewidth=1.2,
            label=None if (item.folder, item.labelled) in told else label,
        )
        told.add((item.folder, item.labelled))
    said = [
        f"{item.configuration}, {item.folder}: {item.ratio:.3g}"
        + (" (different environment or set-up)" if item.labelled else "")
        for item in ratios
    ]
    ax.set_label(shortened(said, 16, "; "))
    ax.axvline(1.0, color=BLACK, linestyle="--", linewidth=1.0)
    ends = [value for item in ratios for value in item[2:5] if not math.isnan(value)]
    if max([*ends, 1.0]) / min([*ends, 1.0]) > _WIDE_RANGE:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="both", color="#e6e6e6", linewidth=0.6)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel(f"ratio to {than} (more than 1: faster)")
    ax.figure.legend(loc="outside lower center", fontsize=8, ncols=1, frameon=False)
