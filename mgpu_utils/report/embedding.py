"""Figures as data inside the page, each with a text that says what it shows."""

from __future__ import annotations

import base64
import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PNG = b"\x89PNG\r\n\x1a\n"
# A picture's comments may name who made it, where and with what.
_COMMENTS = (b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tIME")


@dataclass(frozen=True)
class Picture:
    """A figure of a page: ``source`` is a data URI, ``alt`` says in words what it shows."""

    source: str
    alt: str
    caption: str


def from_figure(figure: Figure, alt: str, caption: str) -> Picture:
    """Return a figure as SVG with its letters drawn, so that it looks the same on every machine; close it."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    with plt.rc_context({"svg.fonttype": "path", "svg.hashsalt": "mgpu"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return Picture(_uri("image/svg+xml", buffer.getvalue()), alt, caption)


def from_file(path: Path, alt: str, caption: str) -> Picture:
    """Return a PNG or SVG file; a PNG without its comments. Raises: ValueError for a file that is no PNG."""
    content = path.read_bytes()
    if path.suffix == ".svg":
        return Picture(_uri("image/svg+xml", content), alt, caption)
    return Picture(_uri("image/png", _without_comments(content, path.name)), alt, caption)


def _without_comments(content: bytes, name: str) -> bytes:
    if not content.startswith(_PNG):
        raise ValueError(f"{name} is not a PNG picture.")
    kept, at = [_PNG], len(_PNG)
    while at + 12 <= len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        end = at + 12 + length
        if kind not in _COMMENTS:
            kept.append(content[at:end])
        at = end
    return b"".join(kept)


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
