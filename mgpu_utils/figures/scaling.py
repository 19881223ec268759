"""Figures of predictions. What was measured or published is a filled marker; what is predicted is dashed or hollow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mgpu_utils.figures.alt_text import shortened
from mgpu_utils.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    STRATEGY_LABELS,
    VERMILION,
    fill,
    line_tone,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from mgpu_utils.scaling.curves import Curve
    from mgpu_utils.scaling.overlap import Overlap

_COLORS = (BLUE, line_tone(ORANGE), GREEN, VERMILION, PURPLE)
_MARKERS = ("o", "s", "^", "D", "v")
_HIDDEN, _EXPOSED = (BLUE, ""), (VERMILION, "////")
AIM = 0.10


def _axes(ax: Axes | None, panel: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    _, axes = new_figure(panel=panel)
    made: Axes = axes[0, 0]
    return made


def predicted_beside_measured(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw predicted against measured step times of this machine, with the band of 10 % around equality.

    ``table`` is the summary of the benchmark `predict`. Points that the model was fitted to are crossed out.
    """
    with styled():
        ax = _axes(ax, (6.0, 4.6))
        if table.empty:
            ax.text(0.5, 0.5, "nothing was measured", ha="center", va="center", transform=ax.transAxes)
            return ax
        times = [*table["measured_seconds"], *table["predicted_seconds"]]
        low, high = min(times) * 1e3 / 1.6, max(times) * 1e3 * 1.6
        line = [low, high]
        ax.fill_between(
            line, [low * (1 - AIM), high * (1 - AIM)], [low * (1 + AIM), high * (1 + AIM)], color=GREY, alpha=0.25, lw=0
        )
        ax.plot(line, line, color=GREY, linewidth=1, label="equal; band: 10 % off")
        groups = table.groupby(["strategy", "model"], sort=False)
        for number, ((strategy, model), rows) in enumerate(groups):
            stand_in = (rows["implementation"] != "torch").any()
            name = STRATEGY_LABELS[str(strategy)] + (" (stand-in)" if stand_in else "")
            color = BLUE if strategy == "ddp" else line_tone(ORANGE)
            ax.plot(
                rows["measured_seconds"] * 1e3,
                rows["predicted_seconds"] * 1e3,
                linestyle="none",
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=7,
                markerfacecolor="white",
                markeredgecolor=color,
                markeredgewidth=1.6,
                label=f"{name}, {model}",
            )
        fitted = table[table["role"] == "fitted"]
        ax.plot(
            fitted["measured_seconds"] * 1e3,
            fitted["predicted_seconds"] * 1e3,
            linestyle="none",
            marker="x",
            color=BLACK,
            markersize=7,
            label="fitted to this one",
        )
        ax.set(
            xscale="log",
            yscale="log",
            xlim=line,
            ylim=line,
            xlabel="measured, ms a step",
            ylabel="predicted, ms a step",
        )
        _plain_numbers(ax)
        ax.legend(fontsize=8, loc="upper left")
        sizes = sorted(set(table["world_size"]))
        ax.set_title(f"Steps on {' and '.join(map(str, sizes))} devices: predicted beside measured")
    return ax


