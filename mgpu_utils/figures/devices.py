"""The pictures of lessons 01 and 02: devices seen and used, bytes per rank, and who worked when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mgpu_utils.figures.alt_text import spans_in_words
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
from mgpu_utils.timeline import Span, idle_share, on_one_clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = {"forward": (SKY, ""), "backward": (GREEN, "////")}
_BYTES = (BLUE, ORANGE, PURPLE, GREEN)
_HATCHES = ("", "////", "....", "\\\\\\\\")


def visible_devices(entries: Sequence[int], physical: int, title: str) -> Axes:
    """Draw which physical GPU each device number of a process stands for; `entries[i]` is the GPU behind `cuda:i`.

    Raises ValueError for an entry that is none of the `physical` GPUs.
    """
    if any(not 0 <= entry < physical for entry in entries):
        raise ValueError(f"the entries {list(entries)} name a GPU that is none of the {physical} there are.")
    with styled():
        _, axes = new_figure(panel=(7.6, 2.5))
        ax = axes[0, 0]
        for gpu in range(physical):
            seen = gpu in entries
            _box(ax, gpu, 1.0, f"GPU {gpu}" + ("" if seen else "\nhidden"), BLUE if seen else GREY, seen)
        for number, gpu in enumerate(entries):
            _box(ax, number, 0.0, f"cuda:{number}", line_tone(ORANGE), True)
            arrow = {"arrowstyle": "-|>", "color": "black", "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (gpu, 0.73), (number, 0.27), arrowprops=arrow)
        if not entries:
            ax.text((physical - 1) / 2, 0.0, "no device at all", ha="center", va="center")
        ax.set_xlim(-0.6, max(physical, len(entries)) - 0.4)
        ax.set_ylim(-0.35, 1.35)
        ax.set_yticks([0, 1], ["what the\nprocess calls it", "in the machine"])
        ax.set_xticks([])
        ax.tick_params(length=0)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        hidden = [str(gpu) for gpu in range(physical) if gpu not in entries]
        told = [f"cuda:{number} is GPU {gpu}" for number, gpu in enumerate(entries)] or ["no device at all"]
        ax.set_label("; ".join([*told, *([f"hidden: GPU {' and '.join(hidden)}"] if hidden else [])]))
        ax.set_title(title)
    return ax


def counted_and_usable(rows: Mapping[str, tuple[int, int, int, str]], title: str) -> Axes:
    """Draw, for each machine, its GPUs: `rows[name]` is (plugged in, counted, usable together, why)."""
    with styled():
        _, axes = new_figure(panel=(8.4, 1.1 + 0.42 * len(rows)))
        ax = axes[0, 0]
        most = max(there for there, *_ in rows.values())
        looks = (
            ("in the machine", GREY, "|", 260),
            ("counted", line_tone(ORANGE), "s", 190),
            ("usable together", BLUE, "o", 70),
        )
        for place, (there, counted, usable, why) in enumerate(rows.values()):
            ax.plot([0, there], [-place, -place], color="#D8D8D8", lw=7, solid_capstyle="butt", zorder=1)
            for value, (label, color, marker, size) in zip((there, counted, usable), looks, strict=True):
                face = "white" if marker == "s" else color
                named = label if place == 0 else None
                edge = {} if marker == "|" else {"edgecolor": color}
                ax.scatter(value, -place, size, marker=marker, facecolor=face, lw=2.2, label=named, zorder=3, **edge)
            ax.text(most + 0.35, -place, why, va="center", fontsize=9.5)
        ax.set_yticks([-place for place in range(len(rows))], list(rows))
        ax.set_ylim(-len(rows) + 0.5, 0.5)
        ax.set_xticks(range(most + 1))
        ax.axvline(2, color="black", lw=1, ls=":", zorder=0)
        ax.set_xlim(-0.25, most + 2.7)
        ax.spines["bottom"].set_bounds(0, most)
        ax.set_xlabel("number of GPUs", x=0.29)
        ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -1.2 / (1 + len(rows))), ncols=3, handletextpad=0.4)
        told = [
            f"{name}: {there} in the machine, {counted} counted, {usable} usable together ({why})"
            for name, (there, counted, usable, why) in rows.items()
        ]
        ax.set_label("; ".join(told))
        ax.set_title(title)
    return ax


def work_of_ranks(lines: Mapping[str, Mapping[int, float]], title: str) -> Axes:
    """Draw the work done per second against the number of busy ranks, each line over what one rank does alone."""
    with styled():
        _, axes = new_figure(panel=(7.4, 3.4))
        ax = axes[0, 0]
        most = max(ranks for points in lines.values() for ranks in points)
        ax.plot([1, most], [1, most], color=GREY, ls=":", lw=1.5, label="ideal: each rank adds its own")
        for (name, points), color, marker, style in zip(
            lines.items(), (BLUE, VERMILION, GREEN), "os^", ("-", "--", "-."), strict=False
        ):
            ax.plot(list(points), list(points.values()), style, color=color, marker=marker, ms=7, lw=2, label=name)
        ax.set_xticks(range(1, most + 1))
        ax.set_xlabel("ranks at work at the same time")
        ax.set_ylabel("work per second\n(one rank alone = 1)")
        ax.set_ylim(0, most + 0.3)
        ax.legend(loc="upper left")
        ax.set_title(title)
    return ax


def bytes_per_rank(rows: Mapping[str, Sequence[Mapping[str, int]]], whole: int, title: str) -> Axes:
    """Draw the bytes each rank holds: `rows[way][rank][part]`, beside a line at the `whole` model's bytes."""
    with styled():
        count = sum(len(ranks) for ranks in rows.values())
        _, axes = new_figure(panel=(8.2, 1.5 + 0.36 * count + 0.15 * len(rows)))
        ax = axes[0, 0]
        parts = list(dict.fromkeys(part for ranks in rows.values() for rank in ranks for part in rank))
        place, ticks, names = 0.0, [], []
        for way, ranks in rows.items():
            for rank, held in enumerate(ranks):
                left = 0.0
                for part, count_of_bytes in held.items():
                    look = parts.index(part)
                    size = count_of_bytes / 1e3
                    known = part in ax.get_legend_handles_labels()[1]
                    label = None if known else part
                    ax.barh(-place, size, 0.8, left, **fill(_BYTES[look % 4], _HATCHES[look % 4]), label=label)
                    left += size
                ax.text(left, -place, f"  {left:,.1f}", va="center")
                ticks.append(-place)
                names.append(f"{way}, rank {rank}")
                place += 1
            place += 0.45
        ax.axvline(whole / 1e3, color="black", lw=1.2, ls=":", label="parameters of\nthe whole model")
        ax.set_yticks(ticks, names)
        ax.set_xlabel("kilobytes held by the rank")
        told = [
            f"{way}, rank {rank}: {', '.join(f'{part} {size / 1e3:,.1f}' for part, size in held.items())}"
            for way, ranks in rows.items()
            for rank, held in enumerate(ranks)
        ]
        ax.set_label("; ".join([*told, f"parameters of the whole model {whole / 1e3:,.1f}"]))
        ax.set_xlim(0, 1.14 * ax.get_xlim()[1])
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        ax.set_title(title)
    return ax


