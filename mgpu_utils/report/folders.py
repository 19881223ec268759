"""Find result folders and read what is whole in them; what is not is said in one sentence each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu_utils.benchmark import records as records_file
from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.benchmark.records import key_of
from mgpu_utils.benchmark.settings import CONFIG, ENVIRONMENT, RECORDS, SUMMARY
from mgpu_utils.report.keys import COMPARISON, benchmark_of, fill_in
from mgpu_utils.report.privacy import without_names

# The records' field `format`, 1 where it is missing: a newer number means fields that this version cannot know.
FORMAT: int = getattr(records_file, "FORMAT", 1)
# A suite holds one folder a benchmark, a folder of suites holds those: deeper lies something else.
_DEEPEST = 3


class ReportError(ValueError):
    """A report that cannot be made, said in one sentence: which folder, what is wrong, what to do."""


@dataclass(frozen=True)
class Result:
    """One result folder. ``label`` is its name as given, never this machine's path to it.

    ``records`` holds the newest record of every configuration and round; it is empty for a folder which keeps only
    its summary.
    """

    label: str
    folder: Path
    benchmark: str
    records: list[Record]
    environment: dict[str, Any] | None
    config: str | None
    problems: list[str] = field(default_factory=list)

    @property
    def measured(self) -> str:
        """When it was measured, as the records say (UTC)."""
        times = sorted(str(record["measured_at"])[:16] for record in self.records if record.get("measured_at"))
        if not times:
            return "not recorded"
        first, last = (time.replace("T", " ") for time in (times[0], times[-1]))
        return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def find(given: Sequence[Path]) -> list[Result]:
    """Return every result in the folders given and their sub-folders, in that order, each once.

    Raises: ReportError for a folder that is not there, or in which nothing can be used.
    """
    results: list[Result] = []
    seen: set[Path] = set()
    names: dict[str, Path] = {}
    for folder in given:
        if not folder.is_dir():
            what = "is a file, but a folder of results is needed" if folder.exists() else "is not there"
            raise ReportError(f"{folder} {what}.")
        places = list(_places(folder))
        if not places:
            raise ReportError(
                f"{folder} holds no results: neither it nor a folder in it has a {RECORDS} or a {SUMMARY}. "
                f"Results are made by: mgpu bench --out {folder}"
            )
        base = _unique(_name(folder), folder.resolve(), names)
        for place in places:
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            inside = place.relative_to(folder).as_posix()
            results.append(_read_result(place, base if inside == "." else f"{base}/{inside}", suite=folder))
    usable = [result for result in results if result.records or not (result.folder / RECORDS).exists()]
    if not usable:
        raise ReportError(" ".join(f"{result.label}: {problem}" for result in results for problem in result.problems))
    return results


def _places(folder: Path, depth: int = 0) -> Iterator[Path]:
    if (folder / RECORDS).is_file() or (folder / SUMMARY).is_file():
        yield folder
    if depth < _DEEPEST:
        try:
            children = sorted(folder.iterdir())
        except OSError:
            # A folder which may not be looked into holds nothing that could be read.
            return
        for child in children:
            if child.is_dir() and not child.is_symlink() and not child.name.startswith((".", "_")):
                yield from _places(child, depth + 1)


def _name(folder: Path) -> str:
    """Return the folder as given where that is relative and below here, else its last part alone."""
    if folder.is_absolute() or ".." in folder.parts or not folder.parts:
        return without_names(folder.resolve().name) or "results"
    return folder.as_posix()


def _unique(name: str, place: Path, names: dict[str, Path]) -> str:
    candidate, number = name, 2
    while names.setdefault(candidate, place) != place:
        candidate, number = f"{name} ({number})", number + 1
    return candidate


def _read_result(folder: Path, label: str, suite: Path) -> Result:
    problems: list[str] = []
    rows = _read_records(folder / RECORDS, problems)
    kinds = list(dict.fromkeys(benchmark_of(row) for row in rows))
    if len(kinds) > 1:
        problems.append(f"{RECORDS} mixes the benchmarks {', '.join(kinds)}; only {kinds[0]} is shown.")
        rows = [row for row in rows if benchmark_of(row) == kinds[0]]
    types = sorted({str(row["device_type"]) for row in rows if row.get("device_type")})
    if len(types) > 1:
        problems.append(f"{RECORDS} holds runs on {' and on '.join(types)}: do not compare these with each other.")
    if not rows and (folder / RECORDS).is_file() and not problems:
        problems.append(f"{RECORDS} is empty; go on with mgpu bench --resume.")
    return Result(
        label=label,
        folder=folder,
        benchmark=kinds[0] if kinds else _benchmark_of(folder, suite),
        records=_latest(rows),
        environment=_read_environment(_nearest(folder, suite, ENVIRONMENT), problems),
        config=_read_text(_nearest(folder, suite, CONFIG), problems),
        problems=[without_names(problem) for problem in problems],
    )


def _benchmark_of(folder: Path, suite: Path) -> str:
    from mgpu_utils.benchmark import kinds

    return folder.name if folder != suite and folder.name in kinds.NAMES else COMPARISON


def _nearest(folder: Path, suite: Path, name: str) -> Path:
    """Return the file in the folder, or in the suite's folder around it: a suite may keep it once for all."""
    for place in (folder, folder.parent):
        if (place / name).is_file() or place == suite:
            return place / name
    return folder / name