def published_beside_predicted(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the published V100 numbers (filled) and the model's (dashed), as a share of one GPU without DDP.

    ``table`` is what `mgpu_utils.scaling.published.validate_v100` returns.
    """
    with styled():
        ax = _axes(ax, (7.0, 4.2))
        for number, (network, rows) in enumerate(table.groupby("network", sort=False)):
            color, marker = _COLORS[number], _MARKERS[number]
            # Side by side, where several networks reach the same share.
            at = rows["devices"] * 2 ** (0.06 * (number - 1.5))
            predicted = 100 * rows["predicted"] / rows["single"]
            ax.plot(at, predicted, color=color, linestyle="--", linewidth=1.4, marker=marker, ms=4.5, mfc="white")
            ax.plot(
                at,
                100 * rows["published"] / rows["single"],
                color=color,
                marker=marker,
                linestyle="none",
                label=str(network),
            )
            fitted = rows[rows["role"] == "fitted"]
            ax.plot(
                at[fitted.index],
                100 * fitted["published"] / fitted["single"],
                marker="o",
                markersize=13,
                markerfacecolor="none",
                markeredgecolor=BLACK,
                linestyle="none",
            )
        ax.plot([], [], marker="o", ms=9, mfc="none", mec=BLACK, linestyle="none", label="fitted to these two")
        ax.plot([], [], color=GREY, linestyle="--", marker="o", ms=4.5, mfc="white", label="predicted")
        ax.axhline(100, color=GREY, linewidth=1)
        devices = sorted(set(table["devices"]))
        ax.set_xscale("log", base=2)
        ax.set_xticks(devices, [str(count) for count in devices])
        ax.set_ylim(88, 101)
        ax.set(xlabel="V100 GPUs (8 a machine)", ylabel="throughput per GPU,\n% of one GPU without DDP")
        ax.legend(fontsize=8, ncols=2, loc="lower left")
        told = [
            f"{network} on {row['devices']}: {row['published'] / row['single']:.1%} published, "
            f"{row['predicted'] / row['single']:.1%} predicted"
            for network, rows in table.groupby("network", sort=False)
            for _, row in rows.iterrows()
        ]
        ax.set_label("; ".join(told))
        ax.set_title("DDP, published (filled) and predicted (dashed)")
    return ax


def bucket_timeline(overlap: Overlap, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw one predicted backward and its all-reduces: what hides beside it, and what stays exposed."""
    from matplotlib.patches import Patch

    with styled():
        ax = _axes(ax, (7.0, 2.4))
        end = overlap.end * 1e3
        ax.barh(1, overlap.backward_end * 1e3, height=0.5, color="white", edgecolor=GREY, linestyle="--", hatch="..")
        for number, (start, stop) in enumerate(overlap.collectives):
            seen = min(stop, overlap.backward_end)
            for left, right, look in ((start, seen, _HIDDEN), (max(start, overlap.backward_end), stop, _EXPOSED)):
                if right > left:
                    ax.barh(0, (right - left) * 1e3, 0.5, left * 1e3, **fill(*look))
            if (stop - start) * 1e3 > end / 25:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
                ax.text((start + stop) * 500, 0, str(number + 1), ha="center", va="center", fontsize=8, bbox=box)
        handles = [
            Patch(**fill(*_HIDDEN), label="all-reduce, hidden"),
            Patch(**fill(*_EXPOSED), label=f"exposed: {overlap.exposed * 1e3:.2g} ms"),
        ]
        ax.set_yticks([1, 0], ["backward", "buckets"])
        ax.set_ylim(-0.5, 2.1)
        ax.set_xlim(0, end * 1.02)
        ax.set_xlabel("ms since backward began")
        ax.legend(handles=handles, fontsize=8, ncols=2, loc="upper right")
        told = [
            f"all-reduce of bucket {number} from {start * 1e3:.3g} to {stop * 1e3:.3g}"
            for number, (start, stop) in enumerate(overlap.collectives, 1)
        ]
        backward = f"backward until {overlap.backward_end * 1e3:.3g}"
        ax.set_label("; ".join([backward, shortened(told), f"exposed: {overlap.exposed * 1e3:.2g} ms"]))
        ax.set_title(title or "One predicted backward")
    return ax


def predicted_scaling(
    curves: Mapping[str, Curve] | Sequence[Curve], ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """Draw predicted efficiency against the number of devices, a dashed line and a band for each kind of hardware.

    The band reaches from no gain of overlapping (a collective stops compute) to a perfect one (it costs compute
    nothing); on the line it makes compute half as fast.
    """
    chosen = list(curves.values()) if isinstance(curves, Mapping) else list(curves)
    with styled():
        ax = _axes(ax, (7.0, 3.8))
        for number, curve in enumerate(chosen):
            color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
            low = [100 * value for value in curve.without_overlap]
            high = [100 * value for value in curve.with_overlap]
            ax.fill_between(curve.devices, low, high, color=color, alpha=0.18, linewidth=0)
            # Hollow marks at other points for each, where the lines lie on each other.
            every = (number, max(1, len(curve.devices) // 3)) if len(chosen) > 1 else []
            middle = [100 * value for value in curve.middle]
            ax.plot(
                curve.devices,
                middle,
                color=color,
                ls="--",
                lw=1.6,
                marker=marker,
                markevery=every,
                mfc="white",
                label=curve.title,
            )
        ax.axhline(100, color=GREY, linewidth=1)
        ax.set_xscale("log", base=2)
        ends = [curve.devices[-1] for curve in chosen]
        ticks = [4**power for power in range(8) if 4**power <= max(ends)]
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        lowest = min(min(curve.without_overlap) for curve in chosen)
        bottom = 10 * max(0, int(lowest * 10 - 0.1)) if lowest > 0.7 else 0
        ax.set_ylim(bottom, 100 + (100 - bottom) / 20)
        ax.set(xlabel="devices", ylabel="% of N times one device")
        ax.legend(fontsize=8, loc="lower left", title="predicted, not measured", title_fontsize=8)
        ax.set_title(title or "ResNet-50 under DDP")
    return ax


def _plain_numbers(ax: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
