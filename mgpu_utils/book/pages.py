"""Which pages the site has, and the folder that Sphinx reads: the course's own texts and notebooks, laid out as in git.

Links among them stay as they are written, because every page has the place there which its file has in git. A linked
file that is no page (a configuration, a picture) is copied beside the pages; a linked folder loses its link.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from mgpu_utils.authoring import dumps, write_text
from mgpu_utils.book.executed import RUN_ON, Shown

FRONT = "README.md"
INDEX = "index.md"
API = "api/index"
_PAGES = ("docs/*.md", "benchmarks/reference/README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LESSONS, _BENCHMARKS, _LOOK_UP, _MAKERS = "Lessons", "Benchmarks", "Look up", "Teach and contribute"
_READ_FIRST = "docs/benchmarks"
# Pages with a place of their own; any other page of docs/ is one to look things up in.
_GROUP_OF = {
    _READ_FIRST: _BENCHMARKS,
    "benchmarks/reference/README": _BENCHMARKS,
    "docs/teaching": _MAKERS,
    "CONTRIBUTING": _MAKERS,
    "docs/architecture": _MAKERS,
    "CHANGELOG": _MAKERS,
}
_WIDGET = "application/vnd.jupyter.widget-view+json"
_FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>(?:[^\]\[]|\[[^\]]*\])*)\]\((?P<to>[^()\s]+)\)")
_ATTRIBUTE = re.compile(r"""(?P<name>\b(?:href|src))=(?P<quote>["'])(?P<to>[^"']*)(?P=quote)""")


@dataclass
class Pages:
    """The pages of a site, written into `folder`; Sphinx makes the site of it.

    Attributes:
        root: the course.
        folder: what Sphinx reads.
        files: what is not read but copied to the same place of the site, because raw HTML points to it.
    """

    root: Path
    folder: Path
    files: Path
    groups: dict[str, list[str]] = field(default_factory=dict)

    def write(self, notebooks: Sequence[Shown], *, solutions: bool = False) -> None:
        """Write all pages but those of the API, and the index with the contents of the site."""
        self.groups = {name: [] for name in (_LESSONS, _BENCHMARKS, _LOOK_UP, _MAKERS)}
        for shown in notebooks:
            self._write_notebook(shown, solutions=solutions)
        found = {
            path.relative_to(self.root).with_suffix("").as_posix(): path
            for pattern in _PAGES
            for path in sorted(self.root.glob(pattern))
        }
        for name in sorted(found, key=lambda name: [*_GROUP_OF, name].index(name)):
            path = found[name]
            text = path.read_text(encoding="utf-8")
            write_text(self.folder / f"{name}.md", self._localise(text, path))
            entries = self.groups[_GROUP_OF.get(name, _LOOK_UP)]
            # How to read the benchmarks comes before them.
            entries.insert(0 if name == _READ_FIRST else len(entries), _entry(name, text))
        self.groups[_LOOK_UP].append(API)
        front = self.root / FRONT
        text = self._localise(front.read_text(encoding="utf-8"), front)
        contents = "".join(_toctree(caption, entries) for caption, entries in self.groups.items())
        write_text(self.folder / INDEX, f"{text.rstrip()}\n{contents}")

    def _write_notebook(self, shown: Shown, *, solutions: bool) -> None:
        notebook, name = shown.notebook, shown.source.name
        for unwanted in (RUN_ON, "widgets"):
            notebook.metadata.pop(unwanted, None)
        texts = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
        title = _title(texts[0].source if texts else name)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [
                    self._localise_output(output, shown.source.notebook)
                    for output in cell.outputs
                    # What moves by itself in JupyterLab is only its repr here.
                    if _WIDGET not in output.get("data", {})
                ]
            else:
                cell.source = self._localise(cell.source, shown.source.notebook)
                # As JupyterLab opens a notebook at a cell.
                cell.source = f'{cell.source}\n\n<a id="cell-id={cell.id}"></a>'
        if texts:
            note = shown.origin + (" **With the solutions: not for learners.**" if solutions else "")
            first, _, rest = texts[0].source.partition("\n")
            texts[0].source = f"{first}\n\n```{{container}} origin\n{note}\n```\n{rest}"
        place = shown.source.notebook.relative_to(self.root)
        write_text(self.folder / place, dumps(notebook))
        label = f"{name[:2]} {title}" if shown.source.kind == "lesson" else title
        self.groups[_LESSONS if shown.source.kind == "lesson" else _BENCHMARKS].append(
            f"{label} <{place.with_suffix('').as_posix()}>"
        )

    def _localise_output(self, output: Any, page: Path) -> Any:
        if "text/html" in output.get("data", {}):
            output.data["text/html"] = self._localise_html(output.data["text/html"], page)
        return output

    def _localise(self, text: str, page: Path) -> str:
        """A text with its links made for the site; its lines stay where they are."""

        def outside_code(part: str) -> str:
            return self._localise_html(_LINK.sub(lambda link: self._localise_link(link, page), part), page)

        return _between(_FENCE, text, outside_code)

    def _localise_link(self, link: re.Match[str], page: Path) -> str:
        target, _, fragment = unquote(link["to"]).partition("#")
        # MyST looks for a place in this page among its headings only, in that of a named page among all anchors.
        target = target or (page.name if fragment else "")
        place = self._place(target, page)
        if place is None:
            return link[0]
        if (self.root / place).is_dir():
            return link["text"]
        if place == PurePosixPath(FRONT):
            target = os.path.relpath(self.root / INDEX, page.parent).replace(os.sep, "/")
        self._copy(place, self.folder)
        return f"{link['mark']}[{link['text']}]({quote(target)}{'#' if fragment else ''}{quote(fragment, safe='=')})"

    def _localise_html(self, text: str, page: Path) -> str:
        def replace(attribute: re.Match[str]) -> str:
            target, hash_sign, fragment = unquote(attribute["to"]).partition("#")
            place = self._place(target, page)
            if place is None:
                return attribute[0]
            self._copy(place, self.files)
            if place == PurePosixPath(FRONT):
                target = target.removesuffix(FRONT) + INDEX
            if place.suffix in (".md", ".ipynb"):
                target = re.sub(r"\.(md|ipynb)$", ".html", target)
            return f'{attribute["name"]}="{target}{hash_sign}{fragment}"'

        return _ATTRIBUTE.sub(replace, text)

    def _place(self, target: str, page: Path) -> PurePosixPath | None:
        """Where in the course a link leads, or None where that is outside of it or not there."""
        if not target or re.match(r"[a-z][a-z0-9+.-]*:|//|/", target, re.IGNORECASE):
            return None
        found = Path(os.path.normpath(page.parent / target))
        if not (found.exists() or found == page) or not found.is_relative_to(self.root):
            return None
        return PurePosixPath(found.relative_to(self.root).as_posix())

    def _copy(self, place: PurePosixPath, folder: Path) -> None:
        source, target = self.root / place, folder / place
        if source.is_file() and place.suffix not in (".md", ".ipynb") and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _between(pattern: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """`text` with everything changed that `pattern` does not match."""
    parts = []
    at = 0
    for match in pattern.finditer(text):
        parts += [change(text[at : match.start()]), match[0]]
        at = match.end()
    return "".join([*parts, change(text[at:])])


def _title(text: str) -> str:
    heading = re.search(r"^# +(.+)$", text, re.MULTILINE)
    return heading[1].strip() if heading else text.strip().partition("\n")[0]


def _entry(name: str, text: str) -> str:
    return f"{_title(text)} <{name}>"


def _toctree(caption: str, entries: Iterable[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""])
