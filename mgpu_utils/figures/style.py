"""How figures of the course look: colours and the empty figure they are drawn on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mgpu_utils.figures.alt_text import show_with_alt_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every common kind of colour blindness, and in grey by lightness.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#6B6B6B"
# Below a contrast of 3:1 on white (WCAG 2.2, 1.4.11): never the only sign, so with an outline, hatch, mark or words.
NEEDS_OUTLINE = ("ORANGE", "SKY", "YELLOW")
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


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the course's style while this is entered."""
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        yield
        interactive = plt.isinteractive()
    # A notebook's backend turns this on when its first figure is made; undone, no later figure would be shown.
    plt.rcParams["interactive"] = interactive


def new_figure(rows: int = 1, columns: int = 1, *, panel: tuple[float, float] = (4.6, 3.6)) -> tuple[Figure, Any]:
    """Return a figure in the course's style and its Axes as a (rows, columns) array; ``panel`` in inches.

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
        )
    show_with_alt_text()
    return figure, axes
