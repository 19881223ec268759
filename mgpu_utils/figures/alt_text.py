"""Say in words what a figure shows, from the data that was drawn; for readers who do not see it.

The words go into the metadata of the picture (`alt`), where pages made of a notebook find them. JupyterLab gives a
png no alternative text, so there they follow the picture as a text that is read and not seen. (An <img> with both
would lose its picture in every notebook that is not trusted: JupyterLab takes data from it.)
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNSEEN = (
    'class="mgpu-figure-words" style="position:absolute;width:1px;height:1px;margin:0;overflow:hidden;'
    'clip-path:inset(50%);white-space:nowrap"'
)
_MOST_VALUES = 12
_MOST_WORDS = 24


def alt_text(figure: Figure) -> str:
    """What every panel of a figure shows: its title, axes with their units, and what is drawn, with its values."""
    panels = [panel for panel in figure.axes if panel.get_visible() and _has_content(panel)]
    told = [_panel(panel) for panel in panels]
    if len(told) > 1:
        told = [f"Panel {number} of {len(told)}: {words}" for number, words in enumerate(told, 1)]
    title = figure.get_suptitle()
    return " ".join([*([_sentence(title)] if title else []), *told]) or "An empty figure."


def show_with_alt_text() -> None:
    """Let the inline figures of a notebook carry their words from now on; anywhere else this does nothing."""
    # Whoever drew a figure outside of IPython has not imported it, and need not.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    import matplotlib
    from matplotlib.figure import Figure

    # Another backend, of interactive figures, shows them in its own way.
    if "inline" in matplotlib.get_backend().lower():
        shell.display_formatter.ipython_display_formatter.for_type(Figure, _show)


def _show(figure: Figure) -> None:
    from IPython.core.getipython import get_ipython
    from IPython.display import publish_display_data

    drawn: Any = get_ipython().display_formatter.formatters["image/png"](figure)
    if not drawn:
        return
    png, size = drawn if isinstance(drawn, tuple) else (drawn, {})
    words = alt_text(figure)
    publish_display_data({"image/png": png, "text/plain": words}, {"image/png": {**size, "alt": words}})
    publish_display_data({"text/html": f"<p {_UNSEEN}>Figure in words: {html.escape(words)}</p>", "text/plain": ""})


def _has_content(ax: Axes) -> bool:
    return bool(ax.patches or ax.lines or ax.collections or ax.images or ax.texts or ax.tables)


def _panel(ax: Axes) -> str:
    title = next((ax.get_title(place) for place in ("left", "center", "right") if ax.get_title(place)), "")
    parts = [_sentence(title)] if title else []
    if own := str(ax.get_label()):
        # Words that a figure gave its panel with `ax.set_label`, where what is drawn does not say it.
        return " ".join([*parts, _sentence(own)])
    if ax.axison:
        axes = [
            f"{name} axis: {_one_line(label)}"
            for name, label in (("x", ax.get_xlabel()), ("y", ax.get_ylabel()))
            if label
        ]
        parts += [_sentence("; ".join(axes))] if axes else []
    drawn = (*_bars(ax), *_lines(ax), *_others(ax)) if ax.axison else tuple(_others(ax))
    parts += [_sentence(words) for words in dict.fromkeys(drawn)]
    return " ".join(parts)


def _bars(ax: Axes) -> Iterable[str]:
    from matplotlib.container import BarContainer

    for container in ax.containers:
        if not isinstance(container, BarContainer):
            continue
        upright = container.orientation != "horizontal"
        ticks = _tick_words(ax, "x" if upright else "y")
        values = []
        for bar in container.patches:
            place = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
            size = bar.get_height() if upright else bar.get_width()
            values.append(f"{_nearest(ticks, place)}{_number(size)}")
        yield f"{_named('bars', container.get_label())}: {_shortened(values, joint='; ')}"


def _lines(ax: Axes) -> Iterable[str]:
    for line in ax.lines:
        data: Any = line.get_data()
        x, y = ([_float(value) for value in values] for values in data)
        points = [(a, b) for a, b in zip(x, y, strict=False) if math.isfinite(a) and math.isfinite(b)]
        label = str(line.get_label())
        if not points or (label.startswith("_") and len(points) <= 2):
            continue
        if len(points) == 1:
            yield f"{_named('point', label)}: {_number(points[0][1])} at {_number(points[0][0])}"
            continue
        heights = [height for _, height in points]
        yield (
            f"{_named('line', label)}: {len(points)} points, from {_number(points[0][1])} at {_number(points[0][0])} "
            f"to {_number(points[-1][1])} at {_number(points[-1][0])}, lowest {_number(min(heights))}, "
            f"highest {_number(max(heights))}"
        )


def _others(ax: Axes) -> Iterable[str]:
    from matplotlib.collections import PathCollection

    for collection in ax.collections:
        label = str(collection.get_label())
        if isinstance(collection, PathCollection):
            offsets: Any = collection.get_offsets()
            yield f"{_named('marks', label)}: {len(offsets)}"
        elif not label.startswith("_"):
            yield _named("also drawn", label)
    if ax.images:
        yield f"{len(ax.images)} pictures" if len(ax.images) > 1 else "a picture"
    in_bars = {id(bar) for container in ax.containers for bar in getattr(container, "patches", ())}
    loose = [patch for patch in ax.patches if id(patch) not in in_bars]
    named = list(
        dict.fromkeys(str(patch.get_label()) for patch in loose if str(patch.get_label())[:1] not in ("", "_"))
    )
    if loose:
        yield f"{len(loose)} boxes" + (f": {_shortened(named)}" if named else "")
    rows = _tick_words(ax, "y") if loose or ax.images else []
    if rows and ax.axison:
        yield f"rows: {_shortened([word for _, word in rows])}"
    words = [_one_line(text.get_text()) for text in ax.texts if text.get_text().strip()]
    for table in ax.tables:
        words += [_one_line(cell.get_text().get_text()) for _, cell in sorted(table.get_celld().items())]
    # The numbers on bars were told with the bars.
    told = any(container.patches for container in ax.containers if hasattr(container, "patches"))
    if words := [word for word in words if word and not (told and not any(map(str.isalpha, word)))]:
        yield f"words in it: {_shortened(words, _MOST_WORDS)}"


def _tick_words(ax: Axes, which: str) -> list[tuple[float, str]]:
    """Ticks that carry a name; ticks that are numbers say nothing more than the axis does."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    named = []
    for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False):
        words = _one_line(label.get_text())
        if any(letter.isalpha() for letter in words):
            named.append((float(place), words))
    return named


def _nearest(ticks: Sequence[tuple[float, str]], place: float) -> str:
    if not ticks:
        return ""
    return f"{min(ticks, key=lambda tick: abs(tick[0] - place))[1]}: "


def _named(what: str, label: object) -> str:
    return what if str(label).startswith("_") or not str(label) else f"{what} {_one_line(str(label))}"


def _shortened(values: Sequence[str], most: int = _MOST_VALUES, joint: str = ", ") -> str:
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return joint.join(values[:most]) + more


def _sentence(words: str) -> str:
    words = _one_line(words)
    return words[:1].upper() + words[1:] + ("" if words[-1:] in ".?!" else ".")


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _number(value: Any) -> str:
    return f"{_float(value):.3g}"


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
