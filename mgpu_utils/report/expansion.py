"""Records that hold one measurement for each of several sizes, taken apart so that each can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.benchmark.records import key_of


def expand(records: Iterable[Record]) -> list[Record]:
    """Return one record for each message size of those that hold ``points``, and the others as they are.

    A failed run stands for all of its ``sizes``: each of them went wrong.
    """
    return [part for record in records for part in _parts(record)]


def _parts(record: Record) -> list[Record]:
    points = record.get("points")
    if record["status"] != "ok" and isinstance(record.get("sizes"), list):
        points = [{"bytes": size} for size in record["sizes"]]
    if not isinstance(points, list) or not all(isinstance(point, dict) and "bytes" in point for point in points):
        return [record]
    shared = {name: value for name, value in record.items() if name != "points"}
    return [
        shared | point | {"key": f"{key_of(record)}/{point['bytes']}", "part": f"{point['bytes']:,} bytes"}
        for point in points
    ]
