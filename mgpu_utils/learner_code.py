"""Tell the learner's own code from that of Python, libraries and this package."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from functools import cache

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
