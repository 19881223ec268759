"""Can this process write where the course writes: temporary files, answers, and what JupyterLab keeps."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.doctor.findings import Finding
from mgpu_utils.progress import home

_GIB = 2**30
_MIB = 2**20
_COMFORTABLE = 1 * _GIB
_LEAST = 64 * _MIB


@dataclass(frozen=True)
class Folders:
    """For each folder the trouble with writing, None where it works; `free`: bytes for temporary files."""

    temporary: str | None
    free: int | None
    work: str | None
    answers: str | None
    jupyter_data: str | None
    jupyter_config: str | None


def look(environ: Mapping[str, str], folder: Path | None = None) -> Folders:
    """Try to write a file of no name into each folder; `folder` is where the course is (default: here)."""
    here = folder or Path.cwd()
    notebooks = here / "notebooks"
    work = notebooks if notebooks.is_dir() else here
    try:
        temporary = Path(tempfile.gettempdir())
        trouble, free = write_trouble(temporary), shutil.disk_usage(temporary).free
    except OSError:
        trouble, free = "none of the usual folders can be written", None
    data = config = None
    try:
        from jupyter_core import paths

        data, config = write_trouble(Path(paths.jupyter_runtime_dir())), write_trouble(Path(paths.jupyter_config_dir()))
    except ImportError:
        pass
    answers = write_trouble(work / home()) if environ.get("MGPU_HOME") else None
    return Folders(trouble, free, write_trouble(work), answers, data, config)


def write_trouble(folder: Path) -> str | None:
    """Why no file can be made in `folder`, or in the nearest folder above that exists; None where one can."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def judge(found: Folders, environ: Mapping[str, str]) -> list[Finding]:
    """One line for temporary files, one for the course's folder, one for what Jupyter keeps."""
    return [judge_temporary(found), judge_work(found, environ), *judge_jupyter(found)]


def judge_temporary(found: Folders) -> Finding:
    """Ranks keep their keys and torchrun its logs in temporary files."""
    name = "Temporary files"
    cure = "delete old files there, or export TMPDIR=FOLDER, a folder of yours with room."
    if found.temporary is not None or found.free is None:
        return Finding(name, "broken", f"none can be written ({found.temporary}): ranks cannot start.", cure)
    room = f"{found.free / _GIB:.1f} GiB free" if found.free >= _GIB / 10 else f"{found.free / _MIB:.0f} MiB free"
    if found.free < _LEAST:
        return Finding(name, "broken", f"{room}: the disk is full.", cure)
    if found.free < _COMFORTABLE:
        return Finding(name, "warning", f"{room}: little for checkpoints and logs.", cure)
    return Finding(name, "ok", f"can be written; {room}.")


def judge_work(found: Folders, environ: Mapping[str, str]) -> Finding:
    """Notebooks are saved beside the answers, unless MGPU_HOME says where those go."""
    name = "Course's folder"
    if found.answers is not None:
        cure = "export MGPU_HOME=FOLDER with a folder that you may write, or unset it."
        return Finding(name, "note", f"answers cannot be kept in MGPU_HOME ({found.answers}).", cure)
    if found.work is None:
        return Finding(name, "ok", "notebooks and answers can be saved.")
    lost = "notebooks cannot be saved" + ("" if environ.get("MGPU_HOME") else ", and answers end with the kernel")
    cure = "copy the course to a folder of yours, or export MGPU_HOME=FOLDER to keep the answers."
    return Finding(name, "note", f"it cannot be written ({found.work}): {lost}.", cure)


def judge_jupyter(found: Folders) -> list[Finding]:
    """JupyterLab needs its data folder for each kernel, and its configuration folder for settings."""
    name = "Jupyter's folders"
    if found.jupyter_data is not None:
        sentence = f"its data folder cannot be written ({found.jupyter_data}), so no notebook can start."
        cure = "export JUPYTER_DATA_DIR=FOLDER JUPYTER_CONFIG_DIR=FOLDER, each a folder that you may write."
        return [Finding(name, "broken", sentence, cure)]
    if found.jupyter_config is not None:
        sentence = f"its configuration folder cannot be written ({found.jupyter_config}): settings are not kept."
        return [Finding(name, "note", sentence, "export JUPYTER_CONFIG_DIR=FOLDER, a folder that you may write.")]
    return [Finding(name, "ok", "can be written.")]
