"""How figures of the course look: colours and the empty figure they are drawn on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.showing import show_with_alt_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every common kind of colour blindness, and in grey by lightness.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#6B6B6B"
# Below a contrast of 3:1 on white (WCAG 2.2, 1.4.11), these are for fills only: `fill` gives them an outline in the
# tone that lines and small marks have. Dark enough to differ from VERMILION and BLUE for who sees no red or no green.
_LINE_TONES = {ORANGE: "#855900", SKY: "#3A8FC7", YELLOW: "#756B00"}
# 4.5:1 on white (WCAG 2.2, 1.4.3), for words in the colour of what they name.
_WORD_TONES = _LINE_TONES | {SKY: "#1D6FA5", VERMILION: "#B34A00", GREEN: "#007A59", PURPLE: "#A3487C"}
STRATEGY_COLORS = {"single": GREY, "data_parallel": ORANGE, "ddp": BLUE, "independent": GREEN}
STRATEGY_LABELS = {
    "single": "single",
    "data_parallel": "DataParallel",
    "ddp": "DDP",
    "independent": "independent",
}

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "svg.hashsalt": "mgpu",
    "svg.fonttype": "none",
}


def line_tone(color: str) -> str:
    """The colour in a tone that a line, an outline or a small mark can have on white."""
    return _LINE_TONES.get(color, color)


def word_tone(color: str) -> str:
    """The colour in a tone that words can have on white."""
    return _WORD_TONES.get(color, color)


def fill(color: str, hatch: str = "", linewidth: float = 0.8) -> dict[str, Any]:
    """How an area is drawn: a strong colour has a white edge and hatch, a pale one those of its line's tone."""
    edge = _LINE_TONES.get(color, "white")
    return {"facecolor": color, "edgecolor": edge, "hatch": hatch, "linewidth": linewidth}


def words_on(color: str) -> str:
    """Black or white, whichever is read better on this colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    # Above this luminance, as WCAG defines it, black has the greater contrast.
    return BLACK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 else "white"


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the course's style while this is entered. A notebook shows what was drawn with its words."""
    import matplotlib.pyplot as plt

    show_with_alt_text()
    with plt.rc_context(STYLE):
        yield
        interactive = plt.isinteractive()
    # A notebook's backend turns this on when its first figure is made; undone, no later figure would be shown.
    plt.rcParams["interactive"] = interactive


def new_figure(
    rows: int = 1,
    columns: int = 1,
    *,
    panel: tuple[float, float] = (4.6, 3.6),
    heights: Sequence[float] | None = None,
) -> tuple[Figure, Any]:
    """Return a figure in the course's style and its Axes as a (rows, columns) array; ``panel`` in inches.

    ``heights`` shares out the height of all panels among the rows, by default alike.
    In a notebook it is shown with an alternative text made from what is drawn on it.
    """
    import matplotlib.pyplot as plt

    with styled():
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(panel[0] * columns, panel[1] * rows),
            squeeze=False,
            layout="constrained",
            height_ratios=heights,
        )
    return figure, axes
