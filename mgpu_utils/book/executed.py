"""Notebooks with the outputs of a run: run once, and taken from the store while nothing they depend on has changed."""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import Source, dumps, generate, keep_outputs, read_notebook, write_text
from mgpu_utils.benchmark.progress import SWITCH
from mgpu_utils.book.public_outputs import make_public
from mgpu_utils.book.recorded import VARIABLE, Results, find_results, newest_suite, with_recorded
from mgpu_utils.claims import machine_words
from mgpu_utils.notebook_execution import execute_notebook

RUN_ON = "run_on"
_PACKAGE = Path(__file__).resolve().parents[1]
# What is not run by notebooks; what puts its mark on their outputs is added again below.
_NOT_RUN = (
    *("book", "classroom", "slide_show", "slides.py", "slides_command.py"),
    *("cli.py", "end_signals.py", "output_places.py"),
)
_VERSIONS = ("torch", "numpy", "scipy", "pandas", "matplotlib", "ipykernel", "scikit-learn")


@dataclass(frozen=True)
class Shown:
    """A notebook for a page, and the sentence that says where its outputs come from."""

    source: Source
    notebook: Any
    origin: str


@dataclass
class Store:
    """Executed notebooks in a folder, each under a name which says what it was made from.

    Attributes:
        folder: where they are kept; nothing else lies there.
        results: a folder of `mgpu bench` for the benchmark notebooks; None: the newest of `benchmarks/reference/`.
        solutions: whether the exercises are solved.
        execute: whether what is not there is run; else it is shown with the outputs that the committed notebook holds.
        timeout: seconds for one notebook.
        tell: called with a line about each run before it starts.
    """

    folder: Path
    results: Path | None = None
    solutions: bool = False
    execute: bool = True
    timeout: float = 300.0
    tell: Callable[[str], None] = print

    def show(self, root: Path, sources: Iterable[Source]) -> list[Shown]:
        """The notebooks of these sources with outputs; those that are kept and not asked for are deleted.

        Raises: AuthoringError for a notebook that does not run through; BookError for results that do not fit.
        """
        suite = self.results or newest_suite(root)
        shown = []
        used = set()
        for source in sources:
            notebook = generate(source.path, solutions=self.solutions)
            results = find_results(suite, source) if source.kind == "benchmark" else None
            kept = self.folder / f"{source.name}-{self._key(root, notebook, results)}.ipynb"
            used.add(kept)
            if not kept.is_file() and self.execute and (results or source.kind == "lesson"):
                self.tell(f"{source.name}: running it")
                write_text(kept, dumps(self._run(root, source, notebook, results)))
            if kept.is_file():
                notebook = read_notebook(kept)
                shown.append(Shown(source, notebook, _origin(root, notebook, results)))
            else:
                if source.notebook.is_file():
                    notebook = keep_outputs(notebook, read_notebook(source.notebook))
                shown.append(Shown(source, notebook, "Not run for this page: most outputs are missing."))
        if self.execute:
            for path in set(self.folder.glob("*.ipynb")) - used:
                path.unlink()
        return shown

    def _run(self, root: Path, source: Source, notebook: Any, results: Results | None) -> Any:
        with tempfile.TemporaryDirectory(prefix="mgpu-book-") as scratch:
            environment: dict[str, str] = {}
            if results is not None:
                copy = Path(scratch) / results.suite.name
                shutil.copytree(results.suite, copy)
                environment |= {VARIABLE: str(copy), SWITCH: "off"}
                notebook = with_recorded(notebook, results.benchmark)
            done = execute_notebook(
                notebook, source.name, source.notebook.parent, timeout=self.timeout, environment=environment
            )
        done.metadata[RUN_ON] = machine_words()
        return make_public(done, root)

    def _key(self, root: Path, notebook: Any, results: Results | None) -> str:
        """A short hash of all that decides what a run shows, but for the machine."""
        parts = [dumps(notebook), platform.python_version(), *map(metadata.version, _VERSIONS)]
        files = [(path.relative_to(_PACKAGE), path) for path in _package_files()]
        if results is not None:
            files += [(path.relative_to(results.suite), path) for path in results.suite.rglob("*.*") if path.is_file()]
        total = hashlib.sha256("\0".join(parts).encode("utf-8"))
        for name, path in sorted(files):
            total.update(f"\0{name.as_posix()}\0".encode())
            total.update(path.read_bytes())
        return total.hexdigest()[:16]


def _package_files() -> list[Path]:
    files = [path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".csv") and path.is_file()]
    run = [path for path in files if path.relative_to(_PACKAGE).parts[0] not in _NOT_RUN]
    return [*run, *(_PACKAGE / "book" / name for name in ("executed.py", "public_outputs.py", "recorded.py"))]


def _origin(root: Path, notebook: Any, results: Results | None) -> str:
    if results is None:
        return f"Run for this page on {notebook.metadata[RUN_ON]}."
    place = results.folder.resolve()
    shown = place.relative_to(root.resolve()).as_posix() if place.is_relative_to(root.resolve()) else place.name
    return (
        f"Tables and figures show the results in `{shown}`, measured on {results.date}: {results.machine}. "
        f"They were drawn for this page on {notebook.metadata[RUN_ON]}."
    )
