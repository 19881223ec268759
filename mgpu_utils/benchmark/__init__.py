"""Measure strategies on this machine and compare them honestly; `mgpu bench` is the way in from a shell.

The names below are what the benchmark notebooks call; each is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME_OF = {
    "from_parameters": "settings",
    "measure": "measuring",
    "plan_table": "results",
    "summarise": "summary",
    "summarise_each": "summary",
    "write": "results",
    "short_table": "report",
    "findings": "results",
    "failures": "results",
    "ConfigError": "config",
}

__all__ = [*_HOME_OF]

if TYPE_CHECKING:
    from .config import ConfigError as ConfigError
    from .measuring import measure as measure
    from .report import short_table as short_table
    from .results import failures as failures
    from .results import findings as findings
    from .results import plan_table as plan_table
    from .results import write as write
    from .settings import from_parameters as from_parameters
    from .summary import summarise as summarise
    from .summary import summarise_each as summarise_each


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"mgpu_utils.benchmark has no attribute {name!r}; it has {', '.join(__all__)}.")
    return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
