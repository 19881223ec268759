"""Run `mgpu report` in this process, and read the pages it writes."""

from __future__ import annotations

import argparse
import contextlib
import io
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from mgpu_utils.report.command import add_parser


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


def report(*arguments: object) -> Outcome:
    """What `mgpu report` says and how it ends."""
    parser = argparse.ArgumentParser(prog="mgpu")
    add_parser(parser.add_subparsers(dest="command"))
    options = parser.parse_args(["report", *map(str, arguments)])
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = options.handler(options)
    return Outcome(status, out.getvalue(), err.getvalue())


class Page(HTMLParser):
    """Tags with their attributes, texts, and the rows of all tables as lists of texts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.seen: list[str] = []
        self._in_cell = False
        self.feed(self.text)
        self.words = " ".join(" ".join(self.seen).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.seen.append(data)
        if self._in_cell:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]
