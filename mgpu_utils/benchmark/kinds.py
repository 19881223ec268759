"""What a benchmark of the suite is, and the six there are; the rest of the suite treats them alike.

A kind says what a section of the configuration file may hold, which configurations follow from it on a machine, how
one of them is measured once, and what table, sentences and figures come of the records. Resuming, failures, progress
and the command line are the same for all.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mgpu_utils.planning import Hardware

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pydantic import BaseModel

    from mgpu_utils.benchmark.config import BenchmarkConfig
    from mgpu_utils.torchrun import Launcher

Record = dict[str, Any]

# In the order in which a suite measures them: what a later one uses of an earlier one's results lies there already.
NAMES = ("compare", "scale_out", "breakdown", "collectives", "tune", "predict")


class Item(Protocol):
    """One thing to measure, the same in every round."""

    @property
    def key(self) -> str:
        """A text which tells this item from every other one of its benchmark."""

    def to_dict(self) -> dict[str, Any]:
        """Its fields as a record holds them."""


class Fields:
    """The `Item` that a frozen dataclass is by itself: its fields are the record's, and tell it from others."""

    @property
    def key(self) -> str:
        """A text which tells this item from every other one of its benchmark."""
        return "/".join(str(value) for value in asdict(self).values())  # type: ignore[call-overload]

    def to_dict(self) -> dict[str, Any]:
        """Its fields as a record holds them."""
        return asdict(self)  # type: ignore[call-overload]


class Kind(ABC):
    """One benchmark.

    Attributes:
        name: the key of its section, and the name of its folder in the results of a suite.
        notebook: the file name of its notebook in `benchmarks/`.
        section: the pydantic model of its section.
        on_several_machines: whether its runs can be spread over machines; else they stay on the first one.
    """

    name: str
    notebook: str
    section: type[BaseModel]
    on_several_machines = False

    @abstractmethod
    def configurations(
        self, section: Any, config: BenchmarkConfig, hardware: Hardware, environ: Mapping[str, str]
    ) -> Sequence[Item]:
        """What is measured on this hardware. Raises: ConfigError for what cannot run here."""

    @abstractmethod
    def measure_one(self, item: Any, number: int, *, launcher: Launcher, seed: int, timeout: float) -> Record:
        """Measure one item once, in round `number`, in fresh processes; a failure is a record, not an exception.

        The record holds the item's fields, what was measured, and `status` ("ok" or "failed" with `reason`).
        """

    @abstractmethod
    def summarise(self, records: list[Record]) -> pd.DataFrame:
        """One row a configuration."""

    @abstractmethod
    def findings(self, table: pd.DataFrame) -> list[str]:
        """The table in sentences."""

    @abstractmethod
    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """The figures by the name of their files, without ending."""

    def write_more(self, records: list[Record], folder: Path) -> None:
        """Write what this benchmark leaves in its folder besides table and figures: most leave nothing."""
        return

    def rounds(self, section: Any, config: BenchmarkConfig) -> int:
        """How often each item is measured: the section's `rounds` where it has one, else the file's."""
        return getattr(section, "rounds", None) or config.rounds

    def quick(self, section: Any) -> Any:
        """The section with as little measuring as shows that everything runs."""
        return section.model_copy(update={"rounds": 1}) if "rounds" in type(section).model_fields else section

    def description(self, section: Any, items: Sequence[Any]) -> list[str]:
        """What is going to be measured, as lines of a name in 12 columns and a value."""
        return [f"{name:12} {value}" for name, value in section.model_dump().items()]

    def label(self, record: Record) -> str:
        """What a failed run is called in one line."""
        return str(record.get("key"))


def get(name: str) -> Kind:
    """The benchmark of this name. Raises: ValueError naming those there are."""
    if name not in NAMES:
        raise ValueError(f"There is no benchmark {name!r}; choose one of {', '.join(NAMES)}.")
    kind: Kind = importlib.import_module(f"mgpu_utils.benchmark.{name}").KIND
    return kind
