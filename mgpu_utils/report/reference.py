"""Published results beside the reader's own, with the reasons why they differ, read from both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.plan import STAND_IN
from mgpu_utils.report.environments import devices
from mgpu_utils.report.reasons import reasons
from mgpu_utils.report.tables import Cell
from mgpu_utils.timing import interval_words

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One measured efficiency: on which hardware, of what, on how many devices."""

    hardware: str
    workload: str
    devices: int
    data_parallel: Cell
    ddp: Cell


@dataclass(frozen=True)
class Group:
    """The points of one source, its address where it has one, and why they differ from the reader's.

    ``own`` marks the reader's rows; their ``why`` says what to know when reading them.
    """

    who: str
    url: str
    points: list[Point]
    why: list[str]
    own: bool = False


def beside(summary: pd.DataFrame, environment: Mapping[str, Any] | None, published: pd.DataFrame) -> list[Group]:
    """Return the reader's rows of DataParallel and DDP, then of each published series the point of most alike size.

    ``summary`` is a comparison's; ``published`` what `mgpu_utils.reference_points.load` gives. Efficiency is the
    speed on N devices over N times that of one. Nothing where the summary holds no such rows.
    """
    rows = _own_rows(summary)
    if not rows:
        return []
    largest = max(int(row["world_size"]) for row in rows)
    found = [_own_group(rows, environment)]
    for source, theirs in published.groupby("source", sort=False):
        closest = [
            min(
                (_plain(row) for row in series.to_dict("records")),
                key=lambda row: abs(math.log(float(row["devices"]) / largest)),
            )
            for _, series in theirs.groupby(["workload", "hardware"], sort=False)
        ]
        first = closest[0]
        found.append(
            Group(
                who=f"{source} ({int(first['year'])})",
                url=str(first.get("url") or ""),
                points=[_published_point(point) for point in closest],
                why=reasons([point | {"efficiency": _known(point)} for point in closest], rows, environment),
            )
        )
    return found


def efficiency(point: Mapping[str, Any], strategy: str) -> float | None:
    """Return a published efficiency, or None where the point cannot give one.

    A metric "per GPU" is already a device's share, "efficiency" is what it says, seconds fall with speed, anything
    else counts all devices together.
    """
    value, single, metric = point.get(strategy), point.get("single"), str(point["metric"])
    if value is None or "efficiency" in metric:
        return value
    if single is None:
        return None
    if "per GPU" in metric:
        return float(value / single)
    speedup = single / value if metric.startswith("seconds") else value / single
    return float(speedup / point["devices"])


def _own_rows(summary: pd.DataFrame) -> list[Row]:
    if not {"strategy", "world_size", "efficiency", "model"} <= {*summary.columns}:
        return []
    rows = [_plain(row) for row in summary.to_dict("records")]
    return [
        row
        for row in rows
        if row["strategy"] in ("data_parallel", "ddp")
        and row["world_size"] > 1
        and row["efficiency"] is not None
        and row.get("precision", "float32") == "float32"
        and row.get("accumulation", 1) == 1
    ]


def _own_group(rows: list[Row], environment: Mapping[str, Any] | None) -> Group:
    together: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        together.setdefault((row["model"], row.get("scaling"), row["world_size"]), []).append(row)
    counts = sorted({int(row.get("rounds") or 0) for row in rows})
    notes = [f"in brackets: {' or '.join(dict.fromkeys(map(interval_words, counts)))}"]
    limits = [row["limit_share"] for row in rows if row["strategy"] == "ddp" and row.get("limit_share") is not None]
    if limits:
        share = " to ".join(dict.fromkeys(f"{value:.0%}" for value in (min(limits), max(limits))))
        notes.append(f"DDP reached {share} of this machine's limit (N independent jobs at once)")
    if any(row.get("implementation") == STAND_IN for row in rows):
        notes.append("DataParallel is the threaded stand-in")
    points = [_own_point(group, environment) for group in together.values()]
    return Group(who="this result", url="", points=points, why=notes, own=True)


def _own_point(group: list[Row], environment: Mapping[str, Any] | None) -> Point:
    first = group[0]
    by_name = {row["strategy"]: row for row in group}
    threads = first.get("threads_per_process")
    on_cpu = first.get("device_type") == "cpu"
    each = f"{threads} thread{'s' if threads != 1 else ''} a device" if on_cpu and threads else ""
    return Point(
        hardware=", ".join(part for part in (devices(environment) if environment else "", each) if part),
        workload=f"{first['model']}, {first.get('scaling')} scaling, batch {first.get('per_device_batch')} a device",
        devices=int(first["world_size"]),
        data_parallel=_own_efficiency(by_name.get("data_parallel")),
        ddp=_own_efficiency(by_name.get("ddp")),
    )


def _published_point(point: Row) -> Point:
    return Point(
        hardware=str(point["hardware"]),
        workload=str(point["workload"]),
        devices=int(point["devices"]),
        data_parallel=_percent(efficiency(point, "data_parallel")),
        ddp=_percent(efficiency(point, "ddp")),
    )


def _known(point: Row) -> bool:
    return any(efficiency(point, name) is not None for name in ("data_parallel", "ddp"))


def _own_efficiency(row: Row | None) -> Cell:
    if row is None:
        return _percent(None)
    ends = [row.get(f"efficiency_{end}") for end in ("low", "high")]
    spread = "" if None in ends else f"[{ends[0]:.0%}, {ends[1]:.0%}]"
    return Cell(f"{row['efficiency']:.0%}", spread)


def _percent(value: float | None) -> Cell:
    return Cell("not given" if value is None else f"{value:.0%}")


def _plain(row: Mapping[Any, Any]) -> Row:
    """Return a row with None for what a frame holds as missing."""
    import pandas as pd

    return {str(name): None if pd.isna(value) else value for name, value in row.items()}
