"""The file of measured runs: one JSON object a line, safe against interruption, and what is still to do."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from mgpu_utils.benchmark.kinds import Item, Record
from mgpu_utils.benchmark.plan import DEFAULTS, Configuration

AnyItem = TypeVar("AnyItem", bound=Item)
_IDENTITY = tuple(Configuration.__dataclass_fields__)


def key_of(record: Record) -> str:
    """Return the key of what a record measured; records of training runs hold it in their fields as well."""
    if "key" in record:
        return str(record["key"])
    return "/".join(str(record.get(name, DEFAULTS.get(name))) for name in _IDENTITY)


def append(path: Path, record: Record) -> None:
    """Add one record and have it on the disk before returning. A torn line before it is removed first."""
    _cut_torn_line(path)
    with path.open("ab") as file:
        file.write(json.dumps(record, allow_nan=False).encode("utf-8") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[Record]:
    """Return all records in the order they were written.

    A last line torn by an interruption is left out. Raises: ValueError naming the line for any other damage.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(f"{path}: line {number} is damaged; remove that line, then go on with --resume.") from None
    return records


def latest(records: list[Record]) -> list[Record]:
    """Return one record a configuration and round: a run that was repeated replaces its earlier record."""
    newest: dict[tuple[str, int], Record] = {}
    for record in records:
        newest[(key_of(record), record["round"])] = record
    return list(newest.values())


def remaining(runs: Sequence[tuple[int, AnyItem]], records: list[Record]) -> list[tuple[int, AnyItem]]:
    """Return the runs, in order, of which no record says that they went well."""
    done = {(key_of(record), record["round"]) for record in latest(records) if record["status"] == "ok"}
    return [(number, item) for number, item in runs if (item.key, number) not in done]


def _cut_torn_line(path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb+") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
