"""Say in one sentence why nothing can be written where it is wanted: before the work, or when writing fails."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def find_fault(folder: Path, option: str) -> str:
    """What is wrong with `folder`, which `option` named, as a place to write to, in one sentence; "" where nothing is.

    A folder that is not there is made for the answer and taken away again.
    """
    made: list[Path] = []
    try:
        if file := _file_in_the_way(folder):
            if file == folder:
                return f"{folder} is a file; {option} names a folder."
            return f"{folder} cannot be made: {file} is a file; name another {option}."
        for place in reversed((folder, *folder.parents)):
            if not place.exists():
                place.mkdir()
                made.append(place)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        what = "written to" if folder.is_dir() and not made else "made"
        return f"{folder} cannot be {what}: {error.strerror or error}; name another {option}."
    finally:
        for place in reversed(made):
            place.rmdir()
    return ""


@contextmanager
def writing_to(out: Path, what: str) -> Iterator[None]:
    """Within this context an OSError becomes a ValueError: `what` cannot be written to `out`, and why."""
    try:
        if file := _file_in_the_way(out.absolute().parent):
            raise ValueError(f"{what} cannot be written to {out}: {file} is a file, not a folder. Name another --out.")
        yield
    except OSError as error:
        # A file beside `out` is its own temporary one, whose name says nothing.
        elsewhere = error.filename and Path(str(error.filename)).parent not in (out.parent, out)
        where = f" ({error.filename})" if elsewhere else ""
        reason = f"{error.strerror or error}{where}"
        raise ValueError(f"{what} cannot be written to {out}: {reason}. Name another --out.") from None


def _file_in_the_way(folder: Path) -> Path | None:
    """The file, if it is one, that stands where `folder` or the nearest folder above it that exists should be."""
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), None)
    return nearest if nearest is not None and not nearest.is_dir() else None
