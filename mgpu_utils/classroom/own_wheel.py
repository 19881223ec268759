"""Build the wheel of this package, leaving its folder as it was."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_NEEDED = ("pyproject.toml", "README.md", "LICENSE", "mgpu_utils")


def build_own_wheel(root: Path, folder: Path) -> Path:
    """The wheel of the package in `root`, written to `folder`; raises ValueError with what pip said."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mgpu-wheel-", ignore_cleanup_errors=True) as scratch:
        source, built = Path(scratch) / "source", Path(scratch) / "built"
        source.mkdir()
        for name in _NEEDED:
            _copy(root / name, source / name)
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "--quiet"]
        # With what is installed here no network is needed to build.
        command += ["--no-build-isolation"] if _has_build_tool() else []
        done = subprocess.run([*command, "-w", str(built), str(source)], capture_output=True, text=True, cwd=scratch)
        wheels = sorted(built.glob("*.whl")) if built.is_dir() else []
        if done.returncode or len(wheels) != 1:
            raise ValueError(f"the package's wheel could not be built. pip said: {said_by_pip(done.stderr)}")
        return Path(shutil.move(wheels[0], folder / wheels[0].name))


def said_by_pip(text: str) -> str:
    """The lines of pip's output that say what went wrong, else its last lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return " ".join(errors[-3:] or lines[-3:]) or "(nothing)"


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    elif path.is_file():
        shutil.copyfile(path, target)
    else:
        raise ValueError(f"{path} is not there; the wheel is built from the course's own folder.")


def _has_build_tool() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
