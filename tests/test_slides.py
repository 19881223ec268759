"""Slides hold what is shown and what is said, and open without a network."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from mgpu_utils.process_tree import kill_tree
from mgpu_utils.slides import SHIPPED_REVEAL, make_slides, read_reveal, render, split_text, with_slide_types
from mgpu_utils.slides_command import add_parser

ROOT = Path(__file__).resolve().parents[1]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def lesson() -> Any:
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    drawn = nbformat.v4.new_output(
        "display_data", {"image/png": PIXEL, "text/html": f'<img src="data:image/png;base64,{PIXEL}" alt="two bars">'}
    )
    printed = nbformat.v4.new_output("stream", name="stdout", text="[rank 0] hello <b>")
    return nbformat.v4.new_notebook(
        cells=[
            text("# Talk to ranks\n\nShown at once.\n\nSaid & only said.\n\n1. a list stays"),
            code("print('hello')", outputs=[printed]),
            text("A text between cells is said."),
            code("\n".join(f"line_{number} = {number}" for number in range(12)), outputs=[drawn]),
            text("## Next\n\n> A claim is shown."),
            text("### Deeper"),
        ]
    )


def types(notebook: Any) -> list[str]:
    return [cell.metadata.slideshow.slide_type for cell in with_slide_types(notebook).cells]


def page(notebook: Any) -> str:
    return render(notebook, "Talk <to> ranks", read_reveal(SHIPPED_REVEAL))


def test_headings_open_slides_and_what_is_read_becomes_what_is_said() -> None:
    assert types(lesson()) == ["slide", "notes", "fragment", "notes", "subslide", "slide", "subslide"]
    visible, said = split_text(lesson().cells[0].source)
    assert visible == "# Talk to ranks\n\nShown at once.\n\n1. a list stays"
    assert said == "Said & only said."


def test_a_notebook_is_not_changed_by_being_presented() -> None:
    notebook = lesson()
    before = nbformat.writes(notebook)
    page(notebook)
    assert nbformat.writes(notebook) == before


def test_a_slide_type_that_an_author_set_is_kept() -> None:
    notebook = lesson()
    notebook.cells[0].metadata["slideshow"] = {"slide_type": "skip"}
    notebook.cells[2].metadata["slideshow"] = {"slide_type": "fragment"}
    assert types(notebook) == ["skip", "subslide", "fragment", "subslide", "slide", "subslide"]


def test_a_page_needs_no_network() -> None:
    drawn = page(lesson())
    # Only what a reader clicks may lead elsewhere; scripts and styles are looked at without the library's own text.
    ours = drawn
    for text in read_reveal(SHIPPED_REVEAL).values():
        assert text in ours
        ours = ours.replace(text, "")
    assert not re.search(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=(?![\"']?data:)", ours)
    assert not re.search(r"@import|url\([\"']?(?:https?:)?//", ours)
    assert "Reveal.initialize" in ours


def test_slides_notes_outputs_and_pictures_are_on_the_page() -> None:
    drawn = page(lesson())
    assert "<title>Talk &lt;to&gt; ranks</title>" in drawn
    notes = " ".join(re.findall(r'<aside class="notes">(.*?)</aside>', drawn, re.DOTALL))
    assert "Said &amp; only said." in notes
    assert "A text between cells is said." in notes
    assert "Shown at once." not in notes
    assert "[rank 0] hello &lt;b&gt;" in drawn
    assert 'alt="two bars"' in drawn


def test_a_figure_of_the_course_has_its_words_on_the_slide() -> None:
    notebook = lesson()
    words = {"image/png": {"alt": 'Bars: 2 & "more".'}}
    notebook.cells[3].outputs = [nbformat.v4.new_output("display_data", {"image/png": PIXEL}, metadata=words)]
    drawn = page(notebook)
    assert re.search(r'<img[^>]*alt=(?:"Bars: 2 &amp; &quot;more&quot;."|\'Bars: 2 &amp; "more".\')', drawn)
    assert drawn.count(PIXEL) == 1


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(["slides", *arguments])
    return int(options.handler(options))


def test_the_command_writes_one_file_a_lesson_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("00", "05", "--no-run", "--root", str(ROOT), "--out", str(tmp_path / "talk")) == 0
    names = ["00_start_here.slides.html", "05_wrap_in_data_parallel.slides.html"]
    assert sorted(path.name for path in (tmp_path / "talk").iterdir()) == names
    assert capsys.readouterr().out.split() == [str(tmp_path / "talk" / name) for name in names]
    first = (tmp_path / "talk" / names[0]).read_text(encoding="utf-8")
    assert "hello from rank 0 of 2" in first, "the stored output of a checked cell"
    assert "YOUR CODE HERE" in first


def test_solutions_are_shown_when_asked_for(tmp_path: Path) -> None:
    (path,) = make_slides(ROOT, ["00"], tmp_path, solutions=True, run=False)
    text = path.read_text(encoding="utf-8")
    assert "YOUR CODE HERE" not in text
    assert "ReduceOp" in text


def test_a_teachers_own_notebook_is_presented_with_the_outputs_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat.write(lesson(), tmp_path / "mine.ipynb")
    monkeypatch.chdir(tmp_path)
    assert command("mine.ipynb", "--out", "talk") == 0
    assert "[rank 0] hello" in (tmp_path / "talk" / "mine.slides.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["99"], r"^no lesson is called '99'; there are: 00_start_here, (?!.*compare_strategies)"),
        (
            ["01_compare_strategies"],
            r"is a benchmark, .* from the notebook file, .*: mgpu slides benchmarks/01_compare_strategies\.ipynb$",
        ),
        (["00", "--timeout", "-3"], "--timeout is -3; it takes a number of seconds above 0"),
        (["00", "--timeout", "nan"], "a number of seconds above 0"),
        (["gone.ipynb"], r"no notebook gone.ipynb"),
        (["00", "--reveal", "nowhere"], "nowhere holds no dist/reveal.js"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_file(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        command(*arguments, "--no-run", "--root", str(ROOT), "--out", str(tmp_path / "talk"))
    assert not (tmp_path / "talk").exists()


SLOW = """\
# %% [markdown]
# # Wait

