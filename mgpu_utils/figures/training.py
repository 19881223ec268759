"""The pictures of the training loop and of the optimizer: one function each, returning the Axes it drew on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.alt_text import spans_in_words
from mgpu_utils.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, fill, line_tone, new_figure, styled
from mgpu_utils.timeline import on_one_clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgpu_utils.timeline import Span

# The first line is the widest and palest, so that runs which agree can still be told apart.
_LINES: tuple[tuple[str, Any, str, float], ...] = (
    (GREY, "-", "o", 4.5),
    (line_tone(ORANGE), "--", "s", 2.6),
    (BLUE, ":", "D", 2.0),
    (VERMILION, "-.", "^", 1.6),
    (GREEN, (0, (5, 1, 1, 1)), "v", 1.6),
    (PURPLE, (0, (1, 2)), "P", 1.6),
)
_PARTS = {"forward": (BLUE, ""), "backward": (GREEN, "\\\\\\\\"), "optimizer": (GREY, "....")}
_OTHER = (ORANGE, "xxxx")
Run = tuple[Sequence[float], Sequence[float]]


def training_runs(
    panels: Mapping[str, Mapping[str, Run]], *, reference: str | None = None, top: float | None = None
) -> list[Axes]:
    """Draw the loss of several runs against the images seen; `panels[title][run]` is (images, losses).

    `reference` names the run that stands in every panel as a wide grey line. Losses above `top` leave the picture.
    """
    names = list(dict.fromkeys(name for runs in panels.values() for name in runs))
    names.sort(key=lambda name: name != reference)
    with styled():
        figure, axes = new_figure(1, len(panels), panel=(8.2 / len(panels) if len(panels) > 1 else 6.4, 3.5))
        for ax, (title, runs) in zip(axes[0], panels.items(), strict=True):
            for name in sorted(runs, key=names.index):
                images, losses = runs[name]
                color, dashes, marker, width = _LINES[names.index(name) % len(_LINES)]
                # Each run's markers stand at other points, or the last run would cover those of the others.
                every = max(1, len(images) // 6)
                first = names.index(name) * every // len(names)
                ax.plot(
                    images, losses, color=color, linestyle=dashes, lw=width, marker=marker, ms=4.5,
                    markevery=(first, every), alpha=0.6 if width > 4 else 1.0, label=name,
                )  # fmt: skip
            ax.set_ylim(0, top)
            ax.set_xlim(left=0)
            ax.set_xlabel("images seen by all devices together")
            ax.set_title(title)
        axes[0, 0].set_ylabel("loss of the global batch")
        labelled = {
            label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        shown = [name for name in names if name in labelled]
        figure.legend(
            [labelled[name] for name in shown], shown, loc="outside lower center", ncols=3 if len(shown) > 4 else 4
        )
    return list(axes[0])


def steps_of_ranks(panels: Mapping[str, Sequence[Sequence[Span]]]) -> list[Axes]:
    """Draw what each rank did when: `panels[title][rank]` are its spans; all panels share one scale.

    Work other than forward, backward and optimizer is crossed out. Raises ValueError for a panel with no work.
    """
    aligned = {title: on_one_clock(spans) for title, spans in panels.items()}
    end = max(span.end for spans in aligned.values() for rank in spans for span in rank) * 1e3
    with styled():
        rows = max(len(spans) for spans in aligned.values())
        figure, axes = new_figure(len(panels), 1, panel=(8.2, 0.9 + 0.42 * rows))
        known: dict[str, Any] = {}
        for ax, (title, spans) in zip(axes[:, 0], aligned.items(), strict=True):
            for rank, row in enumerate(spans):
                for span in row:
                    left, width = span.start * 1e3, span.seconds * 1e3
                    known[span.kind] = ax.barh(
                        -rank, width, 0.72, left, **fill(*_PARTS.get(span.kind, _OTHER), linewidth=0.6)
                    )
            ax.set_yticks([-rank for rank in range(len(spans))], [f"rank {rank}" for rank in range(len(spans))])
            ax.set_xlim(0, 1.01 * end)
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", length=0)
            ax.set_title(title)
            ax.set_label(spans_in_words(spans))
        axes[-1, 0].set_xlabel("milliseconds since the first step shown")
        names = [name for name in _PARTS if name in known] + [name for name in known if name not in _PARTS]
        figure.legend([known[name] for name in names], names, loc="outside lower center", ncols=len(names))
    return list(axes[:, 0])
