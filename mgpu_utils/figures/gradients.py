"""The pictures of the loss and of the gradients: one function each, returning the matplotlib Axes it drew on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mgpu_utils.figures.style import (
    BLACK,
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

    from mgpu_utils.backward_timeline import BackwardTimeline

_RANK_LOOKS = ((BLUE, ""), (ORANGE, "////"), (GREEN, "...."), (PURPLE, "xxxx"), (SKY, "\\\\\\\\"), (VERMILION, "++"))
_LINES = ((BLUE, "-"), (VERMILION, "--"), (GREEN, ":"), (PURPLE, "-."), (line_tone(ORANGE), (0, (5, 1, 1, 1, 1, 1))))
_MARKERS = "osD^vP"


def traffic_by_phase(phases: Mapping[str, int], title: str) -> Axes:
    """Draw how many bytes one rank hands to collectives in each phase of a step, zeros included."""
    with styled():
        _, axes = new_figure(panel=(7.4, 0.9 + 0.42 * len(phases)))
        ax = axes[0, 0]
        places = [-row for row in range(len(phases))]
        ax.barh(places, list(phases.values()), 0.62, color=BLUE)
        for place, nbytes in zip(places, phases.values(), strict=True):
            ax.text(nbytes, place, f"  {nbytes:,}" if nbytes else "  nothing", va="center")
        ax.set_yticks(places, list(phases))
        ax.set_xlim(0, 1.2 * max([*phases.values(), 1]))
        ax.set_xlabel("bytes that one rank hands to collectives")
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.set_title(title)
    return ax


def sample_weights(weights: Sequence[Sequence[float]], title: str) -> Axes:
    """Draw what each sample counts in the loss: `weights[rank]` holds one number a sample, in batch order."""
    count = sum(map(len, weights))
    if not count:
        raise ValueError("there is no sample to draw.")
    with styled():
        _, axes = new_figure(panel=(7.4, 2.9))
        ax = axes[0, 0]
        start = 0
        for rank, held in enumerate(weights):
            look = _RANK_LOOKS[rank % len(_RANK_LOOKS)]
            places = range(start, start + len(held))
            label = f"{len(held)} sample{'s' if len(held) != 1 else ''} on rank {rank}"
            ax.bar(places, held, 0.8, **fill(*look), label=label)
            start += len(held)
        ax.axhline(1 / count, color=BLACK, linestyle="--", linewidth=1.4, label=f"1/{count}: all samples alike")
        ax.set_xticks(range(count))
        ax.set_xlabel("sample, by its place in the global batch")
        ax.set_ylabel("weight in the loss")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        ax.set_title(title)
    return ax


def loss_curves(curves: Mapping[str, Sequence[float]], title: str) -> Axes:
    """Draw the training loss of several runs against the step; each line has a dash pattern of its own."""
    with styled():
        _, axes = new_figure(panel=(7.8, 3.3))
        ax = axes[0, 0]
        for (name, losses), (color, dashes) in zip(curves.items(), _LINES * (1 + len(curves) // len(_LINES))):  # noqa: B905
            ax.plot(range(1, len(losses) + 1), losses, color=color, linestyle=dashes, linewidth=1.9, label=name)
        ax.set_xlabel("step")
        ax.set_ylabel("loss of the global batch")
        ax.set_ylim(bottom=0)
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        ax.set_title(title)
    return ax


def gradients_on_ranks(ranks: Sequence[Sequence[float]], baseline: Sequence[float], title: str) -> Axes:
    """Draw some entries of each rank's own gradient, and those of one device that sees the whole batch."""
    if any(len(held) != len(baseline) for held in ranks):
        raise ValueError("every rank needs as many numbers as the baseline has.")
    with styled():
        _, axes = new_figure(panel=(7.8, 3.1))
        ax = axes[0, 0]
        places = range(len(baseline))
        lows = [min(values) for values in zip(*ranks, strict=True)]
        highs = [max(values) for values in zip(*ranks, strict=True)]
        ax.vlines(places, lows, highs, color=GREY, linewidth=1)
        ax.axhline(0, color=GREY, linewidth=0.8)
        for rank, held in enumerate(ranks):
            color = line_tone(_RANK_LOOKS[rank % len(_RANK_LOOKS)][0])
            marker = _MARKERS[rank % len(_MARKERS)]
            ax.plot(places, held, marker, color=color, markersize=6, label=f"rank {rank}, its own shard")
        ax.plot(places, baseline, "_", color=BLACK, markersize=15, markeredgewidth=2.2, label="one device, whole batch")
        ax.set_xticks(places)
        ax.set_xlabel("entry of the gradient")
        ax.set_ylabel("value")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        ax.set_title(title)
    return ax


