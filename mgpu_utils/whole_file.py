"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str, *, newline: str = "\n", mode: int = 0o644) -> None:
    """Put `text` (UTF-8) in the place of the file at `path`; where that fails, the old file stays and nothing else.

    Args:
        newline: as in `open`; "" leaves the line ends of `text` as they are.
        mode: who may read the file.

    Raises OSError.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline=newline) as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
