"""The pictures of the lessons: one function each, returning the matplotlib Axes it drew on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    fill,
    line_tone,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

STEPS = (
    "Check the\ndevices",
    "Split a model\nacross devices",
    "Feed every\ndevice",
    "Initialise and\nplace the model",
    "Wrap it in\nDataParallel",
    "Run the\ntraining loop",
    "Choose the\noptimizer",
    "Compute\nthe loss",
    "Aggregate the\ngradients",
    "Update the\nparameters",
)
_DEVICES_TALK = {2, 4, 5, 6, 9}
_REPLICA_COLORS = tuple(map(line_tone, (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)))
_PART_LOOKS = {
    "scatter": (SKY, ""),
    "replicate": (VERMILION, "////"),
    "forward": (BLUE, ""),
    "gather": (PURPLE, "...."),
    "loss": (GREY, "xxxx"),
    "backward": (GREEN, "\\\\\\\\"),
}


def ten_steps() -> Axes:
    """Draw the map of the course; thick frames mark the steps in which devices exchange something."""
    from matplotlib.patches import FancyBboxPatch

    with styled():
        _, axes = new_figure(panel=(8.4, 2.9))
        ax = axes[0, 0]
        for number, words in enumerate(STEPS, start=1):
            row, column = divmod(number - 1, 5)
            x, y = column * 2.0, -1.45 * row
            talks = number in _DEVICES_TALK
            box = FancyBboxPatch(
                (x, y),
                1.62,
                1.0,
                boxstyle="round,pad=0.0,rounding_size=0.12",
                facecolor="#DCEBF5" if talks else "white",
                edgecolor=BLUE if talks else GREY,
                linewidth=2.4 if talks else 1.0,
            )
            ax.add_patch(box)
            ax.text(x + 0.81, y + 0.8, f"{number:02d}", ha="center", va="center", fontsize=10, color="black")
            ax.text(x + 0.81, y + 0.36, words, ha="center", va="center", fontsize=9.5, color="black")
            if column < 4:
                ax.annotate("", (x + 2.0, y + 0.5), (x + 1.64, y + 0.5), arrowprops={"arrowstyle": "->", "color": GREY})
        ax.plot([8.81, 8.81, 0.81, 0.81], [-0.03, -0.225, -0.225, -0.3], color=GREY, linewidth=1.2)
        ax.annotate("", (0.81, -0.44), (0.81, -0.22), arrowprops={"arrowstyle": "->", "color": GREY})
        ax.set_xlim(-0.1, 9.75)
        ax.set_ylim(-1.6, 1.15)
        ax.set_axis_off()
        ax.set_title("The ten steps. Thick blue frame: devices exchange data in this step.")
        steps = [f"{number:02d} {' '.join(words.split())}" for number, words in enumerate(STEPS, start=1)]
        thick = [step for number, step in enumerate(steps, start=1) if number in _DEVICES_TALK]
        ax.set_label(f"{', '.join(steps)}. Thick frame: {', '.join(thick)}")
    return ax


def values_on_ranks(before: Sequence[float], after: Sequence[float], operation: str = "all_reduce") -> Axes:
    """Draw the number each rank held before and after a collective, as two bars a rank."""

    if len(before) != len(after):
        raise ValueError(f"{len(before)} values before, but {len(after)} after: give one of each a rank.")
    with styled():
        _, axes = new_figure(panel=(6.4, 2.8))
        ax = axes[0, 0]
        for shift, values, label, color, hatch in (
            (-0.2, before, f"before {operation}", "white", "////"),
            (0.2, after, f"after {operation}", BLUE, ""),
        ):
            places = [rank + shift for rank in range(len(values))]
            bars = ax.bar(places, values, width=0.36, label=label, color=color, edgecolor=BLUE, hatch=hatch)
            ax.bar_label(bars, fmt="%g", padding=2)
        ax.set_xticks(range(len(before)), [f"rank {rank}" for rank in range(len(before))])
        ax.set_ylabel("value")
        ax.set_ylim(0, 1.25 * max([*before, *after, 1e-9]))
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        ax.set_title(f"What each rank holds before and after {operation}")
    return ax


def scattered_samples(images: Tensor, sizes: Sequence[int], names: Sequence[str] | None = None) -> Axes:
    """Draw a batch (N, 1, H, W) and below it which sample went to which replica, each at its place in the batch.

    `sizes` holds the number of samples of each replica in order; raises ValueError when they do not add up to N.
    """
    from matplotlib.patches import Rectangle

    count = len(images)
    if sum(sizes) != count:
        raise ValueError(f"the replicas hold {sum(sizes)} samples, but the batch holds {count}.")
    rows = ["batch", *(names or [f"replica {number}" for number in range(len(sizes))])]
    owner = [number for number, size in enumerate(sizes) for _ in range(size)]
    with styled():
        width = min(8.4, 1.5 + 0.62 * count)
        _, axes = new_figure(panel=(width, 0.5 + (width - 1.1) / count * (len(rows)) * 1.12))
        ax = axes[0, 0]
        for place in range(count):
            for row in (0, owner[place] + 1):
                _digit(ax, images[place, 0], place, -1.15 * row)
                edge = GREY if row == 0 else _REPLICA_COLORS[owner[place] % len(_REPLICA_COLORS)]
                ax.add_patch(Rectangle((place - 0.45, -1.15 * row - 0.45), 0.9, 0.9, fill=False, edgecolor=edge, lw=2))
        ax.set_yticks([-1.15 * row for row in range(len(rows))], rows)
        ax.set_xticks(range(count))
        ax.set_xlabel("place in the batch")
        ax.set_xlim(-0.6, count - 0.4)
        ax.set_ylim(-1.15 * (len(rows) - 1) - 0.6, 0.6)
        ax.set_aspect("equal")
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        ax.tick_params(length=0)
        ax.set_title(f"Scatter: {count} samples in order, {_joined(sizes)} to the replicas")
        held = [[place for place in range(count) if owner[place] == number] for number in range(len(sizes))]
        places = (f"{_joined(mine)}" if mine else "nothing" for mine in held)
        ax.set_label("; ".join(f"{name}: {words}" for name, words in zip(rows[1:], places, strict=True)))
    return ax


def step_cost(bars: Mapping[str, Mapping[str, float]], title: str) -> Axes:
    """Draw where the time of one step goes: one horizontal bar a row, `bars[row][part]` in seconds."""
    with styled():
        _, axes = new_figure(panel=(8.2, 1.5 + 0.62 * len(bars)))
        ax = axes[0, 0]
        for row, parts in enumerate(bars.values()):
            left = 0.0
            for part, seconds in parts.items():
                label = part if part not in _labels(ax) else None
                ax.barh(-row, seconds * 1e3, 0.6, left, **fill(*_PART_LOOKS[part]), label=label)
                left += seconds * 1e3
            ax.text(left, -row, f"  {left:.3g} ms", va="center")
        ax.set_yticks([-row for row in range(len(bars))], list(bars))
        ax.set_xlabel("milliseconds per step (medians of the parts)")
        ax.set_xlim(0, ax.get_xlim()[1] * 1.12)
        shown = dict(zip(_labels(ax), ax.get_legend_handles_labels()[0], strict=True))
        order = [part for part in _PART_LOOKS if part in shown]
        handles = [shown[part] for part in order]
        ax.legend(handles, order, ncols=len(order), loc="upper left", bbox_to_anchor=(0, -0.28), columnspacing=1.2)
        ax.set_title(title)
    return ax


def _labels(ax: Axes) -> list[str]:
    return [str(label) for label in ax.get_legend_handles_labels()[1]]


def _digit(ax: Axes, image: Any, x: float, y: float) -> None:
    ax.imshow(image.cpu().numpy(), cmap="gray_r", extent=(x - 0.45, x + 0.45, y - 0.45, y + 0.45), vmin=0, vmax=1)


def _joined(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:-1])) + (" and " if len(sizes) > 1 else "") + str(sizes[-1])
