"""Ask before the work whether its files can be put where they are to go."""

from __future__ import annotations

import tempfile
from pathlib import Path


def find_fault(folder: Path, option: str) -> str:
    """What is wrong with `folder`, which `option` named, as a place to write to, in one sentence; "" where nothing is.

    A folder that is not there is made for the answer and taken away again.
    """
    made: list[Path] = []
    try:
        for place in (folder, *folder.parents):
            if place.exists():
                if place.is_dir():
                    break
                if place == folder:
                    return f"{folder} is a file; {option} names a folder."
                return f"{folder} cannot be made: {place} is a file; name another {option}."
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
