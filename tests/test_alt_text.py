"""Every figure says in words what it shows, and the colours that carry meaning can be told from what is behind them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes

from mgpu_utils import devices, plots, progress_map, report, result_cards, slides
from mgpu_utils.figures import style
from mgpu_utils.figures.alt_text import alt_text


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


def test_a_short_line_is_told_by_its_points_and_a_long_one_by_its_ends_and_its_range() -> None:
    _, axes = style.new_figure(columns=2)
    for ax, count in zip(axes[0], (3, 7), strict=True):
        ax.plot(range(count), [4.0, 9.0, *range(5, 3 + count)], label="loss")
        ax.set_xlabel("step")
    assert words_of(axes[0, 0]) == (
        "Panel 1 of 2: X axis: step. Line loss: 4 at 0, 9 at 1, 5 at 2. Panel 2 of 2: X axis: step. "
        "Line loss: 7 points, from 4 at 0 to 9 at 6, lowest 4, highest 9."
    )


def test_points_at_named_ticks_are_told_by_the_names_and_a_level_by_its_height() -> None:
    _, axes = style.new_figure()
    ax = axes[0, 0]
    ax.errorbar([1.03, 2.06], [10, 12_000], [1, 1], label="DDP", capsize=3)
    ax.set_xticks([1, 2], ["one", "two"])
    ax.axhline(12, label="limit")
    ax.hlines(13.5, 0, 1, label="ideal")
    assert words_of(ax) == "Line DDP: 10 at one, 12,000 at two. Line limit at y 12. Line ideal at 13.5."


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
    for piece in ("Marks seen: 2", "a picture", "left, right", "limit at y 3"):
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
        "from mgpu_utils.figures.showing import show_changing\n"
        "from mgpu_utils.shard_map import ShardMap\n"
        "shell.display_pub = CapturingDisplayPublisher()\n"
        "display(ax.figure)\n"
        "display(ShardMap([[[0, 1]], [[2, 0]]], samples=4))\n"
        "change = show_changing(ax.figure)\n"
        "change(plots.values_on_ranks([5, 6], [7, 8]).figure)\n"
        "print(json.dumps([[each['data'], each['metadata']] for each in shell.display_pub.outputs]))\n"
        "print(json.dumps([each.get('transient') for each in shell.display_pub.outputs[-4:]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    outputs, transient = map(json.loads, done.stdout.splitlines())
    (picture, about), (read, _), *others = outputs
    words = about["image/png"]["alt"]
    assert words.startswith("<b>. Y axis: value.")
    assert "Bars after all_reduce: rank 0: 3; rank 1: 4." in words
    assert picture["text/plain"] == words
    assert base64.b64decode(picture["image/png"]).startswith(b"\x89PNG")
    assert "text/html" not in picture, "JupyterLab would take the picture from it where a notebook is not trusted"
    assert "&lt;b&gt;. Y axis: value." in read["text/html"]
    assert "<b>" not in read["text/html"]
    (drawn, about), (read, _), *_, (_, changed), (read_last, _) = others
    assert drawn["text/plain"].startswith("4 samples, 2 ranks"), "where there are no pictures, its own words"
    assert "rank 1, step 0: 2, 0 again" in about["image/png"]["alt"]
    assert "rank 1, step 0: 2, 0 again" in read["text/html"]
    assert len(others) == 6
    assert transient[:2] == transient[2:], "a changed figure takes the place of the one before, and so do its words"
    assert transient[0] != transient[1]
    assert "rank 1: 8" in changed["image/png"]["alt"]
    assert "rank 1: 8" in read_last["text/html"]


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


_NAMED = ("BLUE", "ORANGE", "GREEN", "VERMILION", "PURPLE", "SKY", "YELLOW", "BLACK", "GREY")
COLORS = {name: getattr(style, name) for name in _NAMED}


@pytest.mark.parametrize("color", COLORS.values(), ids=COLORS)
def test_each_colour_has_tones_for_lines_and_for_words_on_white_and_words_on_it(color: str) -> None:
    assert contrast(style.line_tone(color), "#ffffff") >= 3.0
    assert contrast(style.word_tone(color), "#ffffff") >= 4.5
    named = {"white": "#ffffff"}
    best = style.words_on(color)
    other = {"white": style.BLACK, style.BLACK: "#ffffff"}[best]
    assert contrast(named.get(best, best), color) >= max(4.5, contrast(other, color))


@pytest.mark.parametrize("color", COLORS.values(), ids=COLORS)
def test_an_area_stands_out_on_white_by_itself_or_by_its_outline(color: str) -> None:
    looks = style.fill(color)
    edge = "#ffffff" if looks["edgecolor"] == "white" else looks["edgecolor"]
    assert max(contrast(color, "#ffffff"), contrast(edge, "#ffffff")) >= 3.0
    assert looks["linewidth"] >= 0.5


# What linear RGB becomes for who has no cones for red or green: Machado, Oliveira and Fernandes 2009, severity 1.
BLINDNESS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.072175), (0.0193339, 0.119192, 0.9503041))


def difference(one: str, other: str, kind: str) -> float:
    """How far two colours are apart in CIELAB for who sees like this; about 2 can just be told apart."""
    found = []
    for color in (one, other):
        linear = np.array([luminance(f"#{color[at : at + 2] * 3}") for at in (1, 3, 5)])
        xyz = np.array(TO_XYZ) @ np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        found.append(np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]))
    return float(np.linalg.norm(found[0] - found[1]))


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_differ_for_who_sees_no_red_or_no_green(kind: str) -> None:
    drawn_with = set(COLORS.values()) - {style.YELLOW}
    for colors in (drawn_with, {style.line_tone(color) for color in drawn_with}):
        alike = {pair: round(difference(*pair, kind)) for pair in combinations(sorted(colors), 2)}
        assert {pair: far for pair, far in alike.items() if far < 10} == {}


class TextColors(HTMLParser):
    """The colours that a piece of HTML gives to words and to frames, and the opacity of its words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: set[str] = set()
        self.frames: set[str] = set()
        self.opacities: set[float] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for rule in (dict(attrs).get("style") or "").split(";"):
            name, _, value = (part.strip() for part in rule.partition(":"))
            named = re.findall(r"#[0-9a-f]{6}", value)
            if name == "color":
                self.words |= set(named)
            elif name.startswith("border"):
                self.frames |= set(named)
            elif name == "opacity":
                self.opacities.add(float(value))
            else:
                assert not named, f"{rule}: how does this stand out on both themes?"


