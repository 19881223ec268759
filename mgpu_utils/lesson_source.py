"""Read the py:percent source of a lesson: its cell headers, the names of its cells, and its solutions.

A cell header takes `id="..."` and `tags=[...]` only.

Cell ids come from the source alone: a cell that starts with a heading opens a group named after the heading,
and the cells that follow are numbered in that group (`scatter-by-hand`, `scatter-by-hand_01`, ...). So a
changed line changes one line of the notebook, and a new cell renumbers no more than the rest of its group.
`id="..."` in a header sets the name by hand: of the whole group on a heading, else of that one cell.

Between `### BEGIN SOLUTION` and `### END SOLUTION` in a code cell stands what learners write themselves; a
cell tagged `solution` is for teachers as a whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CHECKED = "nbval-check-output"
VERDICT = "verdict"
TAGS = frozenset({CHECKED, VERDICT, "exercise", "parameters", "raises-exception", "solution"})
PLACEHOLDER = ("# YOUR CODE HERE", "...")

_MARKER = re.compile(r"#\s*%%")
_MAGIC = re.compile(r"# %%[A-Za-z]")
_SOLUTION = re.compile(r"(?P<indent>\s*)### (?P<edge>BEGIN|END) SOLUTION\s*")


class AuthoringError(ValueError):
    """A source or a notebook that the course cannot use; the message is one sentence with the place."""


def header_lines(path: Path, text: str) -> list[int]:
    """The line number of each cell header; raises for the first line that looks like one and is none."""
    headers: list[int] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        place = f"{path.name}:{number}"
        if not _MARKER.match(line):
            if not headers and line.strip():
                raise AuthoringError(f"{place}: a source starts with a cell header, '# %%' or '# %% [markdown]'.")
            continue
        if _MAGIC.match(line):
            if not headers or any(between.strip() for between in lines[headers[-1] : number - 1]):
                raise AuthoringError(
                    f"{place}: {line[2:]!r} is a cell magic and belongs on the first line of its cell."
                )
            continue
        _check_options(place, line)
        headers.append(number)
    if not headers:
        raise AuthoringError(f"{path.name}: holds no cells; each begins with '# %%' or '# %% [markdown]'.")
    return headers


def _check_options(place: str, line: str) -> None:
    header = re.fullmatch(r"# %%(?: \[markdown\])?(?P<options>(?: .*)?)", line.rstrip())
    if header is None or " [" in header["options"].split("=")[0]:
        raise AuthoringError(f"{place}: {line!r} is not a cell header; write '# %%' or '# %% [markdown]'.")
    rest = header["options"].strip()
    while rest:
        option = re.match(r"(id|tags)=", rest)
        if option is None:
            raise AuthoringError(
                f'{place}: {rest!r} does not belong in a header; it takes id="..." and tags=["..."] only.'
            )
        try:
            value, end = json.JSONDecoder().raw_decode(rest, option.end())
        except json.JSONDecodeError:
            raise AuthoringError(
                f'{place}: {rest!r} cannot be read; write tags=["one", "two"] and id="name".'
            ) from None
        rest = rest[end:].strip()
        if option[1] == "id":
            if not (isinstance(value, str) and re.fullmatch(r"[a-zA-Z0-9-]{1,56}", value)):
                raise AuthoringError(f"{place}: an id holds up to 56 letters, digits and hyphens, not {value!r}.")
        elif not isinstance(value, list):
            raise AuthoringError(f'{place}: tags are a list: tags=["{value}"].')
        else:
            for tag in value:
                if tag not in TAGS:
                    raise AuthoringError(f"{place}: unknown tag {tag!r}; the course knows {', '.join(sorted(TAGS))}.")


def cell_ids(path: Path, cells: Iterable[Any], lines: Iterable[int]) -> list[str]:
    """One id a cell, from headings and numbers; raises when two cells would be called the same."""
    ids: list[str] = []
    groups: Counter[str] = Counter()
    group, number = "start", 0
    for cell, line in zip(cells, lines, strict=True):
        given = cell.metadata.get("id")
        heading = re.match(r"#+ +(.+)", cell.source.strip()) if cell.cell_type == "markdown" else None
        if heading:
            group, number = given or _slug(heading[1]), 0
            groups[group] += 1
            if groups[group] > 1:
                group = f"{group}-{groups[group]}"
            cell_id = group
        else:
            number += 0 if given else 1
            cell_id = given or f"{group}_{number:02d}"
        if cell_id in ids:
            raise AuthoringError(f'{path.name}:{line}: a second cell is called {cell_id!r}; give it another id="...".')
        ids.append(cell_id)
    return ids


def _slug(words: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
    return slug[:48].rstrip("-") or "section"


def take_solutions(source: str, solutions: bool, place: str) -> str:
    """A code cell with its solutions, or with the learner's placeholder in place of each."""
    kept: list[str] = []
    inside = False
    for line in source.splitlines():
        edge = _SOLUTION.fullmatch(line)
        if edge is None:
            if solutions or not inside:
                kept.append(line)
            continue
        if (edge["edge"] == "BEGIN") == inside:
            raise AuthoringError(f"{place}: '### {edge['edge']} SOLUTION' without its partner in this cell.")
        inside = not inside
        if inside and not solutions:
            kept += [edge["indent"] + words for words in PLACEHOLDER]
    if inside:
        raise AuthoringError(f"{place}: '### BEGIN SOLUTION' is not closed by '### END SOLUTION' in this cell.")
    return "\n".join(kept)