def backward_timelines(timelines: Mapping[str, Sequence[BackwardTimeline]], title: str) -> Axes:
    """Draw one backward pass for each method: per rank one lane that computes and one that communicates, in ms."""
    with styled():
        ranks = max(map(len, timelines.values()))
        _, axes = new_figure(panel=(8.2, 1.3 + len(timelines) * (0.34 + 0.38 * ranks)))
        ax = axes[0, 0]
        y, ticks, labels = 0.0, [], []
        for name, held in timelines.items():
            ax.text(0, y, name, va="center", fontweight="bold", fontsize=9.5)
            y -= 1.0
            for rank, line in enumerate(held):
                for spans, color, hatch, shift in (
                    (line.compute, GREEN, "", 0.0),
                    (line.communication, VERMILION, "////", -0.42),
                ):
                    bars = [(start * 1e3, (end - start) * 1e3) for start, end in spans]
                    ax.broken_barh(
                        bars, (y + shift - 0.17, 0.36), facecolor=color, hatch=hatch, edgecolor="white", lw=0.3
                    )
                ax.plot([line.seconds * 1e3] * 2, [y - 0.64, y + 0.24], color=BLACK, linewidth=2)
                ticks.append(y - 0.2)
                labels.append(f"rank {rank}")
                y -= 1.05
            y -= 0.2
        ax.set_yticks(ticks, labels)
        ax.set_ylim(y + 0.5, 0.6)
        ax.set_xlim(left=0)
        ax.set_xlabel("milliseconds since backward() began")
        _timeline_legend(ax, below=0.45 / (0.4 + len(timelines) * (0.34 + 0.38 * ranks)))
        told = [
            f"{name}, rank {rank}: computes for {_milliseconds(line.compute)}, all_reduce runs for "
            f"{_milliseconds(line.communication)}, final at {line.seconds * 1e3:.3g} ms"
            for name, held in timelines.items()
            for rank, line in enumerate(held)
        ]
        ax.set_label("; ".join(told))
        ax.set_title(title)
    return ax


def bytes_against_error(points: Mapping[str, tuple[float, float]], title: str) -> Axes:
    """Draw what each way of compressing costs: bytes a step (x) against relative error (y), both logarithmic.

    An error of 0 is drawn at the resolution of float32, 6e-8.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    with styled():
        _, axes = new_figure(panel=(7.4, 3.6))
        ax = axes[0, 0]
        for number, (name, (nbytes, error)) in enumerate(points.items()):
            color = line_tone(_RANK_LOOKS[number % len(_RANK_LOOKS)][0])
            shown = max(error, 6e-8)
            ax.plot(nbytes, shown, _MARKERS[number % len(_MARKERS)], color=color, markersize=9)
            ax.annotate(f"  {name}", (nbytes, shown), xytext=(6, 0), textcoords="offset points", va="center")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.xaxis.set_minor_formatter(NullFormatter())
        low, high = ax.get_xlim()
        ax.set_xlim(low, high * (high / low) ** 0.28)
        ax.set_ylim(top=max(ax.get_ylim()[1], 0.3))
        ax.grid(color="#DDDDDD")
        ax.set_xlabel("bytes that one rank hands to all_reduce in a step")
        ax.set_ylabel("relative error of the gradient")
        ax.set_label(
            "; ".join(f"{name}: {nbytes:,.0f} bytes, error {error:.3g}" for name, (nbytes, error) in points.items())
        )
        ax.set_title(title)
    return ax


def _milliseconds(spans: Sequence[tuple[float, float]]) -> str:
    return f"{sum(end - start for start, end in spans) * 1e3:.3g} ms"


def _timeline_legend(ax: Axes, below: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=GREEN, label="computes gradients"),
        Patch(facecolor=VERMILION, hatch="////", edgecolor="white", label="all_reduce runs"),
        Line2D([], [], color=BLACK, linewidth=2, label="gradients final"),
    ]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -below), ncols=3)
