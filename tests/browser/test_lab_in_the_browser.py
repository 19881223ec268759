"""A learner in front of JupyterLab: lessons, exercises, sliders, the stop button, a restart, the keyboard, the end.

One server and one browser serve all tests, in the order below, and each can run alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from browser_pages import PATIENCE, complaints, expect, opened
from lab_notebook import Notebook
from lab_server import Lab, copy_course, make_lab_command, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LESSON_00 = "notebooks/00_start_here.ipynb"
LESSON_01 = "notebooks/01_check_the_devices.ipynb"
LESSON_05 = "notebooks/05_wrap_in_data_parallel.ipynb"
PREDICT = "benchmarks/06_predict.ipynb"
HELLO = 'print(f"hello from rank'


@pytest.fixture(scope="module")
def course_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_course(tmp_path_factory.mktemp("learner") / "a course")


@pytest.fixture(scope="module")
def lab_server(chromium: Browser, course_copy: Path) -> Iterator[Lab]:
    with serve(course_copy, course_copy.parent) as lab:
        yield lab


@pytest.fixture(scope="module")
def learner_page(chromium: Browser) -> Iterator[Page]:
    with opened(chromium) as page:
        yield page


@pytest.fixture
def notebook(
    learner_page: Page, lab_server: Lab, keep: Callable[..., Path], request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Notebook]]:
    """Opens a notebook, unless it is in front already; keeps a picture of how a test left the page."""

    def open_notebook(path: str) -> Notebook:
        asked = Notebook(learner_page, lab_server, path)
        if not learner_page.url.endswith(path):
            asked.open()
        return asked

    yield open_notebook
    keep(learner_page, request.node.name.removeprefix("test_"))


def ranks_of(lab: Lab) -> list[psutil.Process]:
    return [one for one in lab.descendants() if "mgpu_utils.rank_process" in one.cmdline()]


def start_ranks(lesson: Notebook) -> list[psutil.Process]:
    """Run the first cell of lesson 00 and the one that starts the ranks; gives their processes."""
    lesson.run("mgpu.plots.ten_steps()")
    lesson.run("ranks = mgpu.start_ranks(2)")
    ranks = ranks_of(lesson.lab)
    assert len(ranks) == 2
    return ranks


def two_ranks(lesson: Notebook) -> list[psutil.Process]:
    """The ranks that a test before has left, or new ones."""
    ranks = ranks_of(lesson.lab)
    return ranks if len(ranks) == 2 else start_ranks(lesson)


def test_the_server_is_started_as_make_lab_does() -> None:
    assert Path(make_lab_command()[0]).name == "mgpu"
    assert make_lab_command("--no-browser")[1:] == ["lab", "--no-browser"]


def test_run_all_of_lesson_05_ends_with_figures_and_ranks_and_nothing_red(
    notebook: Callable[[str], Notebook], keep: Callable[..., Path]
) -> None:
    lesson = notebook(LESSON_05)
    lesson.run_all()
    assert lesson.red() == []
    assert lesson.not_run() == []
    expect(lesson.output("ranks = mgpu.start_ranks(2)")).to_contain_text("rank 1 of world_size 2 is ready")
    figures = lesson.page.locator(".jp-OutputArea img")
    assert figures.evaluate_all("all => all.map(one => one.complete && one.naturalWidth > 300)") == [True, True]
    words = [told.strip() for told in lesson.page.locator(".mgpu-figure-words").all_text_contents()]
    assert [told.startswith("Figure in words: ") for told in words] == [True, True]
    for number in range(2):
        figures.nth(number).scroll_into_view_if_needed()
        expect(figures.nth(number)).to_be_in_viewport(ratio=0.9)
        keep(lesson.page, f"lesson_05_figure_{number + 1}")
    assert complaints(lesson.page) == []


def test_an_exercise_is_answered_wrongly_then_with_a_hint_rightly(
    notebook: Callable[[str], Notebook], keep: Callable[..., Path]
) -> None:
    lesson = notebook(LESSON_05)
    exercise = 'mgpu.check("05/shapes"'
    lesson.run("import mgpu_utils as mgpu")
    lesson.replace_line(exercise, "...", "10, 10, 10, 10")
    card = lesson.run_here(exercise).get_by_role("status")
    expect(card).to_contain_text("Not yet")
    expect(card).to_contain_text("Each replica gets a piece of the batch")
    keep(lesson.page, "exercise_wrong")
    lesson.add_cell(exercise, 'mgpu.hint("05/shapes")')
    expect(lesson.run_here('mgpu.hint("05/shapes")')).to_contain_text("Hint 1 of 3")
    lesson.replace_line(exercise, "10, 10, 10, 10", "3, 3, 3, 1")
    expect(lesson.run_here(exercise).get_by_role("status")).to_contain_text("Right")
    kept = json.loads((lesson.lab.course / "notebooks/.mgpu/progress.json").read_text())["checks"]["05/shapes"]
    assert (kept["attempts"], kept["hints"], kept["done"]) == (2, 1, True)


def test_a_slider_of_the_prediction_redraws_its_figure_by_keyboard_and_by_mouse(
    notebook: Callable[[str], Notebook],
) -> None:
    predict = notebook(PREDICT)
    keys, mouse = predict.page.keyboard, predict.page.mouse
    predict.run("from mgpu_utils import benchmark, reference_points, scaling")
    shown = predict.run("scaling.explore()")
    figure, words = shown.locator("img"), shown.locator(".mgpu-figure-words")
    expect(words).to_contain_text("16 devices, 32 samples each")
    pictures = [figure.get_attribute("src")]
    slider = shown.get_by_role("slider").first
    keys.press("Escape")
    predict.tab_to(slider)
    keys.press("ArrowRight")
    expect(words).to_contain_text("32 devices, 32 samples each")
    pictures.append(figure.get_attribute("src"))
    slider.hover()
    rail = shown.locator(".slider-container").first.bounding_box()
    assert rail is not None
    mouse.down()
    mouse.move(rail["x"] + rail["width"] + 30, rail["y"], steps=4)
    mouse.up()
    expect(words).to_contain_text("4,096 devices, 32 samples each")
    pictures.append(figure.get_attribute("src"))
    assert len(set(pictures)) == 3
    expect(figure).to_have_count(1)
    figure.scroll_into_view_if_needed()


def test_the_stop_button_ends_a_deadlock_with_an_explanation_and_the_ranks_come_back(
    notebook: Callable[[str], Notebook],
) -> None:
    lesson = notebook(LESSON_00)
    start_ranks(lesson)
    expect(lesson.run(HELLO)).to_contain_text("[rank 1] hello from rank 1 of 2")
    frozen = "dist.all_reduce(torch.ones(1))"
    lesson.add_cell(HELLO, f"%%ranks\nprint('rank', rank, 'begins')\nif rank == 0:\n    {frozen}")
    told = lesson.run_here("'begins'", wait=False)
    expect(told).to_contain_text("[rank 1] rank 1 begins")
    expect(lesson.prompt("'begins'")).to_have_text("[*]:")
    lesson.page.get_by_role("button", name="Interrupt the kernel").first.click()
    lesson.wait_for_end("'begins'")
    expect(told).to_contain_text(re.compile(r"stopped\.\s+rank 0 waits inside all_reduce .*line 4: dist\.all_reduce"))
    expect(told).to_contain_text("for rank 1, which has already finished and will never join")
    expect(told).to_contain_text("Call `ranks.restart()`")
    again = "ranks.restart()  # after the stop button"
    lesson.add_cell("'begins'", again)
    lesson.run_here(again)
    expect(lesson.run(HELLO)).to_contain_text("[rank 1] hello from rank 1 of 2")


def test_a_kernel_restarted_by_the_menu_leaves_none_of_its_ranks(notebook: Callable[[str], Notebook]) -> None:
    lesson = notebook(LESSON_00)
    old = two_ranks(lesson)
    lesson.choose("Kernel", "Restart Kernel…")
    lesson.answer("Restart")
    assert psutil.wait_procs(old, timeout=PATIENCE)[1] == []
    lesson.wait_until_ready()
    start_ranks(lesson)
    expect(lesson.run(HELLO)).to_contain_text("[rank 1] hello from rank 1 of 2")


def test_a_lesson_is_opened_run_changed_and_read_by_the_keyboard_alone(
    notebook: Callable[[str], Notebook], lab_server: Lab, keep: Callable[..., Path]
) -> None:
    page = notebook(LESSON_00).page
    keys = page.keyboard
    keys.press("Control+Shift+C")
    expect(page.locator(".lm-CommandPalette-input")).to_be_focused()
    keys.type("open from path")
    expect(page.get_by_role("menuitem", name="Open from Path")).to_have_count(1)
    keys.press("Enter")
    expect(page.get_by_label("Path", exact=True)).to_be_focused()
    keys.type(LESSON_01)
    keys.press("Enter")
    lesson = Notebook(page, lab_server, LESSON_01)
    question = 'mgpu.predict("01/count"'
    expect(lesson.cell(question)).to_be_visible()
    lesson.wait_until_ready()
    for following in (2, 3, 4):
        keys.press("Shift+Enter")
        expect(page.locator("#jp-main-statusbar")).to_contain_text(f"Cell {following}/")
    lesson.wait_for_end(question)
    card = lesson.output(question).get_by_role("status")
    expect(card).to_be_in_viewport()
    keys.press("ArrowUp")
    expect(lesson.cell(question)).to_be_focused()
    assert lesson.cell(question).get_attribute("aria-label") == "Code Cell Content with Output"
    keys.press("Enter")
    keys.press("Control+End")
    keys.type("\nprint('written without a mouse')")
    keys.press("Shift+Enter")
    expect(lesson.output(question)).to_contain_text("written without a mouse")
    expect(lesson.output(question)).to_be_in_viewport()


def test_shutting_down_leaves_no_process(notebook: Callable[[str], Notebook], lab_server: Lab) -> None:
    lesson = notebook(LESSON_00)
    two_ranks(lesson)
    family = [psutil.Process(lab_server.process.pid), *lab_server.descendants()]
    lesson.choose("File", "Shut Down")
    lesson.answer("Shut Down")
    lab_server.process.wait(timeout=PATIENCE)
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    assert [one for one in psutil.process_iter() if started_by(lab_server, one)] == []


def started_by(lab: Lab, process: psutil.Process) -> bool:
    """Whether a process has the environment of this server, whoever its parent is now."""
    try:
        return process.environ().get("JUPYTER_RUNTIME_DIR") == lab.runtime
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
