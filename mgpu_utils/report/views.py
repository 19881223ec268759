"""One result as a page shows it: tables, figures and sentences, by the benchmark's own functions where they can."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.settings import SUMMARY
from mgpu_utils.figures.alt_text import alt_text
from mgpu_utils.report.embedding import Picture, from_figure, from_file
from mgpu_utils.report.folders import Result
from mgpu_utils.report.keys import COMPARISON, descriptions, find_kind, loose_key
from mgpu_utils.report.privacy import without_names
from mgpu_utils.report.tables import Table, from_frame, from_summary, number, spread_words

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS_IN_WORDS = 16
_LONG_LINE = 120
_OF_TRAINING_RUNS = {"scaling", "strategy", "samples_per_second_low", "speedup", "efficiency", "limit_share"}


@dataclass
class View:
    """What is shown of a result. ``summary`` holds one row a configuration, as ``summary.csv`` does."""

    summary: pd.DataFrame | None = None
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def in_parts(line: str) -> tuple[str, list[str]]:
    """Return a long finding as what it is about and the things that are said of it; a short one has no parts."""
    if len(line) <= _LONG_LINE:
        return line, []
    # At the ends of sentences, or where there is one alone at its semicolons; not inside of brackets.
    between = r"(?<=\.) (?=[A-Z])" if re.search(r"\. [A-Z]", line) else "; "
    pieces = re.split(between + r"(?![^()]*\))", line)
    about = re.match(r"(.*? on \d+(?: ranks over \w+)?|[^:]+): (.+)$", pieces[0], re.DOTALL)
    if len(pieces) == 1 or about is None:
        return line, []
    return about[1], [about[2], *pieces[1:]]


def view(result: Result) -> View:
    """Return what there is to show. Whatever cannot be made is left out with a sentence that says so."""
    shown = View(failures=_failures(result), busy=_busy(result))
    if not any(record["status"] == "ok" for record in result.records) and result.records:
        shown.problems.append("No run went well, so there is no table.")
        return shown
    try:
        if result.benchmark == COMPARISON:
            _fill_comparison(shown, result)
        elif result.records and (kind := find_kind(result.benchmark)) is not None:
            _fill_kind(shown, result, kind)
    except Exception as error:
        # Records of another version may lack anything; the page still shows what was made, or what the folder keeps.
        what = "No summary could be made of the records" if shown.summary is None else "Not every figure could be made"
        shown.problems.append(f"{what} ({type(error).__name__}: {error}).")
    if shown.summary is None:
        shown.findings = []
        _fill_from_files(shown, result)
    shown.findings = [without_names(line) for line in shown.findings]
    shown.problems = [without_names(line) for line in shown.problems]
    return shown


def _fill_comparison(shown: View, result: Result) -> None:
    import pandas as pd

    from mgpu_utils.benchmark.report import draw, findings
    from mgpu_utils.benchmark.summary import summarise_each

    if result.records:
        by_scaling = summarise_each(result.records)
    else:
        kept = _summary_file(result)
        by_scaling = {str(name): rows for name, rows in kept.groupby("scaling", sort=False)}
    for rows in by_scaling.values():
        shown.findings += findings(rows)
    shown.summary = pd.concat(by_scaling.values(), ignore_index=True)
    words = "Bars of training throughput in samples/s, with intervals. " + _in_words(
        shown.summary, "samples_per_second"
    )
    shown.tables = _tables(shown.summary)
    shown.pictures.append(from_figure(draw(by_scaling), words, "Training throughput"))


def _fill_kind(shown: View, result: Result, kind: Any) -> None:
    table = kind.summarise(result.records)
    lines = [str(line) for line in kind.findings(table)]
    shown.findings += lines
    shown.tables = _tables(table)
    shown.summary = table
    for stem, figure in kind.figures(result.records, table).items():
        what, _, of = stem.partition("-")
        title = what.replace("_", " ").capitalize() + (f": {of}" if of else "")
        shown.pictures.append(from_figure(figure, f"{title}. {alt_text(figure)}", title))


def _tables(summary: pd.DataFrame) -> list[Table]:
    """Return a table for each kind of scaling where the summary is one of training runs beside each other, else one."""
    from mgpu_utils.benchmark.report import short_table

    if not {*summary.columns} >= _OF_TRAINING_RUNS:
        return [from_summary(summary, _interval_caption(summary))]
    return [
        from_frame(short_table(rows), f"{str(scaling).capitalize()} scaling. {_interval_caption(rows)}")
        for scaling, rows in summary.groupby("scaling", sort=False)
    ]


def _fill_from_files(shown: View, result: Result) -> None:
    """Show what the folder keeps: its summary and its pictures."""
    if (result.folder / SUMMARY).is_file():
        try:
            shown.summary = _summary_file(result)
            shown.tables.append(from_summary(shown.summary, f"From {SUMMARY}. {_interval_caption(shown.summary)}"))
        except ValueError as error:
            shown.problems.append(f"{SUMMARY} cannot be read ({error}).")
    pictures = {path.stem: path for ending in ("svg", "png") for path in sorted(result.folder.glob(f"*.{ending}"))}
    for stem, path in sorted(pictures.items()):
        title = stem.replace("_", " ")
        try:
            shown.pictures.append(from_file(path, _alt(title, result, shown.findings), title.capitalize()))
        except (ValueError, OSError) as error:
            shown.problems.append(f"{path.name} cannot be shown: {error}")


def _summary_file(result: Result) -> pd.DataFrame:
    import pandas as pd

    table = pd.read_csv(result.folder / SUMMARY)
    return table.map(lambda value: without_names(value) if isinstance(value, str) else value)


def _failures(result: Result) -> list[str]:
    """Return one line for each configuration and reason, with the rounds that failed so."""
    names = descriptions(result.records)
    rounds: dict[str, list[int]] = {}
    for record in result.records:
        if record["status"] != "ok":
            line = f"{names[loose_key(record)]}: {without_names(str(record.get('reason', 'no reason recorded')))}"
            rounds.setdefault(line, []).append(record["round"] + 1)
    return [f"{line} (round {', '.join(map(str, sorted(numbers)))})" for line, numbers in rounds.items()]


def _busy(result: Result) -> list[str]:
    """Return one line for each run that was measured while the machine was busy with something else."""
    from mgpu_utils.benchmark.machine_load import note

    names = descriptions(result.records)
    lines = []
    for record in result.records:
        load = record.get("machine")
        said = note(load) if isinstance(load, dict) else None
        if said:
            lines.append(f"{names[loose_key(record)]}, round {record['round'] + 1}: {said}")
    return lines


def _interval_caption(table: pd.DataFrame) -> str:
    if "rounds" not in table or not any(str(name).endswith("_low") for name in table.columns):
        return ""
    counts = sorted({int(count) for count in table["rounds"] if count == count and count > 0})
    if not counts:
        return ""
    return spread_words(counts)


def _in_words(table: pd.DataFrame, metric: str) -> str:
    """Return every row of a comparison as words, the first ones where there are many."""
    rows: list[dict[str, Any]] = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    names = descriptions(rows)
    said = [f"{names[loose_key(row)]} {number(row[metric], metric) or 'failed'}" for row in rows]
    more = f"; the table holds all {len(said)}" if len(said) > _MOST_ROWS_IN_WORDS else ""
    return "; ".join(said[:_MOST_ROWS_IN_WORDS]) + more + "."


def _alt(title: str, result: Result, lines: list[str]) -> str:
    said = " ".join(lines[:_MOST_ROWS_IN_WORDS])
    return (
        f"{title.capitalize()}, figure of the benchmark {result.benchmark}. {said or 'Its numbers are in the table.'}"
    )
