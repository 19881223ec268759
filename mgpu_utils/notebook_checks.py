"""Find out whether the notebooks are what the sources generate, and whether their tests can fail."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import (
    FOLDERS,
    Source,
    dumps,
    find_sources,
    generate,
    is_checked,
    keep_outputs,
    read_notebook,
)
from mgpu_utils.claims import COMMAND, PAGE, stale_claims
from mgpu_utils.lesson_source import CHECKED, AuthoringError

MEDIAN_LINES = 5
LONG_LINES = 15
SHARE_WITHIN_LONG = 0.9

REBUILD = "mgpu notebooks build"
EXECUTE = "mgpu notebooks build --execute"

_USES_RANKS = re.compile(r"\bstart_ranks\(|^%%ranks?\b", re.MULTILINE)
_ON_THE_RANKS = re.compile(r"\.run\(|\.execute\(|^%%ranks?\b", re.MULTILINE)
_MACHINE = re.compile(
    r"0x[0-9a-f]{6,}|/(?:home|Users|root|tmp|private/var)/\w|[A-Z]:\\\\?Users\\|TqdmWarning|IProgress"
)
_WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True)
class Problem:
    """Something wrong with one notebook: where, what, and how to mend it."""

    notebook: str
    cell: str | None
    message: str
    cure: str

    def __str__(self) -> str:
        place = f"{self.notebook}, cell {self.cell!r}" if self.cell else self.notebook
        return f"{place}: {self.message}. Cure: {self.cure}"


def find_problems(root: Path, names: Sequence[str] = ()) -> list[Problem]:
    """Every reason why the notebooks below `root` do not pass; an empty list when they do."""
    problems: list[Problem] = []
    sources = find_sources(root, names)
    if not sources:
        problems.append(
            Problem("sources", None, "holds no lesson and no benchmark", "write sources/lessons/00_name.py")
        )
    for source in sources:
        shown = source.notebook.relative_to(root).as_posix()
        try:
            problems += _problems_of(source, shown)
        except AuthoringError as error:
            problems.append(
                Problem(shown, None, str(error).rstrip("."), f"edit {source.path.relative_to(root).as_posix()}")
            )
    problems += _claim_problems(root, names)
    if not names:
        known = {source.notebook for source in sources}
        for _, target in FOLDERS.values():
            for notebook in sorted(set((root / target).glob("*.ipynb")) - known):
                shown = notebook.relative_to(root).as_posix()
                problems.append(
                    Problem(shown, None, "has no source", f"delete it, or write its source in sources/{target}")
                )
    return problems


def _claim_problems(root: Path, names: Sequence[str]) -> Iterator[Problem]:
    try:
        for message in stale_claims(root, names):
            yield Problem(PAGE, None, message, f"{COMMAND} --keep-numbers")
    except AuthoringError as error:
        yield Problem(PAGE, None, str(error).rstrip("."), "edit that lesson")


def _problems_of(source: Source, shown: str) -> Iterator[Problem]:
    edit = f"edit sources/{source.path.parent.name}/{source.path.name}, then {EXECUTE}"
    learner = generate(source.path)
    solved = generate(source.path, solutions=True)
    yield from _cell_length_problems(learner, shown, edit)
    if solved != learner:
        yield from _cell_length_problems(solved, f"{shown} with solutions", edit)
    for notebook in (learner, solved):
        yield from _syntax_problems(notebook, shown, edit)
    if source.kind == "benchmark":
        yield from _parameter_problems(learner, shown, edit)
    if not source.notebook.is_file():
        yield Problem(shown, None, "is missing", EXECUTE)
        return
    committed = read_notebook(source.notebook)
    yield from _difference(learner, committed, source.notebook, shown)
    if source.kind == "lesson":
        if not any(is_checked(cell) for cell in learner.cells):
            yield Problem(shown, None, f"no cell is tagged {CHECKED}, so no test could fail", edit)
        yield from _rank_problems(committed, shown, edit)
    yield from _checked_cell_problems(committed, shown, edit)


def _difference(expected: Any, committed: Any, path: Path, shown: str) -> Iterator[Problem]:
    keep_outputs(expected, committed)
    if dumps(expected) == path.read_text(encoding="utf-8"):
        return
    found = {cell.get("id"): cell for cell in committed.cells}
    wanted = {cell.id: cell for cell in expected.cells}
    for cell_id, cell in wanted.items():
        if cell_id not in found:
            yield Problem(shown, cell_id, "is in the source and not in the notebook", REBUILD)
            return
        other = found[cell_id]
        if (cell.cell_type, cell.source, cell.metadata) != (other.cell_type, other.source, other.metadata):
            yield Problem(shown, cell_id, "is not what the source generates", REBUILD)
            return
        if cell.cell_type == "code" and not is_checked(cell) and (other.outputs or other.execution_count is not None):
            yield Problem(shown, cell_id, f"holds an output, which only cells tagged {CHECKED} keep", REBUILD)
            return
    for cell_id in found:
        if cell_id not in wanted:
            yield Problem(shown, str(cell_id), "is in the notebook and not in the source", REBUILD)
            return
    yield Problem(shown, None, "its file is not written as the sources generate it", REBUILD)


def _checked_cell_problems(committed: Any, shown: str, edit: str) -> Iterator[Problem]:
    for cell in committed.cells:
        if not is_checked(cell):
            continue
        if not cell.outputs:
            yield Problem(shown, cell.id, "is to be checked and holds no output", EXECUTE)
        elif cell.execution_count is None:
            yield Problem(shown, cell.id, "is to be checked and holds no execution_count", EXECUTE)
        for output in cell.outputs:
            data = output.get("data", {})
            if _WIDGET in data or any(kind.startswith("image/") for kind in data):
                yield Problem(shown, cell.id, "stores a picture or a widget, which cannot be compared", edit)
            told = re.search(_MACHINE, "\n".join([output.get("text", ""), *map(str, data.values())]))
            if told:
                yield Problem(shown, cell.id, f"stores {told[0]!r}, which is another on each machine", edit)


def _cell_length_problems(notebook: Any, shown: str, edit: str) -> Iterator[Problem]:
    lengths = {cell.id: len(cell.source.splitlines()) for cell in notebook.cells if cell.cell_type == "code"}
    if not lengths:
        return
    median = statistics.median(lengths.values())
    if median > MEDIAN_LINES:
        yield Problem(
            shown, None, f"its median code cell has {median:g} lines; at most {MEDIAN_LINES} are wanted", edit
        )
    longest = {cell_id: lines for cell_id, lines in lengths.items() if lines > LONG_LINES}
    if len(longest) > (1 - SHARE_WITHIN_LONG) * len(lengths):
        worst = max(longest, key=lambda cell_id: longest[cell_id])
        share = f"{len(longest)} of {len(lengths)} code cells exceed {LONG_LINES} lines, this one the most"
        yield Problem(shown, worst, f"{share} ({longest[worst]}); one in ten may be", edit)


def _syntax_problems(notebook: Any, shown: str, edit: str) -> Iterator[Problem]:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            try:
                ast.parse(without_magics(cell.source))
            except SyntaxError as error:
                yield Problem(shown, cell.id, f"line {error.lineno} is not Python: {error.msg}", edit)


def _rank_problems(committed: Any, shown: str, edit: str) -> Iterator[Problem]:
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    if not any(_USES_RANKS.search(cell.source) for cell in code):
        return
    for cell in code:
        if is_checked(cell) and "world_size" in cell.source and _ON_THE_RANKS.search(cell.source):
            if not any(int(number) > 1 for number in re.findall(r"\d+", stored_text(cell))):
                yield Problem(shown, cell.id, "is to prove that several ranks ran, and shows one or none", edit)
            return
    message = (
        f"starts ranks, and no cell tagged {CHECKED} asks the ranks themselves for their world_size, as in "
        "ranks.run(lambda: dist.get_world_size()), and stores the answer"
    )
    yield Problem(shown, None, message, edit)


def stored_text(cell: Any) -> str:
    """All text a cell's stored outputs show."""
    parts = []
    for output in cell.outputs:
        parts += [output.get("text", ""), str(output.get("data", {}).get("text/plain", ""))]
    return "\n".join(parts)


def _parameter_problems(notebook: Any, shown: str, edit: str) -> Iterator[Problem]:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tagged = [number for number, cell in enumerate(code) if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        yield Problem(shown, None, f"{len(tagged)} cells are tagged parameters where exactly one must be", edit)
        return
    given = _names(code[tagged[0]].source, ast.Store)
    if not given:
        yield Problem(shown, code[tagged[0]].id, "is tagged parameters and assigns no name", edit)
    for cell in code[: tagged[0]]:
        early = sorted(given & _names(cell.source, ast.Load))
        if early:
            yield Problem(shown, cell.id, f"uses {early[0]!r} before the cell tagged parameters gives it a value", edit)


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    try:
        tree = ast.parse(without_magics(source))
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def without_magics(source: str) -> str:
    """The source with IPython's magics and shell lines replaced, so that it parses as Python."""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)
