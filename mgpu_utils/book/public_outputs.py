"""What a page that anybody may read shows of the machine that ran it: no folders, no names, no secrets."""

from __future__ import annotations

import os
import re
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from mgpu_utils.private_text import without_private


def make_public(notebook: Any, root: Path) -> Any:
    """Take this machine's folders and names out of the texts that the cells of a notebook put out."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = public_text(output.text, root)
            if "traceback" in output:
                output.traceback = [public_text(line, root) for line in output.traceback]
                output.evalue = public_text(output.evalue, root)
            for kind, data in output.get("data", {}).items():
                if kind.startswith("text/"):
                    output.data[kind] = public_text(data, root)
    return notebook


def public_text(text: str, root: Path) -> str:
    """The text with folders from the course's own on, or from `site-packages` on, and the rest as `without_private`."""
    for folder, shown in _folders(root):
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])", shown, text)
    temporary = re.escape(tempfile.gettempdir())
    text = re.sub(rf"{temporary}[/\\]mgpu-run-\w+[/\\]answers", ".mgpu", text)
    text = re.sub(rf"{temporary}[/\\][\w.-]+(?=[/\\])", "/tmp", text)
    return without_private(text)


def _folders(root: Path) -> list[tuple[str, str]]:
    """Folders of this machine with what stands for them, the longest first."""
    known = {
        sysconfig.get_path("purelib"): "site-packages",
        sysconfig.get_path("stdlib"): "python",
        str(Path(__file__).resolve().parents[2]): ".",
        str(root.resolve()): ".",
    }
    found = {name: shown for path, shown in known.items() for name in (path, os.path.realpath(path))}
    return sorted(found.items(), key=lambda item: len(item[0]), reverse=True)
