"""The picture of a cell that failed: what each rank did until it was given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mgpu_utils.collective_notes import DDP_STEP
from mgpu_utils.figures.alt_text import alt_text, shortened
from mgpu_utils.figures.style import (
    BLUE,
    GREY,
    SKY,
    VERMILION,
    fill,
    line_tone,
    new_figure,
    styled,
    word_tone,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mgpu_utils.rank_history import RankHistory

# Colour and mark of how a lane ends.
_ENDS = {
    "finished": (GREY, "|", "finished"),
    "failed": (VERMILION, "X", "error"),
    "died": (VERMILION, "X", "died"),
    "waits": (BLUE, ">", "waits"),
    "at work": (SKY, ">", "at work"),
}
# A bar needs this share of the picture's width for one letter of its name.
_LETTER = 0.013


def fault_timeline(history: Sequence[RankHistory], ax: Axes | None = None) -> Axes:
    """Draw one lane a rank, in seconds since the cell began: working, inside a collective, and how it ended.

    Raises:
        ValueError: there is no rank to draw.
    """
    if not history:
        raise ValueError("nothing is known of what the ranks did, so there is no timeline.")
    lanes = sorted(history, key=lambda rank: rank.rank)
    longest = max([rank.end for rank in lanes] + [span.end or 0.0 for rank in lanes for span in rank.spans] + [1e-3])
    with styled():
        if ax is None:
            _, axes = new_figure(panel=_size(lanes))
            ax = axes[0, 0]
        for place, rank in enumerate(lanes):
            _draw_lane(ax, -place, rank, longest)
        ax.set_yticks([-place for place in range(len(lanes))], [f"rank {rank.rank}" for rank in lanes])
        ax.set_ylim(-len(lanes) + 0.4, 0.6)
        ax.set_xlim(0, longest * 1.16)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("seconds since the cell began")
        ax.set_title("What each rank did")
        ax.set_label("; ".join(map(_lane_in_words, lanes)))
        _add_legend(ax, lanes)
    return ax


def as_png(history: Sequence[RankHistory]) -> bytes:
    """The picture as a PNG file."""
    from io import BytesIO

    file = BytesIO()
    with styled():
        _figure(history).savefig(file, format="png")
    return file.getvalue()


def in_words(history: Sequence[RankHistory]) -> str:
    """What the picture shows, for readers who do not see it."""
    with styled():
        return alt_text(_figure(history))


def _figure(history: Sequence[RankHistory]) -> Figure:
    """The picture, drawn without pyplot, which may show its figures a second time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_size(history), layout="constrained", dpi=144)
    fault_timeline(history, figure.subplots())
    return figure


def _lane_in_words(rank: RankHistory) -> str:
    calls = []
    for span in rank.spans:
        if span.operation == DDP_STEP:
            calls.append(f"{DDP_STEP} begins at {span.start:.3g} s")
        else:
            until = "without end" if span.end is None else f"to {span.end:.3g} s"
            calls.append(f"{span.operation} from {span.start:.3g} {'s ' if span.end is None else ''}{until}")
    ended = f"{_ENDS[rank.state][2]} at {rank.end:.3g} s"
    return f"rank {rank.rank}: {shortened(calls, 8) or 'no collective'}; {ended}"


def _size(history: Sequence[RankHistory]) -> tuple[float, float]:
    return 8.2, 1.25 + 0.42 * len(history)


def _draw_lane(ax: Axes, y: float, rank: RankHistory, longest: float) -> None:
    ax.barh(y, rank.end, 0.5, **_at_work())
    for span in rank.spans:
        if span.operation == DDP_STEP:
            ax.plot([span.start, span.start], [y - 0.25, y + 0.25], color=GREY, lw=1.2)
            continue
        end = rank.end if span.end is None else span.end
        width = max(end - span.start, longest * 0.004)
        ax.barh(y, width, 0.5, span.start, color=BLUE, edgecolor="white", lw=0.6, hatch="" if span.end else "////")
        if width > _LETTER * longest * (len(span.operation) + 1):
            box = {"boxstyle": "square,pad=0.15", "facecolor": BLUE, "edgecolor": "none"}
            ax.text(
                span.start + width / 2, y, span.operation, ha="center", va="center", color="white", fontsize=9, bbox=box
            )
    color, mark, word = _ENDS[rank.state]
    ax.plot([rank.end], [y], mark, color=line_tone(color), ms=9, mew=2, clip_on=False, zorder=5)
    ax.text(rank.end + longest * 0.022, y, word, va="center", fontsize=9, color=word_tone(color))


def _at_work() -> dict[str, Any]:
    from matplotlib.colors import to_rgba

    # Paler than what is drawn on it.
    return fill(SKY) | {"facecolor": to_rgba(SKY, 0.45)}


def _add_legend(ax: Axes, lanes: Sequence[RankHistory]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    spans = [span for rank in lanes for span in rank.spans]
    parts: list[Any] = [Patch(**_at_work(), label="at work")]
    if any(span.end is not None and span.operation != DDP_STEP for span in spans):
        parts.append(Patch(facecolor=BLUE, label="inside a collective"))
    if any(span.end is None for span in spans):
        parts.append(Patch(facecolor=BLUE, hatch="////", edgecolor="white", label="a collective that never ended"))
    if any(span.operation == DDP_STEP for span in spans):
        parts.append(Line2D([], [], color=GREY, marker="|", lw=0, ms=12, mew=1.2, label=f"a {DDP_STEP} begins"))
    ax.figure.legend(handles=parts, loc="outside lower center", ncols=len(parts))
