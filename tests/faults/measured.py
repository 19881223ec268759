"""The figures of docs/robustness.md: where they are kept, and how a run of the tests writes them down."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("measured")
# A run of the tests with this variable writes what it measures to the file that it names.
VARIABLE = "MGPU_FAULTS_MEASURED"
FAULTS, PEERS, SOAK = (FOLDER / f"{name}.json" for name in ("faults", "peers", "soak"))


class Recorder:
    """Takes what was measured of each fault, by its name."""

    def __init__(self) -> None:
        self._file = os.environ.get(VARIABLE)
        self._found: dict[str, dict[str, Any]] = {}

    @property
    def active(self) -> bool:
        """Whether anybody wants the figures."""
        return bool(self._file)

    def fault(self, name: str, world_size: int, recovered: float, left: list[str]) -> None:
        """Seconds until the group worked again, the longest where there are several, and how many processes it left."""
        processes = sum(line.startswith("process") for line in left)
        sizes = self._found.setdefault(name, {})
        longest = max(recovered, sizes.get(str(world_size), {}).get("recovered", 0.0))
        sizes[str(world_size)] = {"recovered": round(longest, 1), "left": processes}

    def end(self, name: str, seconds: float) -> None:
        """Seconds until all ranks were gone, with the notebook; the longest counts."""
        before = self._found.get(name, {}).get("gone", 0.0)
        self._found[name] = {"gone": max(before, round(seconds, 1)), "left": 0}

    def write(self) -> None:
        """Put all of it into the file, if there is one."""
        if self._file:
            keep(Path(self._file), {"machine": machine(), "found": self._found})


def machine() -> dict[str, Any]:
    """On what it was measured: cores, versions, and how busy they were."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    versions = {"python": platform.python_version(), "torch": metadata.version("torch").partition("+")[0]}
    return {"cores": os.cpu_count(), "load": round(load, 1), **versions}


def keep(file: Path, data: dict[str, Any]) -> None:
    """Write figures."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept(file: Path) -> dict[str, Any]:
    """The figures that are kept."""
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data
