"""The reference of the public names, a page for each module, made from the docstrings when Sphinx reads it."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import mgpu_utils
from mgpu_utils.authoring import write_text

FOLDER = "api"
_INTRODUCTION = """\
What `import mgpu_utils as mgpu` gives, with every argument. The names stand in the order of the lessons. Each page is
made from the docstrings of one module.
"""


def write_api_pages(folder: Path) -> list[str]:
    """Write `api/index.md` and a page for each module with public names into `folder`; returns the names shown."""
    modules: dict[str, list[str]] = {}
    for name, module in mgpu_utils._HOME_OF.items():
        modules.setdefault(module, []).append(name)
    for module in mgpu_utils._MODULES:
        modules[module] = _own_names(importlib.import_module(f"mgpu_utils.{module}"))
    rows, entries, shown = [], [], []
    for module, names in modules.items():
        home = importlib.import_module(f"mgpu_utils.{module}")
        prefix = f"{module}." if module in mgpu_utils._MODULES else ""
        write_text(folder / FOLDER / f"{module}.rst", _page(module, home, names, prefix))
        entries.append(module)
        for name in names:
            shown.append(f"mgpu_utils.{prefix}{name}")
            link = f"{{py:obj}}`mgpu.{prefix}{name} <mgpu_utils.{prefix}{name}>`"
            rows.append(f"| {link} | {_first_line(home, name)} |")
    table = "\n".join(["| name | what it is |", "|---|---|", *rows])
    contents = "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])
    write_text(folder / FOLDER / "index.md", f"# API reference\n\n{_INTRODUCTION}\n{table}\n\n{contents}\n")
    return shown


def _page(module: str, home: ModuleType, names: list[str], prefix: str) -> str:
    # What follows the first paragraph of a module is for those who change it.
    about = re.split(r"\n\s*\n", inspect.getdoc(home) or "")[0]
    parts = [module, "=" * len(module), "", about, ""]
    for name in names:
        value = getattr(home, name)
        if isinstance(value, dict):
            parts += [f".. py:data:: mgpu_utils.{prefix}{name}", "", f"   {_keys(value)}"]
        elif inspect.isclass(value):
            options = [] if issubclass(value, BaseException) else ["   :members:"]
            options += [] if value.__bases__ == (object,) else ["   :show-inheritance:"]
            parts += [f".. autoclass:: mgpu_utils.{prefix}{name}", *options]
        else:
            parts.append(f".. autofunction:: mgpu_utils.{prefix}{name}")
        parts.append("")
    return "\n".join(parts)


def _own_names(module: ModuleType) -> list[str]:
    """The functions of a module that it offers; its constants (colours) are not for learners."""
    return [name for name in module.__all__ if inspect.isfunction(getattr(module, name))]


def _first_line(home: ModuleType, name: str) -> str:
    value = getattr(home, name)
    text = _keys(value) if isinstance(value, dict) else inspect.getdoc(value)
    line = re.split(r"\n\s*\n", text or "")[0].replace("\n", " ")
    return line.replace("``", "`").replace("|", "\\|")


def _keys(registry: dict[str, object]) -> str:
    return f"A dictionary with {', '.join(f'`{key}`' for key in registry)}."
