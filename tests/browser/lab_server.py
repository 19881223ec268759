"""JupyterLab as `make lab` starts it, in a copy of the course that tests may write into."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from mgpu_utils.process_tree import kill_tree

ROOT = Path(__file__).resolve().parent.parent.parent
# What `mgpu lab` looks for, and what notebooks read; the package itself is the installed one.
_COPIED = ("notebooks", "benchmarks", "sources", "docs")
# The tests set the first, and a learner's machine none of them.
_UNSET = ("MGPU_LIVE", "MGPU_HOME", "MGPU_STRICT", "JUPYTER_CONFIG_PATH", "BROWSER")


@dataclass(frozen=True)
class Lab:
    """A running server: its course, its folder of connection files, its process, its address, and the key to it."""

    course: Path
    runtime: str
    process: subprocess.Popen[bytes]
    base: str
    token: str

    def address(self, notebook: str) -> str:
        """The page of a notebook, in a work space with nothing else open."""
        return f"{self.base}/lab/tree/{notebook}?reset&token={self.token}"

    def descendants(self) -> list[psutil.Process]:
        """All that runs below the server: kernels, their ranks, and what these started."""
        return psutil.Process(self.process.pid).children(recursive=True)


def copy_course(folder: Path) -> Path:
    """The course as it is handed to a learner, in a new folder."""
    hidden = shutil.ignore_patterns(".*", "__pycache__", "results", "virtual_documents")
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=hidden)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def make_lab_command(*arguments: str) -> list[str]:
    """What the target `lab` of the Makefile runs, with this Python's environment in place of `.venv`."""
    recipe = re.search(r"^lab: .*\n\t@exec (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None, "the Makefile has no target `lab` of one line"
    values = {"$(BIN)": shlex.quote(str(Path(sys.executable).parent)), "$(ARGS)": shlex.join(arguments)}
    line = recipe[1]
    for name, value in values.items():
        line = line.replace(name, value)
    return shlex.split(line)


@contextmanager
def serve(course: Path, scratch: Path) -> Iterator[Lab]:
    """Start JupyterLab in `course`, with settings of its own in `scratch`; ended with all its processes."""
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        environment[name] = str(scratch / name.lower())
    log = scratch / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            make_lab_command("--no-browser", "--ServerApp.port_retries=50"),
            cwd=course,
            env=environment,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
        )
    try:
        end = time.monotonic() + 120
        while not (told := re.search(r"(http://127\S+?)/lab/tree/\S+?\?token=(\w+)", log.read_text())):
            assert process.poll() is None, f"JupyterLab ended: {log.read_text()}"
            assert time.monotonic() < end, f"JupyterLab gave no address: {log.read_text()}"
            time.sleep(0.05)
        yield Lab(course, environment["JUPYTER_RUNTIME_DIR"], process, *told.groups())
    finally:
        kill_tree(process.pid)
        process.wait()
