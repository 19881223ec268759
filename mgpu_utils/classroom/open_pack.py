"""Open a learner's pack in JupyterLab: `python -m mgpu_utils.classroom.open_pack DIR [options of JupyterLab]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mgpu_utils.lab import serve


def main(arguments: Sequence[str]) -> int:
    """Serve the pack until Ctrl-C; on POSIX this process becomes the server."""
    folder, extra = Path(arguments[0]).resolve(), list(arguments[1:])
    notebooks = sorted(path.name for path in (folder / "notebooks").glob("*.ipynb"))
    if not notebooks:
        print(f"{folder} holds no notebooks; unpack the zip anew.", file=sys.stderr)
        return 2
    no_browser = "--no-browser" in extra
    extra = [option for option in extra if option != "--no-browser"]
    return serve(folder, f"notebooks/{notebooks[0]}", no_browser=no_browser, port=None, extra=extra)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
