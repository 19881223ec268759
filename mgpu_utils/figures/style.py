"""How figures of the course look: colours and the empty figure they are drawn on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every common kind of colour blindness, and in grey by lightness.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#6B6B6B"
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
    """Return a figure in the course's style and its Axes as a (rows, columns) array; ``panel`` in inches."""
    import matplotlib.pyplot as plt

    with styled():
        return plt.subplots(
            rows,
            columns,
            figsize=(panel[0] * columns, panel[1] * rows),
            squeeze=False,
            layout="constrained",
        )
