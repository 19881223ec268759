"""A course folder for nbgrader, made from the lessons: solutions for it to take out, checks for it to mark with.

nbgrader's cell metadata, version 3: https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import dumps, generate, read_notebook, write_text
from mgpu_utils.classroom.check_calls import take_checks
from mgpu_utils.classroom.lessons import lesson_sources
from mgpu_utils.lesson_source import PLACEHOLDER, AuthoringError, cell_ids, header_lines

_EXPORTED = "mgpu_exported"
_CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "multi-gpu-training"
# What a learner's cell holds before it is answered, as in the lessons.
c.ClearSolutions.code_stub = {{"python": "{stub}"}}
# Learners may change the lesson's own cells, and see what happens; for marking they are put back.
c.LockCells.lock_readonly_cells = False
c.Execute.timeout = 300
"""


def export_course(root: Path, folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Write `folder/source/LESSON/LESSON.ipynb` for each lesson with exercises, and nbgrader's configuration.

    An exercise becomes two cells: the answer with its solution, and a locked check worth one point. Learners see
    the check's card and no error; the assertion that marks is a hidden test.

    An assignment of an earlier export is replaced where nobody changed its cells; a configuration that is there stays.
    Raises ValueError for an assignment that would be lost, before anything is written.
    """
    assignments = {
        folder / "source" / source.name / f"{source.name}.ipynb": notebook
        for source in lesson_sources(root, names)
        if (notebook := _assignment(source.path)) is not None
    }
    if not assignments:
        raise AuthoringError("no lesson with an exercise was chosen; name at least one, as in 05.")
    for path in filter(Path.exists, assignments):
        if not _is_as_exported(path):
            raise ValueError(
                f"{path} was changed after it was exported, or came from elsewhere, and would be lost. "
                "Choose another --out, or move it away."
            )
    for path, notebook in assignments.items():
        write_text(path, dumps(notebook))
    config = folder / "nbgrader_config.py"
    if not config.exists():
        write_text(config, _CONFIG.format(stub="\\n".join(PLACEHOLDER)))
    return list(assignments)


def _digest(notebook: Any) -> str:
    """What tells whether a cell was changed; running one or saving the notebook changes nothing."""
    cells = [(cell.cell_type, cell.source, cell.metadata.get("nbgrader")) for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def _is_as_exported(path: Path) -> bool:
    try:
        notebook = read_notebook(path)
    except AuthoringError:
        return False
    return bool(notebook.metadata.get(_EXPORTED) == _digest(notebook))


def _assignment(path: Path) -> Any:
    import nbformat

    notebook = generate(path)
    sources = _sources(path)
    cells, exercises = [], 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            cells.append(cell)
            continue
        # nbgrader takes out what stands between the marks of a solution itself.
        cell.source = sources[cell.id]
        answer, calls = take_checks(cell.source)
        if not calls:
            cell.metadata["nbgrader"] = _metadata(cell.id)
            cells.append(cell)
            continue
        exercises += len(calls)
        cell.source = answer
        cell.metadata["nbgrader"] = _metadata(cell.id, solution=True)
        cells.append(cell)
        for call in calls:
            given = ", ".join(part for part in (repr(call.name).replace("'", '"'), call.arguments) if part)
            source = (
                # Displayed, not returned: nbgrader reads what a check returns as a number of points.
                f"card = mgpu.check({given})\n### BEGIN HIDDEN TESTS\nassert card.passed, repr(card)\n"
                "### END HIDDEN TESTS\ndisplay(card)"
            )
            test = nbformat.v4.new_code_cell(source, id=f"check-{call.name.replace('/', '-')}")
            test.metadata["nbgrader"] = _metadata(test.id, points=1)
            cells.append(test)
    notebook.cells = cells
    notebook.metadata[_EXPORTED] = _digest(notebook)
    return notebook if exercises else None


def _sources(path: Path) -> dict[str, str]:
    """Each cell's source as it is written, by cell id."""
    import jupytext

    text = path.read_text(encoding="utf-8")
    cells = jupytext.reads(text, fmt="py:percent").cells
    ids = cell_ids(path, cells, header_lines(path, text))
    return {cell_id: cell.source for cell_id, cell in zip(ids, cells, strict=True)}


def _metadata(cell: str, *, solution: bool = False, points: int | None = None) -> dict[str, Any]:
    graded = points is not None
    metadata: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": cell,
        "grade": graded,
        "solution": solution,
        "locked": graded or not solution,
        "task": False,
    }
    return metadata | ({"points": points} if graded else {})
