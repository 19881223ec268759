"""From results to one self-contained page and one tidy table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu_utils.report.comparison import Compared, compare
from mgpu_utils.report.comparison_view import comparison_table, environment_differences, ratio_picture
from mgpu_utils.report.embedding import Picture
from mgpu_utils.report.environments import describe, facts, letters
from mgpu_utils.report.folders import ReportError, Result
from mgpu_utils.report.keys import COMPARISON
from mgpu_utils.report.reference import Group, beside
from mgpu_utils.report.tables import Table, make_table
from mgpu_utils.report.views import View, in_parts, view
from mgpu_utils.whole_file import write_whole

if TYPE_CHECKING:
    import pandas as pd

# A longer table is folded.
_MOST_ROWS = 20
TITLES = {
    "compare": "Compare strategies",
    "scale_out": "Scale out",
    "breakdown": "Break down a step",
    "collectives": "Measure collectives",
    "tune": "Tune",
    "predict": "Predict",
}


@dataclass(frozen=True)
class Section:
    """One result on the page. ``command`` is None where the folder keeps no configuration."""

    anchor: str
    title: str
    result: Result
    letter: str
    environment: str
    command: str | None
    counts: str
    view: View
    groups: list[Group]


def sections(results: Sequence[Result]) -> list[Section]:
    """Return what the page shows of each result."""
    published = _published()
    made = []
    titles = _titles(results)
    for number_, (result, letter) in enumerate(zip(results, letters([r.environment for r in results]), strict=True)):
        shown = view(result)
        groups: list[Group] = []
        if published is not None and shown.summary is not None:
            groups = beside(shown.summary, result.environment, published)
        made.append(
            Section(
                anchor=f"result-{number_ + 1}",
                title=titles[number_],
                result=result,
                letter=letter,
                environment=describe(result.environment),
                command=_command(result),
                counts=_counts(result),
                view=shown,
                groups=groups,
            )
        )
    return made


def render(shown: Sequence[Section]) -> str:
    """Return the page: one HTML document that loads nothing from outside itself."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("mgpu_utils.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results = [section.result for section in shown]
    compared = compare(results)
    letter_of = {section.result.label: section.letter for section in shown}
    return templates.get_template("page.html").render(
        sections=shown,
        environments=environment_table(shown),
        several=len({section.letter for section in shown}) > 1 or any(section.letter == "?" for section in shown),
        comparisons=_comparisons(compared, letter_of),
        differences=environment_differences(compared, letter_of),
        more_than_one=len(results) > 1,
        in_parts=in_parts,
        most_rows=_MOST_ROWS,
        version=metadata.version("mgpu-utils"),
    )


def environment_table(shown: Sequence[Section]) -> Table:
    """Return one row a fact, one column an environment, and which results belong to it."""
    first: dict[str, Section] = {}
    for section in shown:
        first.setdefault(section.letter, section)
    columns = {
        letter: facts(section.result.environment) if section.result.environment else {}
        for letter, section in first.items()
    }
    rows = [
        ["results", *(", ".join(s.result.label for s in shown if s.letter == letter) for letter in columns)],
    ]
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    told = ([name, *(found.get(name, "not recorded") for found in columns.values())] for name in names)
    rows += [row for row in told if any(row[1:])]
    return make_table(["", *(f"environment {letter}" for letter in columns)], rows, "On what was measured")


def tidy_table(shown: Sequence[Section]) -> pd.DataFrame:
    """Return all summaries below one another, each row naming its folder, benchmark and environment."""
    import pandas as pd

    parts = []
    for section in shown:
        if section.view.summary is None:
            continue
        part = section.view.summary.copy()
        about = {
            "folder": section.result.label,
            "benchmark": section.result.benchmark,
            "environment": section.letter,
            "machine": section.environment,
            "measured": section.result.measured,
        }
        for place, (name, value) in enumerate(about.items()):
            if name in part:
                part = part.drop(columns=name)
            part.insert(place, name, value)
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises: ReportError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror or error}.") from None


def _comparisons(compared: Sequence[Compared], letter_of: dict[str, str]) -> list[tuple[str, Table, Picture | None]]:
    shown = []
    for name in dict.fromkeys(one.benchmark for one in compared):
        ones = [one for one in compared if one.benchmark == name]
        shown.append((TITLES.get(name, name), comparison_table(ones, letter_of), ratio_picture(ones)))
    return shown


def _titles(results: Sequence[Result]) -> list[str]:
    """Return a heading for each result; where two have the same benchmark, their folders tell them apart."""
    known = [TITLES.get(result.benchmark, "") for result in results]
    return [
        result.label if not title else f"{title}: {result.label}" if known.count(title) > 1 else title
        for result, title in zip(results, known, strict=True)
    ]


def _published() -> pd.DataFrame | None:
    try:
        from mgpu_utils.reference_points import load
    except ImportError:
        return None
    return load()


def _command(result: Result) -> str | None:
    if result.config is None:
        return None
    # A suite gives each benchmark the folder of its name by itself.
    parent, _, name = result.label.rpartition("/")
    out = parent if parent and name == result.benchmark != COMPARISON else result.label
    return shlex.join(["mgpu", "bench", "--config", "config.yaml", "--out", out])


def _counts(result: Result) -> str:
    if not result.records:
        return "single runs are not kept here, only their summary"
    ok = sum(record["status"] == "ok" for record in result.records)
    rounds = len({record["round"] for record in result.records})
    failed = f", {len(result.records) - ok} failed" if ok < len(result.records) else ""
    return f"{ok} runs in {rounds} round{'s' if rounds != 1 else ''}{failed}"
