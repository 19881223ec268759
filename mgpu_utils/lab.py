"""Open the course in JupyterLab, on this environment's Python."""

from __future__ import annotations

import os
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from mgpu_utils.authoring import find_root

SETTINGS = Path(__file__).with_name("jupyter_settings")


def lab_command(
    root: Path, notebook: str, *, no_browser: bool, port: int | None, extra: Sequence[str] = ()
) -> list[str]:
    """The JupyterLab command line: quiet, with no question at Ctrl-C and no look-ups outside this machine.

    Raises ValueError when `notebook` is not a file below `root`, or `port` is none.
    """
    path = (root / notebook).resolve()
    if not path.is_file() or not path.is_relative_to(root.resolve()):
        raise ValueError(f"there is no notebook {notebook} in {root}; the course's own lie in notebooks/.")
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"a port lies between 0 and 65535, not {port}.")
    url = "/lab/tree/" + quote(path.relative_to(root.resolve()).as_posix())
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "-y",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url={url}",
    ]
    command += ["--ServerApp.log_level=WARN", "--LabApp.log_level=WARN", "--LabApp.news_url=None"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    # It would look for language servers with npm at each start.
    command.append("--LanguageServerManager.autodetect=False")
    if port is not None:
        command.append(f"--ServerApp.port={port}")
    if no_browser or not has_browser():
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return [*command, *extra]


def has_browser() -> bool:
    """Whether a page opened from here would be seen by somebody."""
    screen = sys.platform != "linux" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if not screen and "BROWSER" not in os.environ:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_lab(notebook: str, *, no_browser: bool, port: int | None, extra: Sequence[str] = ()) -> int:
    """Serve until Ctrl-C or a termination signal; on POSIX this process becomes the server."""
    return serve(find_root(), notebook, no_browser=no_browser, port=port, extra=extra)


def serve(root: Path, notebook: str, *, no_browser: bool, port: int | None, extra: Sequence[str] = ()) -> int:
    """Do what `open_lab` does for the notebooks below any folder."""
    command = lab_command(root, notebook, no_browser=no_browser, port=port, extra=extra)
    # Kernels are looked up in this environment first, whatever is installed for the user.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    # Without a feed JupyterLab still asks whether to read it, in a window over the first lesson: turned off there.
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([str(SETTINGS), *([others] if others else [])])
    print(f"Opening {notebook} in JupyterLab; Ctrl-C here ends it.", flush=True)
    if sys.platform == "win32":
        return subprocess.call(command)
    os.execv(command[0], command)
