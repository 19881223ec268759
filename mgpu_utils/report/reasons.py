"""Why published numbers and the reader's differ: only what the data of both sides shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mgpu_utils.benchmark.plan import STAND_IN
from mgpu_utils.report.environments import devices

Row = Mapping[str, Any]
_BATCH = re.compile(r"batch (\d+)")
_BACKENDS = ("nccl", "gloo", "mpi")


def reasons(points: Sequence[Row], rows: Sequence[Row], environment: Row | None) -> list[str]:
    """Return the reasons why the points of one source differ from the reader's rows of a comparison.

    A point is a row of `mgpu_utils.reference_points.load` with ``efficiency``: whether it gives one.
    """
    if all(point.get(name) is None for point in points for name in ("single", "data_parallel", "ddp")):
        words = _told(_note(point) for point in points)
        return [_hardware(points, rows, environment), f"it gives no number, only words: {words}"]
    found = [
        _hardware(points, rows, environment),
        _sizes(points, rows),
        _model(points, rows),
        _batch(points, rows),
        _backend(points, rows),
        _version(points, environment),
        _stand_in(points, rows),
        _spread(points, rows),
        *_warnings(points),
        *_baseline(points),
    ]
    return [reason for reason in found if reason]


def _hardware(points: Sequence[Row], rows: Sequence[Row], environment: Row | None) -> str:
    there = _told(point["hardware"] for point in points)
    names = (environment or {}).get("device_names") or []
    if any(str(name).lower() in there.lower() for name in names):
        return ""
    on_cpu = all(row.get("device_type") == "cpu" for row in rows)
    here = "processor cores" if on_cpu else devices(environment or {})
    return f"hardware: {here} here, {there} there"


def _sizes(points: Sequence[Row], rows: Sequence[Row]) -> str:
    here = _told(sorted({int(row["world_size"]) for row in rows}))
    there = _told(int(point["devices"]) for point in points)
    return "" if here == there else f"devices: {here} here, {there} there"


def _model(points: Sequence[Row], rows: Sequence[Row]) -> str:
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    workloads = [str(point["workload"]) for point in points]
    other = [name for name in workloads if not any(_letters(model) in _letters(name) for model in models)]
    there = _told(name.split(",")[0] for name in other)
    return f"model: {_told(models)} here, {there} there" if other else ""


def _batch(points: Sequence[Row], rows: Sequence[Row]) -> str:
    here = _told(int(row["per_device_batch"]) for row in rows if row.get("per_device_batch"))
    there = []
    for point in points:
        given = _BATCH.search(str(point["workload"]))
        if given is None:
            there.append("not stated")
        else:
            what = "" if "per GPU" in str(point["workload"]) else " (a device or in all: not stated)"
            there.append(given[1] + what)
    shown = _told(there)
    return "" if shown == here else f"batch a device: {here} here, {shown} there"


def _backend(points: Sequence[Row], rows: Sequence[Row]) -> str:
    here = _told(sorted({str(row["backend"]) for row in rows if row.get("backend")}))
    there = _told(name for point in points for name in _BACKENDS if name in _note(point).lower())
    return f"backend: {here} here, {there} there" if here and there and here != there else ""


def _version(points: Sequence[Row], environment: Row | None) -> str:
    here = str(((environment or {}).get("versions") or {}).get("torch") or "")
    versions = [re.search(r"PyTorch ([\d.]*\d)", f"{point['workload']} {_note(point)}") for point in points]
    there = _told(version[1] for version in versions if version)
    return f"PyTorch: {here} here, {there} there" if here and there and not here.startswith(there) else ""


def _stand_in(points: Sequence[Row], rows: Sequence[Row]) -> str:
    theirs = any(point.get("data_parallel") is not None for point in points)
    mine = any(row.get("implementation") == STAND_IN for row in rows)
    return "DataParallel: the threaded stand-in here, nn.DataParallel there" if theirs and mine else ""


def _spread(points: Sequence[Row], rows: Sequence[Row]) -> str:
    if not any(point["efficiency"] or _has_times(point) for point in points):
        return ""
    rounds = max(int(row.get("rounds") or 0) for row in rows)
    here = f"spread: {rounds} round{'s' if rounds != 1 else ''} here"
    notes = " ".join(_note(point) for point in points)
    if "single run" in notes:
        return f"{here}, a single run there"
    return "" if re.search(r"interval|deviation|±", notes) else f"{here}, none given there"


def _warnings(points: Sequence[Row]) -> list[str]:
    notes = " ".join(_note(point) for point in points)
    found = ["its numbers were read off a chart"] if "chart" in notes else []
    return found + (["its author warns that it is not accurate"] if "not accurate" in notes else [])


def _baseline(points: Sequence[Row]) -> list[str]:
    found = []
    for point in points:
        base = re.search(r"from (\d+) to", str(point["metric"]))
        if base:
            found.append(f"baseline: one device here, {base[1]} there")
        elif not point["efficiency"]:
            found.append("it gives no number for one device, so no efficiency")
            if _has_times(point):
                times = point["data_parallel"] / point["ddp"]
                found.append(f"{point['hardware']}: DataParallel took {times:.2f} times as long as DDP there")
    return list(dict.fromkeys(found))


def _has_times(point: Row) -> bool:
    given = point.get("data_parallel") is not None and point.get("ddp") is not None
    return given and str(point["metric"]).startswith("seconds")


def _note(point: Row) -> str:
    return str(point.get("note") or "")


def _told(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
