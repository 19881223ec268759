"""Say in words what a figure shows, from the data that was drawn; for readers who do not see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mgpu_utils.timeline import Span

_MOST_POINTS = 6
# Series that share their places are drawn so much beside each other.
_BESIDE = 0.06
_MOST_WORDS = 24


def alt_text(figure: Figure) -> str:
    """What every panel of a figure shows: its title, axes with their units, and what is drawn, with its values."""
    panels = [panel for panel in figure.axes if panel.get_visible() and _has_content(panel)]
    told = [_panel(panel) for panel in panels]
    if len(told) > 1:
        told = [f"Panel {number} of {len(told)}: {words}" for number, words in enumerate(told, 1)]
    title = figure.get_suptitle()
    return " ".join([*([_sentence(title)] if title else []), *told]) or "An empty figure."


def shortened(values: Sequence[str], most: int = 12, joint: str = ", ") -> str:
    """The first values, and how many more there are."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return joint.join(values[:most]) + more


def spans_in_words(ranks: Sequence[Sequence[Span]]) -> str:
    """What each rank did when, in ms, from spans on one clock that begins at 0."""
    told = []
    for rank, spans in enumerate(ranks):
        pieces = [f"{span.kind} from {_number(span.start * 1e3)} to {_number(span.end * 1e3)} ms" for span in spans]
        told.append(f"rank {rank}: {shortened(pieces, 8) or 'nothing'}")
    return "; ".join(told)


def _has_content(ax: Axes) -> bool:
    return bool(ax.patches or ax.lines or ax.collections or ax.images or ax.texts or ax.tables)


def _panel(ax: Axes) -> str:
    title = next((ax.get_title(place) for place in ("left", "center", "right") if ax.get_title(place)), "")
    parts = [_sentence(title)] if title else []
    if ax.axison:
        axes = [
            f"{name} axis: {_one_line(label)}"
            for name, label in (("x", ax.get_xlabel()), ("y", ax.get_ylabel()))
            if label
        ]
        parts += [_sentence("; ".join(axes))] if axes else []
    if own := str(ax.get_label()):
        # Words that a figure gave its panel with `ax.set_label`, where what is drawn does not say it.
        return " ".join([*parts, _sentence(own)])
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
        yield f"{_named('bars', container.get_label())}: {shortened(values, joint='; ')}"


def _lines(ax: Axes) -> Iterable[str]:
    from matplotlib.container import ErrorbarContainer

    names = {id(line): str(line.get_label()) for line in ax.lines}
    for container in ax.containers:
        if isinstance(container, ErrorbarContainer):
            middle, caps, _ = container
            names |= {id(cap): "" for cap in caps} | ({id(middle): str(container.get_label())} if middle else {})
    ticks = _ticks(ax, "x")
    some_named = any(_is_name(name) for name in names.values())
    for line in ax.lines:
        name = names[id(line)]
        data: Any = line.get_data()
        x, y = ([_float(value) for value in values] for values in data)
        points = [(a, b) for a, b in zip(x, y, strict=False) if math.isfinite(a) and math.isfinite(b)]
        if not points or not (_is_name(name) or (name and not some_named and len(points) > 2)):
            continue
        if line.get_transform() != ax.transData:
            place = next((f"{axis} {_number(held[0])}" for axis, held in (("x", x), ("y", y)) if len({*held}) == 1), "")
            yield f"{_named('line', name)} at {place}"
            continue
        told = [f"{_number(b)} at {a}" for a, (_, b) in zip(_places(ticks, points), points, strict=True)]
        if len(told) <= _MOST_POINTS:
            yield f"{_named('point' if len(told) == 1 else 'line', name)}: {', '.join(told)}"
            continue
        heights = [height for _, height in points]
        yield (
            f"{_named('line', name)}: {len(told)} points, from {told[0]} to {told[-1]}, "
            f"lowest {_number(min(heights))}, highest {_number(max(heights))}"
        )


def _others(ax: Axes) -> Iterable[str]:
    from matplotlib.collections import LineCollection, PathCollection

    for collection in ax.collections:
        label = str(collection.get_label())
        if isinstance(collection, PathCollection):
            offsets: Any = collection.get_offsets()
            if _is_name(label):
                yield f"{_named('marks', label)}: {len(offsets)}"
        elif isinstance(collection, LineCollection) and _is_name(label):
            ends = {_number(point[1]) for segment in collection.get_segments() for point in segment}
            yield _named("line", label) + (f" at {ends.pop()}" if len(ends) == 1 else "")
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
        yield f"{len(loose)} boxes" + (f": {shortened(named)}" if named else "")
    rows = _tick_words(ax, "y") if loose or ax.images else []
    if rows and ax.axison:
        yield f"rows: {shortened([word for _, word in rows])}"
    words = [_one_line(text.get_text()) for text in ax.texts if text.get_text().strip()]
    for table in ax.tables:
        words += [_one_line(cell.get_text().get_text()) for _, cell in sorted(table.get_celld().items())]
    # The numbers on bars were told with the bars.
    told = any(container.patches for container in ax.containers if hasattr(container, "patches"))
    if words := [word for word in words if word and not (told and not any(map(str.isalpha, word)))]:
        yield f"words in it: {shortened(words, _MOST_WORDS)}"


def _ticks(ax: Axes, which: str) -> dict[float, str]:
    """What the ticks of an axis with given ticks say, by their place."""
    from matplotlib.ticker import FixedLocator

    axis = ax.xaxis if which == "x" else ax.yaxis
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    labels = (_one_line(label.get_text()) for label in axis.get_ticklabels())
    return {float(place): words for place, words in zip(axis.get_ticklocs(), labels, strict=False) if words}


def _places(ticks: dict[float, str], points: Sequence[tuple[float, float]]) -> list[str]:
    """Where the points are: at ticks where each has one of its own, a little beside it perhaps, else at numbers."""
    nearest = [min(ticks, key=lambda tick: abs(tick - x), default=math.inf) for x, _ in points]
    beside = all(abs(tick - x) <= _BESIDE * abs(tick) for tick, (x, _) in zip(nearest, points, strict=True))
    if ticks and beside and len({*nearest}) == len(points):
        return [ticks[tick] for tick in nearest]
    return [_number(x) for x, _ in points]


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


def _is_name(label: str) -> bool:
    return bool(label) and not label.startswith("_")


def _named(what: str, label: object) -> str:
    return f"{what} {_one_line(str(label))}" if _is_name(str(label)) else what


def _sentence(words: str) -> str:
    words = _one_line(words)
    # A name such as digits_cnn or cuda:0 keeps its first letter.
    first = words[:1].upper() if words.partition(" ")[0].rstrip(",.:;").isalpha() else words[:1]
    return first + words[1:] + ("" if words[-1:] in ".?!" else ".")


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _number(value: Any) -> str:
    number = _float(value)
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.3g}"


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
