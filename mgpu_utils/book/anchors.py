"""What Sphinx has to know of this course's pages: the anchors of GitHub and JupyterLab, and the words of figures.

An extension of Sphinx, named in `book/conf.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

from mgpu_utils.authoring import read_notebook

_RAW_ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"')


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("doctree-read", _add_anchors)
    app.connect("doctree-read", _add_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Make every anchor that works on GitHub or in JupyterLab one that works here."""
    name = app.env.current_document.docname
    known = app.env.metadata[name].setdefault("myst_slugs", {})
    sections = {section_id: section for section in doctree.findall(nodes.section) for section_id in section["ids"]}
    for slug, (_, section_id, _) in known.items():
        if section_id in sections and slug not in sections:
            sections[section_id]["ids"].append(slug)
    for raw in doctree.findall(nodes.raw):
        for anchor in _RAW_ANCHOR.findall(raw.astext()):
            known[anchor] = (None, anchor, "")
    for cell, node in _code_cells(app, name, doctree):
        anchor = f"cell-id={cell.id}"
        node["ids"].append(anchor)
        known[anchor] = (None, anchor, "")


def _add_words(app: Sphinx, doctree: nodes.document) -> None:
    """Give each figure the alternative text that its output holds."""
    for cell, node in _code_cells(app, app.env.current_document.docname, doctree):
        words = [
            output.get("metadata", {}).get("image/png", {}).get("alt")
            for output in cell.outputs
            if "image/png" in output.get("data", {})
        ]
        for image, alt in zip(node.findall(nodes.image), words, strict=False):
            if alt:
                image["alt"] = alt


def _code_cells(app: Sphinx, name: str, doctree: nodes.document) -> list[tuple[Any, nodes.Element]]:
    path = Path(app.env.doc2path(name))
    if path.suffix != ".ipynb":
        return []
    cells = read_notebook(path).cells
    containers = [node for node in doctree.findall(nodes.container) if node.get("nb_element") == "cell_code"]
    return [(cells[node["cell_index"]], node) for node in containers]
