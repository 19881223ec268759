"""Slides from a lesson: reveal.js through nbconvert, one HTML file each, which needs no network.

What is text to read in a lesson is what a presenter says, so it becomes the speaker's notes. On the slides stand
headings with their first paragraph, lists, quotes, tables, code, and what the code printed and drew. A cell whose
metadata hold a `slideshow.slide_type` (JupyterLab's property inspector sets it) keeps that, so a teacher's own copy is
presented as its author chose.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import FOLDERS, Source, find_sources, generate, read_notebook, write_text
from mgpu_utils.lesson_source import AuthoringError
from mgpu_utils.notebook_execution import execute_notebook
from mgpu_utils.output_places import find_fault

TEMPLATE = Path(__file__).with_name("slide_show")
SHIPPED_REVEAL = TEMPLATE / "reveal"
_FILES = {"reveal_js": "dist/reveal.js", "reveal_css": "dist/reveal.css", "notes_js": "plugin/notes/notes.js"}
# What fits under a heading on the same slide, in lines.
_SHORT_TEXT, _SHORT_CODE = 6, 8


def make_slides(
    root: Path,
    names: Sequence[str],
    folder: Path,
    *,
    solutions: bool = False,
    run: bool = True,
    reveal: Path | None = None,
    timeout: float = 300.0,
    tell: Callable[[str], None] = print,
) -> list[Path]:
    """Write FOLDER/NN_name.slides.html for the lessons called `names` (none: all) and return the paths.

    A name that ends in .ipynb is a notebook file, shown with the outputs it holds. `tell` is called with a line before
    each run. Raises AuthoringError; for names and places that do not fit before anything is run.
    """
    files = [Path(name) for name in names if name.endswith(".ipynb")]
    lessons = [name for name in names if not name.endswith(".ipynb")]
    if missing := [file for file in files if not file.is_file()]:
        raise AuthoringError(f"there is no notebook {missing[0]}; a lesson is named by its number, as in 05.")
    library = read_reveal(reveal or SHIPPED_REVEAL)
    sources = find_sources(root, lessons, "lesson", _no_lesson) if lessons or not files else []
    if fault := find_fault(folder, "--out"):
        raise AuthoringError(fault)
    written = []
    for source in sources:
        notebook = generate(source.path, solutions=solutions)
        if run:
            tell(f"{source.name}: running it")
            notebook = execute_notebook(notebook, source.name, source.notebook.parent, timeout=timeout)
        elif not solutions and source.notebook.is_file():
            notebook = read_notebook(source.notebook)
        written.append(_write(notebook, source.name, folder, library))
    return written + [_write(read_notebook(file), file.stem, folder, library) for file in files]


def _no_lesson(name: str, other: Source | None, known: str) -> str:
    if other is None:
        return f"no lesson is called {name!r}; there are: {known}."
    file = f"{FOLDERS[other.kind][1]}/{other.notebook.name}"
    return (
        f"{other.name} is a benchmark, not a lesson; its slides are made from the notebook file, with the outputs it "
        f"holds: mgpu slides {file}"
    )


def read_reveal(folder: Path) -> dict[str, str]:
    """The three files of reveal.js that a page holds. Raises AuthoringError naming the one that is missing."""
    found = {}
    for name, place in _FILES.items():
        try:
            found[name] = (folder / place).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise AuthoringError(
                f"{folder} holds no {place}; --reveal names the folder of an unpacked reveal.js 4 or 5."
            ) from None
        # Inside a page this would end the script.
        found[name] = found[name].replace("</script", "<\\/script")
    return found


def render(notebook: Any, title: str, library: dict[str, str]) -> str:
    """The slides as one page of HTML; `notebook` itself stays as it is."""
    from nbconvert.exporters import SlidesExporter

    exporter = SlidesExporter(template_name=TEMPLATE.name, extra_template_basedirs=[str(TEMPLATE.parent)])
    resources = {"slide_show": {"title": title, **library}}
    page, _ = exporter.from_notebook_node(with_slide_types(notebook), resources)
    return str(page)


def with_slide_types(notebook: Any) -> Any:
    """A copy with a slide type on every cell; long texts are cut into what is shown and what is said."""
    import nbformat

    shown = nbformat.from_dict(dict(notebook))
    cells: list[Any] = []
    room = False
    for cell in notebook.cells:
        cell = nbformat.from_dict(dict(cell))
        if cell.cell_type == "code":
            cell.outputs = [_with_alt(output) for output in cell.outputs]
        own = cell.metadata.get("slideshow", {}).get("slide_type", "")
        if own:
            room = False
            cells.append(cell)
        elif cell.cell_type == "code":
            fits = room and len(cell.source.splitlines()) <= _SHORT_CODE
            cells.append(_typed(cell, "fragment" if fits else "subslide"))
            room = False
        elif cell.cell_type == "markdown" and (heading := re.match(r"(#+) ", cell.source)):
            visible, said = split_text(cell.source)
            kind = "slide" if len(heading[1]) <= 2 else "subslide"
            cells.append(_typed(cell, kind, visible))
            if said:
                cells.append(_typed(nbformat.v4.new_markdown_cell(), "notes", said))
            room = len(visible) <= 90 * _SHORT_TEXT
        else:
            cells.append(_typed(cell, "notes"))
    shown.cells = cells
    return shown


def _with_alt(output: Any) -> Any:
    """A picture with its words as an <img> that has both; nbconvert's own gives none."""
    metadata = output.get("metadata", {}).get("image/png", {})
    if "alt" in metadata and "text/html" not in output.data:
        png = "".join(output.data["image/png"].split())
        output.data["text/html"] = f'<img src="data:image/png;base64,{png}" alt="{html.escape(metadata["alt"])}">'
    return output


def split_text(text: str) -> tuple[str, str]:
    """A heading's cell in two: what stands on the slide, and the paragraphs that are said."""
    blocks = re.split(r"\n\s*\n", text.strip())
    visible, said = blocks[:1], []
    paragraphs = 0
    for block in blocks[1:]:
        if re.match(r"\s*([-*>|!]|\d+\.|#|```|\*\*You)", block):
            visible.append(block)
        elif paragraphs:
            said.append(block)
        else:
            visible.append(block)
            paragraphs += 1
    return "\n\n".join(visible), "\n\n".join(said)


def _typed(cell: Any, kind: str, source: str | None = None) -> Any:
    cell.metadata["slideshow"] = {"slide_type": kind}
    if source is not None:
        cell.source = source
    return cell


def _write(notebook: Any, name: str, folder: Path, library: dict[str, str]) -> Path:
    first = next((cell.source for cell in notebook.cells if cell.cell_type == "markdown"), "")
    heading = re.match(r"# +(.+)", first)
    path = folder / f"{name}.slides.html"
    try:
        write_text(path, render(notebook, heading[1] if heading else name, library))
    except OSError as error:
        raise AuthoringError(f"{path} cannot be written: {error.strerror or error}.") from None
    return path
