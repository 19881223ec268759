"""Pictures of feeding and placing: which sample went where, who loaded when, and how replicas differ."""

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
    VERMILION,
    fill,
    new_figure,
    styled,
    word_tone,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgpu_utils.parameter_hashes import HashTable
    from mgpu_utils.shard_map import ShardMap
    from mgpu_utils.watched_data import Recording

_RANK_FILLS = ("#CFE3F2", "#FBE3B8", "#BFE3D7", "#F0D5E3", "#D9EEF9", "#F6CFB8")
_LINES = ((BLUE, "-", "o"), (VERMILION, "--", "s"), (GREEN, "-.", "^"), (BLACK, ":", "D"))
_NUMBERED = 36


def shard_map(shards: ShardMap) -> Axes:
    """Draw which sample each rank loads at each step: one row a rank, one group of squares a step.

    A sample that was visited before is hatched and framed; what nobody visits is named in the title.
    """
    from matplotlib.patches import Patch, Rectangle

    widest = [max((len(s[k]) for s in shards.batches if k < len(s)), default=0) for k in range(shards.steps)]
    starts = [sum(widest[:k]) + 0.6 * k for k in range(shards.steps)]
    width = (starts[-1] + widest[-1]) if starts else 1.0
    square = min(0.56, 7.2 / width)
    with styled():
        _, axes = new_figure(panel=(max(4.8, 1.2 + square * width), 1.15 + 0.8 * square * 1.25 * shards.world_size))
        ax = axes[0, 0]
        for visit in shards.visits:
            x, y = starts[visit.step] + visit.place, -1.25 * visit.rank
            fill = "white" if visit.again else _RANK_FILLS[visit.rank % len(_RANK_FILLS)]
            edge = VERMILION if visit.again else GREY
            looks: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "hatch": "////" if visit.again else None}
            ax.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, lw=2.0 if visit.again else 0.8, **looks))
            if width <= _NUMBERED:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if visit.again else None
                ax.text(x + 0.5, y + 0.48, str(visit.sample), ha="center", va="center", fontsize=9, bbox=box)
        middles = [start + size / 2 for start, size in zip(starts, widest, strict=True)]
        ax.set_xticks(middles, [f"step {k}" for k in range(shards.steps)])
        rows = range(shards.world_size)
        ax.set_yticks([0.5 - 1.25 * rank for rank in rows], [f"rank {rank}" for rank in rows])
        ax.tick_params(length=0)
        ax.set_xlim(-0.2, width + 0.2)
        ax.set_ylim(-1.25 * (shards.world_size - 1) - 0.15, 1.15)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        ax.set_label(_visits_in_words(shards))
        again = sum(visit.again for visit in shards.visits)
        if again:
            patch = Patch(facecolor="white", edgecolor=VERMILION, hatch="////", lw=2.0, label="loaded before: a repeat")
            ax.legend(handles=[patch], loc="upper left", bbox_to_anchor=(0, -0.16), borderaxespad=0.2)
        seen = shards.samples - len(shards.missing)
        repeats = f"{again} repeat{'' if again == 1 else 's'}"
        ax.set_title(f"{shards.samples} samples: {seen} loaded, {repeats}, {len(shards.missing)} never loaded")
    return ax


def _visits_in_words(shards: ShardMap) -> str:
    groups: dict[str, list[str]] = {}
    for visit in shards.visits:
        sample = f"{visit.sample} again" if visit.again else str(visit.sample)
        groups.setdefault(f"rank {visit.rank}, step {visit.step}", []).append(sample)
    return shortened([f"{where}: {shortened(samples)}" for where, samples in groups.items()], 24, "; ")


def loading_timeline(recordings: Mapping[str, Recording]) -> Axes:
    """Draw who loaded and who trained when, one group of lanes a recording, on one time axis in milliseconds.

    The number in a bar is the step that the batch is for. Returns the Axes that holds all lanes.
    """
    lanes = 0.0
    ticks: list[tuple[float, str]] = []
    with styled():
        count = sum(2 + len(r.workers) for r in recordings.values())
        _, axes = new_figure(panel=(8.4, 1.3 + 0.36 * count))
        ax = axes[0, 0]
        for name, recording in recordings.items():
            words = f" {name}: {recording.seconds * 1e3:.0f} ms"
            ax.text(0, lanes + 0.15, words, va="center", fontweight="bold")
            lanes -= 0.95
            rows = {recording.process: lanes} | {w: lanes - 1 - i for i, w in enumerate(recording.workers)}
            ticks += [
                (y, "notebook" if p == recording.process else f"worker {-int(y - lanes)}") for p, y in rows.items()
            ]
            for number, (process, began, ended) in enumerate(recording.loads):
                _bar(ax, rows[process], number, began, ended, recording.started, "loads a batch")
            for number, (began, ended) in enumerate(recording.steps):
                _bar(ax, rows[recording.process], number, began, ended, recording.started, "trains on it")
            lanes -= len(rows) + 0.25
        ax.set_yticks([y for y, _ in ticks], [label for _, label in ticks])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(lanes + 0.5, 0.7)
        ax.set_xlim(left=0)
        ax.set_xlabel("milliseconds since the loop was entered")
        handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        ax.legend(handles.values(), handles.keys(), ncols=2, loc="lower right", bbox_to_anchor=(1, 1.0))
        ax.set_label("; ".join(f"{name}: {_work_in_words(recording)}" for name, recording in recordings.items()))
        ax.set_title("Who does what, when")
    return ax


