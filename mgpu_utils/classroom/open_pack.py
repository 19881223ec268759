"""Open a learner's pack in JupyterLab: `python -m mgpu_utils.classroom.open_pack DIR [options of JupyterLab]`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mgpu_utils.lab import SETTINGS, lab_command


def main(arguments: Sequence[str]) -> int:
    """Serve the pack until Ctrl-C; on POSIX this process becomes the server."""
    folder, extra = Path(arguments[0]).resolve(), list(arguments[1:])
    notebooks = sorted(path.name for path in (folder / "notebooks").glob("*.ipynb"))
    if not notebooks:
        print(f"{folder} holds no notebooks; unpack the zip anew.", file=sys.stderr)
        return 2
    no_browser = "--no-browser" in extra
    extra = [option for option in extra if option != "--no-browser"]
    command = lab_command(folder, f"notebooks/{notebooks[0]}", no_browser=no_browser, port=None, extra=extra)
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([str(SETTINGS), *([others] if others else [])])
    print(f"Opening notebooks/{notebooks[0]} in JupyterLab; Ctrl-C here ends it.", flush=True)
    if sys.platform == "win32":
        return subprocess.call(command)
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
