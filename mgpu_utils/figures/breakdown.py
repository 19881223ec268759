"""The pictures of a broken-down step: its parts for each strategy, and who did what when during one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.alt_text import shortened
from mgpu_utils.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, fill, new_figure, styled
from mgpu_utils.step_lanes import AUTOGRAD, COMMUNICATION, DEVICE, GRADIENTS, MAIN, Lanes, Slice
from mgpu_utils.step_profile import COPIES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "data": (SKY, ""),
    "forward": (BLUE, ""),
    "backward": (GREEN, "\\\\\\\\"),
    "optimizer": (ORANGE, "++"),
    "copies between devices": (PURPLE, "xxxx"),
    "exposed communication": (VERMILION, "////"),
    "other": (GREY, "...."),
}
_COLLECTIVE = (VERMILION, "||||")
_OF_SLICE = {
    "parallel_apply": "forward",
    GRADIENTS: "backward",
    "exposed_communication": "exposed communication",
} | dict.fromkeys(COPIES, "copies between devices")
_MOST_RANKS = 4


def step_parts(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the parts of one model's step as a stacked bar for each strategy, in ms, and the plain step as a mark.

    ``table`` holds rows of one model, as the breakdown's `summarise` gives them; rows without a result are left out.
    Raises: ValueError for several models.
    """
    from mgpu_utils.benchmark.breakdown_summary import called, grouped

    if table["model"].nunique() != 1:
        raise ValueError(f"One panel shows one model, but the table holds {sorted(set(table['model']))}.")
    rows = [row for _, row in table[table["step_seconds"].notna()].iterrows()]
    with styled():
        if ax is None:
            _, axes = new_figure(panel=(7.8, 1.5 + 0.5 * len(rows)))
            ax = axes[0, 0]
        told = []
        for place, row in enumerate(rows):
            left = 0.0
            for name, seconds in grouped(row).items():
                ax.barh(-place, seconds * 1e3, 0.62, left, **fill(*_LOOKS[name], linewidth=0.5))
                left += seconds * 1e3
            plain = row["step_seconds"] * 1e3
            ax.plot([plain, plain], [-place - 0.4, -place + 0.4], color=BLACK, linewidth=2)
            parts = [f"{name} {seconds * 1e3:.3g}" for name, seconds in grouped(row).items() if seconds]
            told.append(f"{called(row)}: {', '.join(parts)}, step without the profiler {plain:.3g}")
        ax.set_label("; ".join(told))
        ax.set_yticks([-place for place in range(len(rows))], [called(row) for row in rows])
        ax.set_xlim(left=0)
        ax.set_xlabel("milliseconds of one step")
        ax.set_title(f"{table.iloc[0]['model']}, {table.iloc[0]['per_device_batch']} samples a device")
    return ax


def step_timeline(ranks: Sequence[Lanes], step: tuple[float, float], title: str, ax: Axes | None = None) -> Axes:
    """Draw what the lanes of each rank did in one step, from and to in seconds; at most 4 ranks are drawn."""
    drawn = [_in_step(lanes, step) for lanes in ranks[:_MOST_RANKS]]
    with styled():
        if ax is None:
            _, axes = new_figure(panel=(8.2, 1.4 + 0.34 * sum(len(lanes) + 0.5 for lanes in drawn)))
            ax = axes[0, 0]
        y, ticks, labels, told = 0.0, [], [], []
        for rank, lanes in enumerate(drawn):
            for lane in sorted(lanes, key=_place):
                for piece in lanes[lane]:
                    _draw(ax, piece, y, step[0], lane)
                ticks.append(y)
                labels.append(f"rank {rank}: {lane}" if len(ranks) > 1 else lane)
                pieces = [
                    f"{_OF_SLICE.get(piece.name, piece.name)} from {(piece.start - step[0]) * 1e3:.3g} "
                    f"to {(piece.end - step[0]) * 1e3:.3g}"
                    for piece in lanes[lane]
                ]
                told.append(f"{labels[-1]}: {shortened(pieces, 8)}")
                y -= 1.0
            y -= 0.4
        ax.set_yticks(ticks, labels)
        ax.set_ylim(y + 0.8, 0.6)
        ax.set_xlim(0, (step[1] - step[0]) * 1e3)
        ax.set_xlabel("milliseconds since the step began")
        left_out = f" (ranks 0 to {_MOST_RANKS - 1} of {len(ranks)})" if len(ranks) > _MOST_RANKS else ""
        ax.set_title(title + left_out)
        ax.set_label("; ".join(told))
    return ax