# %%
import os, pathlib, time
import mgpu_utils as mgpu

mgpu.start_ranks(2)

# %%
pathlib.Path("started").write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A course whose one lesson starts ranks and then waits; notebooks/started holds its kernel's number."""
    (tmp_path / "sources/lessons").mkdir(parents=True)
    (tmp_path / "sources/lessons/00_wait.py").write_text(SLOW)
    return tmp_path


@pytest.mark.parametrize("beneath", [False, True], ids=["a file", "in a file"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    waiting: Path, beneath: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = waiting / "taken"
    taken.write_text("precious")
    out = taken / "x" if beneath else taken
    message = "cannot be made: .*taken is a file; name another --out" if beneath else "is a file; --out names a folder"
    with pytest.raises(ValueError, match=message):
        command("00", "--root", str(waiting), "--out", str(out))
    assert capsys.readouterr().err == ""
    assert taken.read_text() == "precious"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_folder_that_the_system_does_not_let_make_is_refused_before_anything_runs(
    waiting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"^/proc/x/y cannot be made: .*; name another --out"):
        command("00", "--root", str(waiting), "--out", "/proc/x/y")
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are POSIX's")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["kill", "Ctrl-C"])
def test_it_says_what_it_runs_and_a_signal_ends_all_of_it(waiting: Path, number: signal.Signals) -> None:
    scratch = waiting / "scratch"
    scratch.mkdir()
    arguments = [sys.executable, "-m", "mgpu_utils.cli", "slides", "--root", str(waiting), "--out", str(waiting / "o")]
    started = waiting / "notebooks/started"
    family: list[psutil.Process] = []
    with subprocess.Popen(
        arguments, env=os.environ | {"TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as made:
        try:
            while not started.exists() or not started.read_text():
                assert made.poll() is None, made.stderr and made.stderr.read()
                time.sleep(0.05)
            family = psutil.Process(made.pid).children(recursive=True)
            assert int(started.read_text()) in [process.pid for process in family]
            assert list(scratch.glob("mgpu-run-*"))
            made.send_signal(number)
            assert made.wait() == 130
            _, alive = psutil.wait_procs(family, timeout=5)
            assert alive == []
        finally:
            for process in family:
                kill_tree(process.pid)
            kill_tree(made.pid)
        assert made.stderr is not None
        assert made.stderr.read() == "00_wait: running it\nmgpu slides: stopped\n"
    assert list(scratch.glob("mgpu-run-*")) == []
    assert not (waiting / "o").exists()


def test_the_library_is_shipped_with_its_licence_and_origin() -> None:
    assert "Hakim El Hattab" in (SHIPPED_REVEAL / "LICENSE").read_text(encoding="utf-8")
    assert "5.2.1" in (SHIPPED_REVEAL / "README.md").read_text(encoding="utf-8")


def test_a_library_cannot_end_the_script_it_stands_in(tmp_path: Path) -> None:
    for place in ("dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text('x = "</script>"')
    assert read_reveal(tmp_path)["reveal_js"] == 'x = "<\\/script>"'