def cards() -> dict[str, str]:
    """Everything of the project that JupyterLab shows as HTML."""
    lesson = progress_map.LessonProgress
    kept = [lesson("01", 2, 2, 3, 0, 1, 100.0), lesson("02", 1, 2, 3, 1, 1, 100.0), lesson("03", 0, 2, 0, 0, 0, 0.0)]
    shown: dict[str, Any] = {
        kind: result_cards.Card(kind, "a name", ("a line with `code`",), "a footer") for kind in result_cards._LOOK
    }
    shown["progress"] = progress_map.ProgressMap(tuple(kept), "here", {"01": "01.ipynb"})
    shown["devices"] = devices.survey()
    return {name: made._repr_html_() for name, made in shown.items()}


# JupyterLab's own colours for text in outputs.
THEMES = {"light": ("#ffffff", "#212121"), "dark": ("#111111", "#ffffff")}


@pytest.mark.parametrize("theme", THEMES)
def test_words_and_frames_of_cards_stand_out_on_both_themes(theme: str) -> None:
    ground, ink = THEMES[theme]
    found = {name: TextColors(page) for name, page in cards().items()}
    frames = {color for colors in found.values() for color in colors.frames}
    assert len(frames) >= 4
    assert {color: contrast(color, ground) for color in frames if contrast(color, ground) < 3.0} == {}
    for name, colors in found.items():
        assert {color for color in colors.words if contrast(color, ground) < 4.5} == set(), name
        for opacity in colors.opacities:
            parts = [
                int(ink[at : at + 2], 16) * opacity + int(ground[at : at + 2], 16) * (1 - opacity) for at in (1, 3, 5)
            ]
            assert contrast("#" + "".join(f"{round(part):02x}" for part in parts), ground) >= 4.5, name


def css_colors(text: str) -> dict[str, str]:
    return {name: value for name, value in re.findall(r"--([a-z-]+): ?(#[0-9a-f]{3,6})\b", text)}


def full(color: str) -> str:
    return "#" + "".join(part * 2 for part in color[1:]) if len(color) == 4 else color


def test_the_report_can_be_read_in_light_in_dark_and_on_paper() -> None:
    page = (Path(report.__file__).parent / "page.html").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    assert len(blocks) == 3
    light = css_colors(blocks[0])
    for block in blocks:
        colors = {name: full(color) for name, color in (light | css_colors(block)).items()}
        pairs = [(ink, ground) for ink in ("ink", "soft", "link", "bad") for ground in ("ground", "raised")]
        for ink, ground in [*pairs, ("warn-ink", "warn"), ("warn-ink", "ground"), ("link", "warn")]:
            assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground, colors[ink], colors[ground])


def test_slides_can_be_read() -> None:
    css = (Path(slides.__file__).parent / "slide_show/static/slides.css").read_text(encoding="utf-8")
    words = re.findall(r"[^-]color: (#[0-9a-fA-F]{3,6})", css)
    assert words
    assert all(contrast(full(color), "#ffffff") >= 4.5 for color in words)
