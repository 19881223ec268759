"""Turn the course's sources into notebooks, one way.

`sources/lessons/NN_name.py` becomes `notebooks/NN_name.ipynb`, `sources/benchmarks/NN_name.py` becomes
`benchmarks/NN_name.ipynb`; `lesson_source.py` says how a source is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_utils.lesson_source import CHECKED, AuthoringError, cell_ids, header_lines, take_solutions
from mgpu_utils.whole_file import write_whole

FOLDERS = {"lesson": ("sources/lessons", "notebooks"), "benchmark": ("sources/benchmarks", "benchmarks")}

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Source:
    """One source file: its kind (`lesson` or `benchmark`), its path and the notebook it generates."""

    kind: str
    path: Path
    notebook: Path

    @property
    def name(self) -> str:
        return self.path.stem


def find_root(start: Path | None = None) -> Path:
    """The course's folder: at or above `start` (default: here), else where this package lies."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if (folder / "sources" / "lessons").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise AuthoringError(
        f"{here} does not lie in the course: no folder above it holds sources/lessons; cd there first."
    )


def _no_source(name: str, other: Source | None, known: str) -> str:
    return f"no source is called {name!r}; there are: {known}."


def find_sources(
    root: Path,
    names: Sequence[str] = (),
    kind: str = "",
    refusal: Callable[[str, Source | None, str], str] = _no_source,
) -> list[Source]:
    """All sources below `root` in reading order, or those whose file name starts with one of `names`.

    Args:
        kind: `lesson` or `benchmark`, where only those are wanted.
        refusal: gives the sentence about a name that fits none of them, from the name, a source of another kind that
            it does fit, and the names that would do.

    Raises AuthoringError with that sentence.
    """
    every = [
        Source(each, path, root / target / f"{path.stem}.ipynb")
        for each, (folder, target) in FOLDERS.items()
        for path in sorted((root / folder).glob("*.py"))
    ]
    sources = [source for source in every if kind in ("", source.kind)]
    wanted = tuple(Path(name).stem for name in names)
    for name, start in zip(names, wanted, strict=True):
        if not any(source.name.startswith(start) for source in sources):
            other = next((source for source in every if source.name.startswith(start)), None)
            raise AuthoringError(refusal(name, other, ", ".join(source.name for source in sources) or "none"))
    return [source for source in sources if not wanted or source.name.startswith(wanted)]


def generate(path: Path, *, solutions: bool = False) -> Any:
    """The notebook a source describes, without outputs: for learners, or with `solutions` for teachers.

    Raises AuthoringError naming file and line for a header that is not py:percent, an unknown tag or option,
    an id used twice, and a solution that is opened and not closed.
    """
    import jupytext
    import nbformat

    text = path.read_text(encoding="utf-8")
    lines = header_lines(path, text)
    notebook = jupytext.reads(text, fmt="py:percent")
    if len(notebook.cells) != len(lines):
        raise AuthoringError(
            f"{path.name}: {len(lines)} headers, but {len(notebook.cells)} cells: look for '# %%' in a text."
        )
    cells = []
    for cell, line, cell_id in zip(notebook.cells, lines, cell_ids(path, notebook.cells, lines), strict=True):
        tags = cell.metadata.get("tags", [])
        if "solution" in tags and not solutions:
            continue
        new = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
        source = (
            take_solutions(cell.source, solutions, f"{path.name}:{line}") if cell.cell_type == "code" else cell.source
        )
        cells.append(new(source, id=cell_id, metadata={"tags": list(tags)} if tags else {}))
    generated = nbformat.v4.new_notebook(cells=cells, metadata=json.loads(json.dumps(_METADATA)))
    try:
        nbformat.validate(generated)
    except nbformat.ValidationError as error:
        raise AuthoringError(f"{path.name}: not a valid notebook: {str(error).splitlines()[0]}.") from None
    return generated


def is_checked(cell: Any) -> bool:
    """Whether a cell's output is stored and compared at each test."""
    return cell.cell_type == "code" and CHECKED in cell.metadata.get("tags", [])


def keep_outputs(notebook: Any, outputs_from: Any) -> Any:
    """Give the checked cells of `notebook` what the same cells (by id and source) of `outputs_from` hold."""
    stored = {(cell.id, cell.source): cell for cell in outputs_from.cells if cell.cell_type == "code"}
    by_source = {cell.source: cell for cell in stored.values()}
    for cell in notebook.cells:
        if is_checked(cell):
            match = stored.get((cell.id, cell.source)) or by_source.get(cell.source)
            if match is not None:
                cell.outputs = [_tidy(output) for output in match.outputs]
                cell.execution_count = match.execution_count
                for output in cell.outputs:
                    if output.output_type == "execute_result":
                        output.execution_count = cell.execution_count
    return notebook


def _tidy(output: Any) -> Any:
    import nbformat

    tidy = nbformat.from_dict(dict(output))
    if "metadata" in tidy:
        tidy.metadata = nbformat.from_dict({})
    return tidy


def dumps(notebook: Any) -> str:
    """The text of a notebook file: sorted keys and one line of the file for each line of a cell."""
    import nbformat

    return str(nbformat.writes(notebook, version=4)).rstrip("\n") + "\n"


def read_notebook(path: Path) -> Any:
    """A notebook from a file; raises AuthoringError when it cannot be read as one."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise AuthoringError(f"{path.name}: cannot be read as a notebook: {str(error).splitlines()[0]}") from None


def write_text(path: Path, text: str) -> bool:
    """Write a file whole or not at all; returns whether it changed."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return True


def build(root: Path, names: Sequence[str] = (), *, execute: bool = False, timeout: float = 300.0) -> list[Path]:
    """Generate the learner notebooks and return those that changed.

    Checked cells keep the output they hold; with `execute` every notebook that has checked cells is run, in a
    process of its own and for at most `timeout` seconds, and their outputs are stored anew.
    """
    from mgpu_utils.notebook_execution import execute_notebook

    changed = []
    for source in find_sources(root, names):
        notebook = generate(source.path)
        if execute and any(is_checked(cell) for cell in notebook.cells):
            notebook = keep_outputs(
                notebook, execute_notebook(notebook, source.name, source.notebook.parent, timeout=timeout)
            )
        elif source.notebook.is_file():
            notebook = keep_outputs(notebook, read_notebook(source.notebook))
        if write_text(source.notebook, dumps(notebook)):
            changed.append(source.notebook)
    return changed


def build_solutions(root: Path, folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Generate the solution version of the lessons into `folder`, which must not be one that is committed."""
    if folder.resolve() in {(root / target).resolve() for _, target in FOLDERS.values()}:
        raise AuthoringError(f"{folder} holds the learners' notebooks; name another folder for the solutions.")
    written = []
    for source in find_sources(root, names):
        if source.kind == "lesson":
            path = folder / source.notebook.name
            write_text(path, dumps(generate(source.path, solutions=True)))
            written.append(path)
    return written
