"""Every figure of the project is told in words from its data, stands out on white, and can be read without colour."""

from __future__ import annotations

import ast
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest
from figure_examples import EXAMPLES, HISTORY
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgb, to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Text

from mgpu_utils.figures import showing, style
from mgpu_utils.figures.alt_text import alt_text
from mgpu_utils.figures.fault_timeline import as_png, in_words

matplotlib.use("agg")

PACKAGE = Path(style.__file__).resolve().parents[1]
# The first makes an empty figure, the second writes figures that others have drawn.
NOT_A_FIGURE = {"style.new_figure", "results.write"}
# Guides the eye along a row whose ends are marked.
DECORATION = {"#d8d8d8"}


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Figure]]:
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "show_with_alt_text", lambda: asked.append(True))
        figures = {}
        for name, example in EXAMPLES.items():
            asked.clear()
            figures[name] = figures_of(example.draw())
            plt.close("all")
            assert asked, f"{name} draws outside of styled(), so a notebook would show it without words"
    return figures


def figures_of(made: Any) -> list[Figure]:
    if isinstance(made, dict):
        return list(made.values())
    if isinstance(made, list):
        made = made[0]
    return [made if isinstance(made, Figure) else made.get_figure(root=True)]


def test_every_function_that_returns_a_figure_has_an_example_here() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns is not None:
                returned = ast.unparse(node.returns)
                if "Axes" in returned or "Figure" in returned.replace("Callable[[Figure], None]", ""):
                    found.add(f"{path.stem}.{node.name}")
    assert found - NOT_A_FIGURE == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_words_hold_the_names_and_values_that_were_drawn(name: str, drawn: dict[str, list[Figure]]) -> None:
    words = " ".join(map(alt_text, drawn[name])).lower()
    assert [piece for piece in EXAMPLES[name].wanted if piece.lower() not in words] == []


def luminance(color: Any) -> float:
    """Relative luminance as WCAG 2 defines it."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Any, other: Any) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def on_white(color: Any) -> tuple[float, ...]:
    """What is seen of a colour that white shines through."""
    *parts, alpha = to_rgba(color)
    return tuple(alpha * part + 1 - alpha for part in parts)


def inside(artist: Patch, text: Text) -> bool:
    """Whether a text has its middle in an area."""
    box = text.get_window_extent()
    return bool(artist.contains_point(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)))


def data_patches(figure: Figure) -> list[Patch]:
    return [patch for ax in figure.axes for patch in ax.patches if not isinstance(patch, FancyArrowPatch)]


def behind(text: Text, figure: Figure) -> Any:
    """The colour that a text stands on: its box, the last area drawn below it, or white."""
    box = text.get_bbox_patch()
    if box is not None and to_rgba(box.get_facecolor())[3] > 0:
        return on_white(box.get_facecolor())
    below = [patch for patch in data_patches(figure) if text.axes is patch.axes and inside(patch, text)]
    return on_white(below[-1].get_facecolor()) if below else "white"


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_words_can_be_read_on_what_is_behind_them(name: str, drawn: dict[str, list[Figure]]) -> None:
    weak = {}
    for figure in drawn[name]:
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text().strip():
                found = contrast(on_white(text.get_color()), behind(text, figure))
                if found < 4.5:
                    weak[text.get_text()] = round(found, 2)
    assert weak == {}


def seen(*colors: Any) -> bool:
    return any(contrast(on_white(color), "white") >= 3.0 for color in colors if to_rgba(color)[3] > 0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_it_draws_stands_out_on_white(name: str, drawn: dict[str, list[Figure]]) -> None:
    weak = []
    for figure in drawn[name]:
        texts = [text for ax in figure.axes for text in ax.texts]
        for patch in data_patches(figure):
            edges = [patch.get_edgecolor()] if patch.get_linewidth() >= 0.5 else []
            # In a cell that holds a word, the word is what tells.
            if not seen(patch.get_facecolor(), *edges) and not any(inside(patch, text) for text in texts):
                weak.append(f"area {to_hex(patch.get_facecolor())}")
        for ax in figure.axes:
            for line in ax.lines:
                faces = [line.get_markerfacecolor(), line.get_markeredgecolor()] if line.get_marker() != "None" else []
                if line.get_linestyle() != "None" and to_hex(line.get_color()) not in DECORATION:
                    faces.append(line.get_color())
                if faces and not seen(*(face for face in faces if face != "none")):
                    weak.append(f"line {line.get_color()} {line.get_label()}")
            for collection in ax.collections:
                # A band beside a line or a level has no edge; the line is what tells.
                if isinstance(collection, PolyCollection) and not any(collection.get_linewidth()):
                    continue
                held = [*collection.get_facecolor(), *collection.get_edgecolor()]
                if isinstance(collection, PathCollection | PolyCollection) and not seen(*held):
                    weak.append(f"marks {[to_hex(color) for color in held]}")
    assert weak == []


def looks(handle: Any) -> tuple[Any, ...]:
    """How a sign in a legend looks to somebody who sees no colour, but for its lightness."""
    if isinstance(handle, Line2D):
        dashes = str(handle._unscaled_dash_pattern) if handle.get_linestyle() != "None" else "none"
        filled = str(handle.get_markerfacecolor()) not in ("white", "none")
        return (dashes, handle.get_marker(), filled and handle.get_marker() != "None", round(handle.get_linewidth()))
    if isinstance(handle, PathCollection):
        return ("marks", handle.get_paths()[0].vertices.tobytes(), handle.get_sizes().tobytes())
    if isinstance(handle, LineCollection):
        return ("level", str(handle.get_linestyle()))
    return (type(handle).__name__, "".join(sorted({*(handle.get_hatch() or "")})))


def in_panels(figure: Figure, names: list[str]) -> dict[str, Any]:
    """What a legend names as it is drawn: the line or the first bar of a series."""
    drawn = {}
    for ax in figure.axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            if name in names:
                drawn[name] = handle[0] if isinstance(handle, BarContainer | ErrorbarContainer) else handle
    return drawn


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_a_legend_names_is_told_apart_without_colour(name: str, drawn: dict[str, list[Figure]]) -> None:
    alike = []
    for figure in drawn[name]:
        for legend in [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend() is not None)]:
            names = [text.get_text() for text in legend.get_texts()]
            signs = dict(zip(names, legend.legend_handles, strict=True)) | in_panels(figure, names)
            for (one, first), (other, second) in combinations(signs.items(), 2):
                if looks(first) != looks(second):
                    continue
                if isinstance(first, Patch) and isinstance(second, Patch):
                    shades = (on_white(sign.get_facecolor()) for sign in (first, second))
                    if contrast(*shades) >= 2.0:
                        continue
                alike.append((one, other))
    assert alike == []


def test_the_words_of_a_failed_cell_are_those_of_its_picture() -> None:
    assert as_png(HISTORY).startswith(b"\x89PNG")
    assert "rank 0: all_reduce from 0.1 to 0.9 s" in in_words(HISTORY).lower()


def test_only_style_makes_figures_so_that_none_is_shown_without_words() -> None:
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("plt.subplots", "plt.figure", "Figure")
    }
    # The second draws without pyplot, and publishes the picture with its words.
    assert makers == {"figures/style.py", "figures/fault_timeline.py"}
    assert showing.show_with_alt_text is style.show_with_alt_text