def figures(records: Sequence[Mapping[str, Any]], table: pd.DataFrame) -> dict[str, Figure]:
    """The figure `parts` with a panel for each model, and for each model `timeline-MODEL` with a step of each rank."""
    made: dict[str, Figure] = {}
    measured = table[table["step_seconds"].notna()] if len(table) else table
    models = list(dict.fromkeys(measured["model"])) if len(measured) else []
    if models:
        tallest = max(int((measured["model"] == model).sum()) for model in models)
        figure, axes = new_figure(len(models), panel=(7.8, 1.3 + 0.45 * tallest))
        for ax, model in zip(axes[:, 0], models, strict=True):
            step_parts(measured[measured["model"] == model], ax)
        _legend(figure, [*_LOOKS], plain=True)
        made["parts"] = figure
    for model in models:
        timeline = _timelines([r for r in records if r["model"] == model and r.get("timeline")])
        if timeline is not None:
            made[f"timeline-{model}"] = timeline
    return made


def _timelines(records: Sequence[Mapping[str, Any]]) -> Figure | None:
    """One panel for each strategy with more than one device, of its largest world."""
    from mgpu_utils.benchmark.breakdown import lanes
    from mgpu_utils.benchmark.breakdown_summary import called
    from mgpu_utils.benchmark.contenders import CONTENDERS

    largest: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if (
            not CONTENDERS[record["strategy"]].is_limit
            and record["world_size"] > 1
            and record["world_size"] > largest.get(record["strategy"], {"world_size": 0})["world_size"]
        ):
            largest[record["strategy"]] = record
    if not largest:
        return None
    largest = {strategy: largest[strategy] for strategy in CONTENDERS if strategy in largest}
    ranks = [lanes(record["timeline"])[:_MOST_RANKS] for record in largest.values()]
    rows = [sum(len(held) + 0.4 for held in some) + 2.2 for some in ranks]
    figure, axes = new_figure(len(largest), panel=(8.2, (0.3 * sum(rows) + 0.6) / len(largest)), heights=rows)
    for ax, record in zip(axes[:, 0], largest.values(), strict=True):
        spans = [rank["steps"][0] for rank in record["timeline"]]
        step = (min(start for start, _ in spans), max(end for _, end in spans))
        step_timeline(lanes(record["timeline"]), step, f"{record['model']}, {called(record)}", ax)
    _legend(figure, [name for name in _LOOKS if name != "other"], plain=False)
    return figure


def _in_step(lanes: Lanes, step: tuple[float, float]) -> Lanes:
    kept = {
        lane: [piece for piece in held if piece.end > step[0] and piece.start < step[1]] for lane, held in lanes.items()
    }
    return {lane: held for lane, held in kept.items() if held}


def _draw(ax: Axes, piece: Slice, y: float, origin: float, lane: str) -> None:
    name = _OF_SLICE.get(piece.name, piece.name)
    # A collective that runs is communication, hidden or not; only the main thread shows what was waited for.
    look = _LOOKS.get(name, _COLLECTIVE)
    inside = lane == MAIN and piece.name in ("exposed_communication", "parallel_apply", *COPIES)
    height = 0.5 if inside else 0.78
    bar = [((piece.start - origin) * 1e3, (piece.end - piece.start) * 1e3)]
    ax.broken_barh(bar, (y - height / 2, height), **fill(*look, linewidth=0.5))


def _place(lane: str) -> tuple[int, str]:
    order = {MAIN: 0, AUTOGRAD: 1, DEVICE: 3, COMMUNICATION: 4}
    return order.get(lane, 2), lane


def _legend(figure: Figure, names: Sequence[str], *, plain: bool) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [Patch(**fill(*_LOOKS[name]), label=name) for name in names]
    if plain:
        handles.append(Line2D([], [], color=BLACK, linewidth=2, label="step without the profiler"))
    else:
        handles.append(Patch(**fill(*_COLLECTIVE), label="collective runs"))
    with styled():
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
