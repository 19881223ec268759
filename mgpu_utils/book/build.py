"""From the course to a site: run the notebooks, lay out the pages, let Sphinx make HTML, check it, put it in place."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from mgpu_utils.authoring import find_sources, write_text
from mgpu_utils.book import BookError
from mgpu_utils.book.executed import Store
from mgpu_utils.book.pages import Pages
from mgpu_utils.book.site_check import find_faults
from mgpu_utils.file_lock import locked
from mgpu_utils.notebook_execution import run_bounded
from mgpu_utils.output_places import find_fault

SETTINGS = "book"
#: In the site: a hash of everything it was made from.
STAMP = ".made-from"
_PACKAGE = Path(__file__).resolve().parents[1]
_TOOLS = ("Sphinx", "myst-nb", "myst-parser", "furo")
_SPHINX_SECONDS = 600.0
_LOCK = ".lock"
_MADE_ANEW = ("pages", "files", "html", "doctrees")
# All that lies in the folder of --work; myst-nb makes jupyter_execute.
_OURS = {_LOCK, "executed", "executed-solutions", "jupyter_execute", "warnings.txt", "faults.txt", *_MADE_ANEW}


def build_site(
    root: Path,
    out: Path,
    work: Path,
    *,
    results: Path | None = None,
    solutions: bool = False,
    execute: bool = True,
    timeout: float = 300.0,
    tell: Callable[[str], None] = print,
) -> bool:
    """Make the site of the course at `root` in the folder `out`; returns whether there was anything to do.

    The site is put in place whole: where something fails, the one that is there stays.

    Args:
        work: executed notebooks and what Sphinx needs; the next call reuses what has not changed.
        results: a folder of `mgpu bench` for the benchmark notebooks; None: the newest of `benchmarks/reference/`.
        solutions: show the exercises solved.
        execute: run the lessons and benchmark notebooks whose outputs are not in `work`.
        timeout: seconds for one notebook.
        tell: called with each line that says what is being done.

    Raises: AuthoringError for a notebook that does not run through; BookError for anything that Sphinx or the check
        of the finished site complains of, for missing packages, and for an `out` or `work` that holds other files or
        cannot be written.
    """
    _check_tools()
    _check_places(out, work)
    with _alone(work):
        kept = work / ("executed-solutions" if solutions else "executed")
        store = Store(kept, results=results, solutions=solutions, execute=execute, timeout=timeout, tell=tell)
        shown = store.show(root, find_sources(root))
        for name in _MADE_ANEW:
            shutil.rmtree(work / name, ignore_errors=True)
        pages = Pages(root, work / "pages", work / "files")
        pages.write(shown, solutions=solutions)
        made_from = _hash(root / SETTINGS, work / "pages", work / "files", _PACKAGE)
        stamp = out / STAMP
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == made_from:
            return False
        tell(f"making {len(list((work / 'pages').rglob('*.*')))} pages and pictures into a site")
        from mgpu_utils.book.api_pages import write_api_pages

        write_api_pages(work / "pages")
        _run_sphinx(root / SETTINGS, work)
        if (work / "files").is_dir():
            shutil.copytree(work / "files", work / "html", dirs_exist_ok=True)
        faults = find_faults(work / "html")
        if faults:
            raise BookError(_first_of(faults, "fault", work / "faults.txt"))
        write_text(work / "html" / STAMP, made_from)
        try:
            _put_in_place(work / "html", out)
        except OSError as error:
            raise BookError(f"the site cannot be put at {out}: {error.strerror or error}.") from None
    return True


def _check_places(out: Path, work: Path) -> None:
    # The site is made beside its place and then moved there.
    beside = out.parent if not out.exists() or out.is_dir() else out
    if fault := find_fault(beside, "--out") or find_fault(work, "--work"):
        raise BookError(fault)
    if out.is_dir() and not (out / STAMP).is_file() and any(out.iterdir()):
        raise BookError(f"{out} holds something else than a site made by this command; name another --out.")
    held = {path.name for path in work.iterdir()} if work.is_dir() else set()
    foreign = sorted(name for name in held - _OURS if not name.startswith("."))
    if held and (foreign or _LOCK not in held):
        shown = foreign[0] if foreign else sorted(held)[0]
        raise BookError(f"{work} holds something else than what this command keeps ({shown}); name another --work.")


def _check_tools() -> None:
    for name in _TOOLS:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            raise BookError(
                f"the site is made with {name}, which is not installed: pip install -c constraints.txt -e '.[book]'."
            ) from None


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    work.mkdir(parents=True, exist_ok=True)
    try:
        with locked(work / _LOCK, patience=0.0):
            yield
    except TimeoutError:
        raise BookError(f"another call is making a site in {work} at this moment; wait for it.") from None


def _hash(*folders: Path) -> str:
    total = hashlib.sha256("\0".join(metadata.version(name) for name in _TOOLS).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".tmp"):
                total.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
                total.update(path.read_bytes())
    return total.hexdigest()


def _run_sphinx(settings: Path, work: Path) -> None:
    """Let Sphinx write `work`/html. Raises BookError with its first warning."""
    told = work / "warnings.txt"
    told.unlink(missing_ok=True)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["--no-color", "--warning-file", str(told), "--conf-dir", str(settings)]
    command += ["--doctree-dir", str(work / "doctrees"), str(work / "pages"), str(work / "html")]
    status, log = run_bounded(command, cwd=work, env=os.environ | {"LANGUAGE": "en"}, timeout=_SPHINX_SECONDS)
    pages = f"{(work / 'pages').resolve()}{os.sep}"
    warnings = told.read_text(encoding="utf-8").replace(pages, "") if told.is_file() else ""
    found = [line for line in warnings.splitlines() if line.strip()]
    if found:
        raise BookError(_first_of(found, "warning", told))
    if status is None:
        raise BookError(f"Sphinx did not finish within {_SPHINX_SECONDS:g} s and was ended.")
    if status:
        raise BookError(f"Sphinx ended with status {status}: {log.strip().splitlines()[-1] if log.strip() else '-'}")


def _first_of(found: list[str], what: str, file: Path) -> str:
    write_text(file, "\n".join(found) + "\n")
    count = f"{len(found)} {what}s, all in {file}; the first" if len(found) > 1 else f"a {what}"
    return f"the site was not made because of {count}: {found[0].rstrip('.')}. Mend the page and make it again."


def _put_in_place(made: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        new = Path(scratch) / "new"
        shutil.copytree(made, new)
        if out.exists():
            out.rename(Path(scratch) / "old")
        new.rename(out)
