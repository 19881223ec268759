"""Results that a benchmark left on a named machine, shown through its notebook: drawn anew, and not measured anew."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import Source
from mgpu_utils.benchmark import kinds, records
from mgpu_utils.benchmark.settings import CONFIG, ENVIRONMENT, RECORDS
from mgpu_utils.book import BookError

VARIABLE = "MGPU_BOOK_RESULTS"
PARAMETERS = "parameters"
_CELL = """\
# Added for this page: the results named above are read, and nothing is measured.
from mgpu_utils.book.recorded import use_recorded

config, out, resume = use_recorded({name!r})"""


@dataclass(frozen=True)
class Results:
    """The results of one benchmark: its name, the folder of the suite and its own, when and on what it was measured."""

    benchmark: str
    suite: Path
    folder: Path
    date: str
    machine: str


def newest_suite(root: Path) -> Path | None:
    """The folder of `benchmarks/reference/` with the newest records, or None."""
    suites = [path.parent for path in (root / "benchmarks" / "reference").glob(f"*/{RECORDS}")]
    return max(suites, key=lambda suite: (_dates(suite)[-1:], suite.name), default=None)


def find_results(suite: Path | None, source: Source) -> Results | None:
    """What a suite holds for the notebook of `source`, or None. Raises BookError for a folder that holds no results."""
    if suite is None:
        return None
    if not any(suite.rglob(RECORDS)):
        raise BookError(f"{suite} holds no results of mgpu bench (no {RECORDS}); name another folder with --results.")
    for name in kinds.NAMES:
        if kinds.get(name).notebook == source.notebook.name:
            folder = suite if name == "compare" else suite / name
            if all((folder / part).is_file() for part in (RECORDS, CONFIG, ENVIRONMENT)):
                told = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
                days = _dates(folder)
                date = " to ".join(sorted({days[0], days[-1]})) if days else "an unknown day"
                return Results(name, suite, folder, date, machine_words(told))
    return None


def machine_words(environment: dict[str, Any]) -> str:
    """A machine and its versions in one phrase, from what a benchmark noted of it."""
    gpus = f"{environment['device_count'] or 'no'} GPU{'' if environment['device_count'] == 1 else 's'}"
    named = ", ".join(sorted(set(environment["device_names"])))
    cores = environment["cores_usable"]
    return (
        f"{cores} CPU core{'' if cores == 1 else 's'}, {gpus}{f' ({named})' if named else ''}, "
        f"PyTorch {environment['versions']['torch'].split('+')[0]}, Python {environment['python']}, "
        f"{environment['system']}"
    )


def with_recorded(notebook: Any, name: str) -> Any:
    """Add the cell, after that of the parameters, which makes a benchmark notebook read results."""
    import nbformat

    at = next(number for number, cell in enumerate(notebook.cells) if PARAMETERS in cell.metadata.get("tags", []))
    cell = nbformat.v4.new_code_cell(_CELL.format(name=name), id="read-the-results")
    notebook.cells.insert(at + 1, cell)
    return notebook


def use_recorded(name: str) -> tuple[str, str, bool]:
    """Let this process settle benchmark `name` as on the machine that measured it; returns its parameters.

    The folder of the results is that of the environment variable MGPU_BOOK_RESULTS. It is written to, too: a copy.

    Returns:
        config, out, resume.

    Raises BookError where the results are not all that the notebook would measure now: the rest would come from
    this machine, and one table never holds two machines' numbers.
    """
    from mgpu_utils.benchmark import settings as settings_module
    from mgpu_utils.benchmark.config import load
    from mgpu_utils.planning import Hardware

    suite = Path(os.environ[VARIABLE])
    folder = suite if name == "compare" else suite / name
    told = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
    hardware = Hardware(
        told["accelerator"],
        told["device_count"],
        told["cores_usable"],
        nccl=told["backends"].get("nccl", False),
        gloo=told["backends"].get("gloo", False),
        mig=any(" MIG " in f"{device} " for device in told["device_names"]),
    )
    # The plan follows from the machine, so the machine of the results stands in for this one.
    settings_module.hardware = lambda found: hardware
    settings_module.environment = lambda *found, **more: told
    settings = settings_module.settle(load(folder / CONFIG), folder, name)
    missing = records.remaining(settings.runs, records.read(folder / RECORDS))
    if missing:
        shown = folder.relative_to(suite.parent).as_posix()
        raise BookError(
            f"{shown} lacks {len(missing)} of the {len(settings.runs)} runs that the notebook measures now; measure it "
            "anew, or name other results with --results."
        )
    return str(folder / CONFIG), str(folder), True


def _dates(folder: Path) -> list[str]:
    """The days on which the records of one benchmark were measured."""
    return sorted({record.get("measured_at", "")[:10] for record in records.read(folder / RECORDS)} - {""})