def stage_timeline(spans: Sequence[Sequence[Span]], title: str) -> Axes:
    """Draw when each rank worked: one row a rank, its spans numbered by micro-batch; what is white is idle.

    Raises ValueError when no rank has noted anything.
    """
    aligned = on_one_clock(spans)
    with styled():
        _, axes = new_figure(panel=(8.2, 1.5 + 0.55 * len(spans)))
        ax = axes[0, 0]
        end = max(span.end for rank in aligned for span in rank) * 1e3
        for rank, row in enumerate(aligned):
            ax.barh(-rank, end, 0.7, color="white", edgecolor=GREY, lw=0.8)
            for span in row:
                color, hatch = _KINDS.get(span.kind, (ORANGE, "...."))
                named = span.kind if span.kind not in ax.get_legend_handles_labels()[1] else None
                left, width = span.start * 1e3, span.seconds * 1e3
                ax.barh(-rank, width, 0.7, left, color=color, hatch=hatch, edgecolor="black", lw=0.8, label=named)
                if width > 0.022 * end and len(row) > 2:
                    box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
                    middle = left + width / 2
                    ax.text(middle, -rank, str(span.micro_batch), ha="center", va="center", fontsize=9, bbox=box)
        ax.set_yticks([-rank for rank in range(len(spans))], [f"rank {rank}" for rank in range(len(spans))])
        ax.set_xlim(0, 1.004 * end)
        ax.set_xlabel("milliseconds")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        idle = f"idle: {idle_share(spans):.0%}"
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title=idle)
        ax.set_label(f"{spans_in_words(aligned)}; {idle}")
        ax.set_title(title)
    return ax


def bubble(measured: Mapping[int, Sequence[float]], stages: int, title: str) -> Axes:
    """Draw the share of idle time against the number of micro-batches: `measured[m]` beside (p-1)/(m+p-1)."""
    from mgpu_utils.timing import median_interval

    with styled():
        _, axes = new_figure(panel=(7.4, 3.4))
        ax = axes[0, 0]
        counts = range(1, max(measured) + 1)
        predicted = [(stages - 1) / (m + stages - 1) * 100 for m in counts]
        ax.plot(counts, predicted, color=GREY, ls="--", lw=1.8, label=f"predicted: (p-1)/(m+p-1), p = {stages}")
        for number, (m, shares) in enumerate(measured.items()):
            label = "measured: each run, and the median" if number == 0 else None
            ax.scatter([m] * len(shares), [100 * share for share in shares], 26, color=SKY, edgecolor=BLUE, zorder=3)
            ax.scatter(m, 100 * median_interval(shares).median, 240, color=BLUE, marker="_", lw=3, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(measured), [str(m) for m in measured])
        ax.set_xlabel("micro-batches per step, m")
        ax.set_ylabel("idle time of the ranks, %")
        ax.set_ylim(0, None)
        ax.legend(loc="upper right")
        told = [
            f"{m}: measured {100 * median_interval(shares).median:.3g}, predicted {predicted[m - 1]:.3g}"
            for m, shares in measured.items()
        ]
        ax.set_label(f"medians of {stages} stages by the number of micro-batches: {'; '.join(told)}")
        ax.set_title(title)
    return ax


def _box(ax: Axes, x: float, y: float, words: str, color: str, strong: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.08"
    face, line = ("white", "-") if strong else ("#F2F2F2", ":")
    ax.add_patch(
        FancyBboxPatch((x - 0.4, y - 0.26), 0.8, 0.52, boxstyle=style, facecolor=face, edgecolor=color, lw=2, ls=line)
    )
    ax.text(x, y, words, ha="center", va="center")
