"""Cells with `%%ranks` or `%%rank` coloured as the Python they are: IPython's lexer takes an unknown magic for text."""

from __future__ import annotations

from typing import Any, ClassVar

from ipython_pygments_lexers import IPython3Lexer
from pygments.lexer import bygroups, using
from pygments.token import Operator, Text
from sphinx.application import Sphinx


class CellLexer(IPython3Lexer):
    """IPython, with the magics of this course."""

    tokens: ClassVar[dict[str, Any]] = {
        **IPython3Lexer.tokens,
        "root": [
            (r"(?s)(\s*)(%%ranks?)\b([^\n]*\n)(.*)", bygroups(Text, Operator, Text, using(IPython3Lexer))),
            *IPython3Lexer.tokens["root"],
        ],
    }


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    # The name that a notebook's metadata gives.
    app.add_lexer("ipython3", CellLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
