"""Say in one sentence why nothing can be written where a teacher wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing_to(out: Path, what: str) -> Iterator[None]:
    """Within this context an OSError becomes a ValueError: `what` cannot be written to `out`, and why."""
    try:
        above = next((folder for folder in out.absolute().parents if folder.exists()), None)
        if above is not None and not above.is_dir():
            raise ValueError(f"{what} cannot be written to {out}: {above} is a file, not a folder. Name another --out.")
        yield
    except OSError as error:
        # A file beside `out` is its own temporary one, whose name says nothing.
        elsewhere = error.filename and Path(str(error.filename)).parent not in (out.parent, out)
        where = f" ({error.filename})" if elsewhere else ""
        reason = f"{error.strerror or error}{where}"
        raise ValueError(f"{what} cannot be written to {out}: {reason}. Name another --out.") from None
