"""Every figure says in words what it shows, and the colours that carry meaning can be told from what is behind them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.axes import Axes

from mgpu_utils import plots, progress_map, result_cards
from mgpu_utils.figures import style
from mgpu_utils.figures.alt_text import alt_text

JUPYTERLAB_BACKGROUNDS = {"light": "#ffffff", "dark": "#111111"}


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def words_of(ax: Axes) -> str:
    return alt_text(ax.get_figure(root=True))  # type: ignore[arg-type]


def test_bars_are_told_with_their_names_and_values() -> None:
    words = words_of(plots.values_on_ranks([1, 2], [3, 3]))
    assert words.startswith("What each rank holds before and after all_reduce.")
    assert "Y axis: value." in words
    assert "Bars before all_reduce: rank 0: 1; rank 1: 2." in words
    assert "Bars after all_reduce: rank 0: 3; rank 1: 3." in words


def test_a_line_is_told_by_its_ends_and_its_range() -> None:
    _, axes = style.new_figure()
    axes[0, 0].plot([1, 2, 3], [4.0, 9.0, 5.0], label="loss")
    axes[0, 0].set_xlabel("step")
    assert words_of(axes[0, 0]) == ("X axis: step. Line loss: 3 points, from 4 at 1 to 5 at 3, lowest 4, highest 9.")


def test_words_change_with_the_data() -> None:
    assert words_of(plots.values_on_ranks([1, 2], [3, 3])) != words_of(plots.values_on_ranks([1, 4], [5, 5]))


@pytest.mark.parametrize(
    ("draw", "wanted"),
    [
        (plots.ten_steps, ["Check the devices", "Update the parameters"]),
        (lambda: plots.step_cost({"one device": {"forward": 0.25}}, "Cost"), ["one device: 250", "milliseconds"]),
        (lambda: plots.scattered_samples(torch.zeros(4, 1, 8, 8), [3, 1]), ["3 and 1 to the replicas", "replica 1"]),
    ],
)
def test_figures_without_bars_on_a_scale_are_told_too(draw: Callable[[], Axes], wanted: list[str]) -> None:
    words = words_of(draw())
    for piece in wanted:
        assert piece in words


def test_each_panel_is_told_and_long_lists_are_cut() -> None:
    figure, axes = style.new_figure(columns=2)
    axes[0, 0].bar(range(40), range(40))
    axes[0, 1].set_title("right")
    axes[0, 1].plot([0, 1], [float("nan"), 2.0], label="holes")
    words = alt_text(figure)
    assert "Panel 1 of 2: Bars: 0; 1;" in words
    assert "and 28 more" in words
    assert "Panel 2 of 2: Right. Point holes: 2 at 1." in words


def test_a_panel_can_be_given_its_own_words() -> None:
    _, axes = style.new_figure()
    axes[0, 0].set_title("Links")
    axes[0, 0].plot([0, 1], [0, 1])
    axes[0, 0].set_label("device 0 is linked to device 1")
    assert words_of(axes[0, 0]) == "Links. Device 0 is linked to device 1."


def test_anything_that_can_be_drawn_has_words() -> None:
    figure, axes = style.new_figure()
    assert alt_text(figure) == "An empty figure."
    ax = axes[0, 0]
    ax.plot(["a", "b"], [1, 2], label="named")
    ax.errorbar([1], [2], yerr=[1], label="interval")
    ax.scatter([1, 2], [3, 4], label="seen")
    ax.imshow([[1.0]])
    ax.table([["left", "right"]])
    ax.axhline(3, label="limit")
    words = alt_text(figure)
    for piece in ("Marks seen: 2", "a picture", "left, right", "limit"):
        assert piece.lower() in words.lower()


def test_a_notebook_shows_a_figure_and_says_it_in_words() -> None:
    code = (
        "import json\n"
        "from IPython.core.displaypub import CapturingDisplayPublisher\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from IPython.display import display\n"
        "shell = InteractiveShell.instance()\n"
        "shell.enable_gui = lambda gui=None: None\n"
        "shell.enable_matplotlib('inline')\n"
        "from mgpu_utils import plots\n"
        "ax = plots.values_on_ranks([1, 2], [3, 4])\n"
        "ax.set_title('<b>', loc='left')\n"
        "shell.display_pub = CapturingDisplayPublisher()\n"
        "display(ax.figure)\n"
        "print(json.dumps([[each['data'], each['metadata']] for each in shell.display_pub.outputs]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    (picture, about), (read, _) = json.loads(done.stdout)
    words = about["image/png"]["alt"]
    assert words.startswith("<b>. Y axis: value.")
    assert "Bars after all_reduce: rank 0: 3; rank 1: 4." in words
    assert picture["text/plain"] == words
    assert base64.b64decode(picture["image/png"]).startswith(b"\x89PNG")
    assert "text/html" not in picture, "JupyterLab would take the picture from it where a notebook is not trusted"
    assert "&lt;b&gt;. Y axis: value." in read["text/html"]
    assert "<b>" not in read["text/html"]


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("background", JUPYTERLAB_BACKGROUNDS.values(), ids=JUPYTERLAB_BACKGROUNDS)
def test_colours_of_cards_and_of_the_map_stand_out_on_both_themes(background: str) -> None:
    colors = {color for _, _, color in result_cards._LOOK.values()} | set(progress_map._COLORS.values())
    assert {color: contrast(color, background) for color in colors if contrast(color, background) < 3.0} == {}


def test_words_in_figures_can_be_read_and_strong_colours_stand_out_on_white() -> None:
    assert all(contrast(color, "#ffffff") >= 4.5 for color in (style.BLACK, style.GREY))
    known: dict[str, Any] = {name: getattr(style, name) for name in dir(style) if name.isupper()}
    colors = {name: color for name, color in known.items() if isinstance(color, str) and color.startswith("#")}
    weak = {name for name, color in colors.items() if contrast(color, "#ffffff") < 3.0}
    assert len(colors) == 9
    assert weak == set(style.NEEDS_OUTLINE), "a new weak colour has to be drawn with an outline, a hatch or a mark"
