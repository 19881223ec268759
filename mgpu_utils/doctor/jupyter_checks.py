"""Which Python the notebooks run in, and whether sliders work in this JupyterLab."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mgpu_utils.doctor.findings import Finding

KERNEL = "python3"
_EXTENSION = "@jupyter-widgets/jupyterlab-manager"
# Names that jupyter_client replaces by the Python that it runs in itself.
_OWN = {"python", f"python{sys.version_info.major}", f"python{sys.version_info.major}.{sys.version_info.minor}"}
_BY_MGPU_LAB = "JUPYTER_PREFER_ENV_PATH"


@dataclass(frozen=True)
class Kernel:
    """The kernel that notebooks ask for. `python`: "this", "another" or "missing"; `found`: whose folder it is in."""

    python: str
    found: str


@dataclass(frozen=True)
class Widgets:
    """Versions, None where not installed; `extension`: version on JupyterLab's side, None where not found."""

    ipywidgets: str | None
    jupyterlab_widgets: str | None
    jupyterlab: str | None
    extension: str | None
    disabled: bool = False


def look_for_kernel(environ: Mapping[str, str], name: str = KERNEL) -> Kernel | None:
    """The kernel that JupyterLab would start when `mgpu lab` opens it; None when there is none of this name."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_core import paths

    with _as_mgpu_lab_does():
        try:
            spec = KernelSpecManager().get_kernel_spec(name)
        except NoSuchKernel:
            return None
    folder = Path(spec.resource_dir).resolve()
    if folder.is_relative_to(Path(sys.prefix).resolve()):
        found = "environment"
    elif any(folder.is_relative_to(Path(part).resolve()) for part in _parts(environ.get("JUPYTER_PATH"))):
        found = "JUPYTER_PATH"
    elif folder.is_relative_to(Path(paths.jupyter_data_dir()).resolve()):
        found = "user"
    else:
        found = "system"
    return Kernel(_which_python(spec.argv[0] if spec.argv else ""), found)


def _parts(paths: str | None) -> list[str]:
    return [part for part in (paths or "").split(os.pathsep) if part]


@contextmanager
def _as_mgpu_lab_does() -> Iterator[None]:
    before = os.environ.get(_BY_MGPU_LAB)
    os.environ[_BY_MGPU_LAB] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BY_MGPU_LAB]
        else:
            os.environ[_BY_MGPU_LAB] = before


def _which_python(command: str) -> str:
    if command in _OWN:
        return "this"
    path = shutil.which(command)
    if path is None:
        return "missing"
    # Not resolved: the python of a virtual environment is a link to one that knows nothing of the environment.
    here = os.path.normcase(os.path.abspath(sys.executable))
    there = os.path.normcase(os.path.abspath(path))
    return "this" if os.path.dirname(here) == os.path.dirname(there) else "another"


def judge_kernel(kernel: Kernel | None) -> Finding:
    """Do notebooks run in the Python in which the course is installed?"""
    name = "Jupyter kernel"
    again = f"in this environment: python -m ipykernel install --sys-prefix --name {KERNEL}."
    if kernel is None:
        return Finding(name, "broken", f"there is no kernel {KERNEL}, which the notebooks ask for.", again)
    places = {
        "environment": "this environment",
        "JUPYTER_PATH": "a folder in JUPYTER_PATH",
        "user": "your own Jupyter folder",
        "system": "a folder of the whole machine",
    }
    where = places[kernel.found]
    if kernel.python == "this":
        return Finding(name, "ok", f"{KERNEL}, from {where}, runs this environment's Python.")
    what = "a Python that is not there" if kernel.python == "missing" else "another Python than the one of the course"
    cure = "unset JUPYTER_PATH, then mgpu lab." if kernel.found == "JUPYTER_PATH" else again
    return Finding(name, "broken", f"{KERNEL}, from {where}, starts {what}.", cure)


def look_at_widgets() -> Widgets:
    """Versions of the three packages, and of the part that JupyterLab loads."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    extension = None
    for folder in jupyter_path("labextensions"):
        try:
            extension = str(json.loads((Path(folder, _EXTENSION) / "package.json").read_text())["version"])
            break
        except (OSError, ValueError, KeyError):
            continue
    disabled = False
    for folder in [*jupyter_config_path(), str(Path(sys.prefix, "share", "jupyter", "lab", "settings"))]:
        for file in (Path(folder, "labconfig", "page_config.json"), Path(folder, "page_config.json")):
            try:
                listed = json.loads(file.read_text()).get("disabledExtensions", {})
            except (OSError, ValueError, AttributeError):
                continue
            disabled |= bool(listed.get(_EXTENSION)) if isinstance(listed, dict) else _EXTENSION in listed
    return Widgets(_version("ipywidgets"), _version("jupyterlab_widgets"), _version("jupyterlab"), extension, disabled)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def judge_widgets(found: Widgets) -> Finding:
    """ipywidgets 8 talks to jupyterlab_widgets 3, which runs in JupyterLab 3 and 4.

    Source: the requirements of ipywidgets and the description of jupyterlab_widgets on PyPI.
    """
    name = "JupyterLab"
    if found.jupyterlab is None:
        return Finding(name, "broken", "it is not installed for this Python.", "make lab (conda: pip install -e .).")
    cure = 'python -m pip install "ipywidgets>=8" "jupyterlab>=4.4", then reload the page in the browser.'
    if _major(found.jupyterlab) != 4:
        return Finding(name, "warning", f"{found.jupyterlab}; the course is made for JupyterLab 4.", cure)
    still = "figures with sliders stay still"
    if found.ipywidgets is None or found.jupyterlab_widgets is None:
        missing = "ipywidgets" if found.ipywidgets is None else "jupyterlab_widgets"
        return Finding(name, "warning", f"{found.jupyterlab}, without {missing}: {still}.", cure)
    have = f"{found.jupyterlab}, ipywidgets {found.ipywidgets}, jupyterlab_widgets {found.jupyterlab_widgets}"
    if _major(found.ipywidgets) != 8 or _major(found.jupyterlab_widgets) != 3:
        sentence = f"{have} do not match: {still} (ipywidgets 8 needs jupyterlab_widgets 3)."
        return Finding(name, "warning", sentence, cure)
    if found.disabled:
        cure = f"jupyter labextension enable {_EXTENSION}."
        return Finding(name, "warning", f"{have}; its extension for sliders is disabled: {still}.", cure)
    if found.extension is None:
        cure = "python -m pip install --force-reinstall --no-deps jupyterlab_widgets."
        return Finding(name, "warning", f"{have}; JupyterLab's part of the sliders is not found: {still}.", cure)
    return Finding(name, "ok", f"{have}: they match.")


def _major(version: str) -> int:
    return int(version.split(".")[0])