def _work_in_words(recording: Recording) -> str:
    names = {recording.process: "the notebook"} | {
        process: f"worker {number}" for number, process in enumerate(recording.workers, 1)
    }
    told = [f"{recording.seconds * 1e3:.0f} ms"]
    for process, name in names.items():
        loads = [ended - began for who, began, ended in recording.loads if who == process]
        batches = f"{len(loads)} batch{'es' if len(loads) > 1 else ''}"
        told += [f"{name} loads {batches} in {sum(loads) * 1e3:.0f} ms"] if loads else []
    steps = [ended - began for began, ended in recording.steps]
    return ", ".join([*told, f"the notebook trains for {len(steps)} steps in {sum(steps) * 1e3:.0f} ms"])


def _bar(ax: Axes, y: float, number: int, began: float, ended: float, zero: float, label: str) -> None:
    look = (ORANGE, "////") if label.startswith("loads") else (BLUE, "")
    left, width = (began - zero) * 1e3, (ended - began) * 1e3
    ax.barh(y, width, 0.8, left, **fill(*look, linewidth=0.5), label=label)
    if label.startswith("loads"):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        ax.text(left + width / 2, y, str(number), ha="center", va="center", fontsize=8, bbox=box)


def samples_seen(shares: Mapping[str, Sequence[float]], rank: int = 0) -> Axes:
    """Draw which share of the dataset one rank has met after 1, 2, ... epochs; shares are numbers from 0 to 1."""
    with styled():
        _, axes = new_figure(panel=(6.8, 3.0))
        ax = axes[0, 0]
        for (name, values), (color, line, marker) in zip(shares.items(), _LINES, strict=False):
            epochs = range(1, len(values) + 1)
            percent = [100 * value for value in values]
            ax.plot(epochs, percent, color=color, linestyle=line, marker=marker, label=name)
            below = percent[-1] < 60
            place = {"xytext": (0, 9 if below else -16), "textcoords": "offset points", "ha": "right"}
            ax.annotate(f"{name}: {percent[-1]:.0f} %", (len(values), percent[-1]), color=word_tone(color), **place)
        ax.set_xticks(range(1, max(map(len, shares.values())) + 1))
        ax.set_ylim(0, 108)
        ax.set_xlabel("epochs")
        ax.set_ylabel(f"samples that rank {rank}\nhas met (% of the dataset)")
        ax.set_title(f"What rank {rank} has seen of the data")
    return ax


def hash_table(table: HashTable) -> Axes:
    """Draw the fingerprint of each tensor (rows) on each rank (columns); those that differ are framed and hatched."""
    from matplotlib.patches import Rectangle

    names = list(table.rows)
    with styled():
        _, axes = new_figure(panel=(min(8.4, 2.6 + 1.5 * table.world_size), 0.75 + 0.29 * len(names)))
        ax = axes[0, 0]
        for row, (name, hashes) in enumerate(table.rows.items()):
            for rank, digits in enumerate(hashes):
                differs = name in table.different
                looks: dict[str, Any] = {"facecolor": "#DCEBF5", "edgecolor": "white", "lw": 1.0}
                if differs:
                    looks = {"facecolor": "white", "edgecolor": VERMILION, "hatch": "////", "lw": 1.6}
                ax.add_patch(Rectangle((rank + 0.04, -row - 0.42), 0.92, 0.84, **looks))
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5} if differs else None
                place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "family": "monospace"}
                ax.text(rank + 0.5, -row, digits, bbox=box, color=BLACK, **place)
        ax.set_xticks([rank + 0.5 for rank in range(table.world_size)], [f"rank {r}" for r in range(table.world_size)])
        ax.xaxis.tick_top()
        ax.set_yticks([-row for row in range(len(names))], names)
        ax.tick_params(length=0)
        ax.set_xlim(0, table.world_size)
        ax.set_ylim(-len(names) + 0.4, 0.55)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        ax.set_label(shortened([f"{name}: {', '.join(hashes)}" for name, hashes in table.rows.items()], joint="; "))
        same = len(names) - len(table.different)
        mark = ", hatched: different" if table.different else ""
        ax.set_title(f"Hashes of the tensors: {same} of {len(names)} equal{mark}")
    return ax


def replica_drift(distances: Mapping[str, Sequence[float]], losses: Mapping[str, Sequence[float]]) -> list[Axes]:
    """Draw for each run, over the steps, the loss (left) and the distance between two replicas (right).

    A distance is the L2 norm of the difference of all parameters, first before any step. Returns both Axes.
    """
    with styled():
        figure, axes = new_figure(1, 2, panel=(4.2, 3.4))
        for ax, curves, first in zip(axes[0], (losses, distances), (1, 0), strict=True):
            for (name, values), (color, line, _) in zip(curves.items(), _LINES, strict=False):
                ax.plot(range(first, first + len(values)), values, color=color, linestyle=line, lw=2.0, label=name)
            ax.set_xlabel("steps")
            # A line that stays at 0 is a result, and must not hide on the axis.
            ax.set_ylim(bottom=-0.04 * max((max(values) for values in curves.values()), default=1.0))
        axes[0, 0].set_ylabel("training loss (mean of the ranks)")
        axes[0, 0].set_title("Loss")
        axes[0, 1].set_ylabel("L2 norm of the difference")
        axes[0, 1].set_title("Distance between the replicas")
        figure.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return list(axes[0])
