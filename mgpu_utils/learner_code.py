"""Tell the learner's own code from that of Python, libraries and this package."""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
import sysconfig
from functools import cache
from typing import Any

from .rank_errors import Place

_CELL_FILE = re.compile(r"ipykernel_\d+[/\\]\d+\.py$|^<ipython-input-|^<stdin>$|^<string>$")


@cache
def _library_folders() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(__file__)}
    return tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)


@cache
def is_learner_file(file: str) -> bool:
    """Whether `file` holds code of the learner: a notebook cell, or a script or module of theirs."""
    if _CELL_FILE.search(file):
        return True
    if file.startswith("<") or not os.path.isfile(file):
        return False
    return not os.path.realpath(file).startswith(_library_folders()) and not os.path.realpath(file).startswith(
        os.path.realpath(sys.prefix) + os.sep
    )


def is_cell_file(file: str) -> bool:
    """Whether `file` is the made-up file name of a notebook cell."""
    return _CELL_FILE.search(file) is not None


class CellIndex:
    """The cells that a group of ranks was given, to name a line as the learner knows it.

    Args:
        own: how the source that this package itself sends to the ranks begins.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._cells: dict[str, tuple[str, list[str]]] = {}

    def remember(self, code: str) -> None:
        """Note a cell that is about to run on the ranks; there its file is named after a hash of its source."""
        from ipykernel.compiler import get_tmp_hash_seed, murmur2_x86

        # Not `execution_count`: whether it already counts the running cell depends on IPython's version.
        inputs = getattr(_shell(), "user_ns", {}).get("In")
        label = f"Cell In[{len(inputs) - 1}]" if inputs else "cell"
        self._cells[f"{murmur2_x86(code, get_tmp_hash_seed())}.py"] = (label, code.splitlines())

    def place(self, file: str, line: int, function: str, text: str = "") -> Place | None:
        """The line `line` of `file`, by cell number or file name; None if it is this package's own."""
        base = os.path.basename(file)
        if base in self._cells:
            label, lines = self._cells[base]
            if lines and lines[0].startswith(self._own):
                return None
            return Place(label, line, function, lines[line - 1].strip() if 0 < line <= len(lines) else text)
        cells = getattr(getattr(_shell(), "compile", None), "_filename_map", {})
        label = f"Cell In[{cells[file]}]" if file in cells else base
        return Place(label, line, function, text or linecache.getline(file, line).strip())


def _shell() -> Any:
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()