def _read_records(path: Path, problems: list[str]) -> list[Record]:
    if not path.is_file():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror}).")
        return []
    rows: list[Record] = []
    newer, damaged, unusable = 0, [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                problems.append(f"The last line of {path.name} was torn by an interruption and is left out.")
            else:
                damaged.append(number)
            continue
        if isinstance(row, dict) and isinstance(row.get("format", 1), int) and row.get("format", 1) > FORMAT:
            newer += 1
            continue
        row = fill_in(row) if isinstance(row, dict) else row
        reason = _unusable(row)
        if reason:
            unusable.append(f"line {number} ({reason})")
        else:
            rows.append(row)
    if damaged:
        problems.append(
            f"{_lines(damaged)} of {path.name} {'is' if len(damaged) == 1 else 'are'} damaged and left out."
        )
    if newer:
        problems.append(
            f"{newer} record{'s were' if newer > 1 else ' was'} written in a newer format than this version reads "
            f"({FORMAT}); update mgpu-utils."
        )
    if unusable:
        shown = ", ".join(unusable[:3]) + (f" and {len(unusable) - 3} more" if len(unusable) > 3 else "")
        problems.append(f"Left out of {path.name}, because they cannot be used: {shown}.")
    return rows


def _unusable(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "not a record"
    comparison = benchmark_of(row) == COMPARISON
    needed = ["round", "status"]
    needed += (
        ["strategy", "model", "scaling", "world_size", "total_threads", "per_device_batch"] if comparison else ["key"]
    )
    if comparison and row.get("status") == "ok":
        needed += ["samples_per_second", "seconds"]
    missing = [name for name in needed if row.get(name) is None]
    if missing:
        return f"no {', '.join(missing)}"
    if row["status"] != "ok":
        return None
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}"
        if name in ("seconds", "samples_per_second") and not (isinstance(value, (int, float)) and value > 0):
            return f"{name} is {value!r}"
    return None


def _latest(rows: list[Record]) -> list[Record]:
    newest = {(key_of(row), row["round"]): row for row in rows}
    return list(newest.values())


def _read_environment(path: Path, problems: list[str]) -> dict[str, Any] | None:
    text = _read_text(path, problems)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        problems.append(f"{path.name} is damaged, so it is not known on what this was measured.")
        return None
    return found


def _read_text(path: Path, problems: list[str]) -> str | None:
    try:
        return without_names(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"There is no {path.name}.")
    except (OSError, UnicodeDecodeError):
        problems.append(f"{path.name} cannot be read.")
    return None


def _lines(numbers: list[int]) -> str:
    return f"Line {numbers[0]}" if len(numbers) == 1 else f"Lines {', '.join(map(str, numbers))}"
