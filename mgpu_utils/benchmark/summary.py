"""From records to a table: medians, intervals, ratios paired by round, outlier rounds and disturbed runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark import machine_load
from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.plan import DEFAULTS, Configuration
from mgpu_utils.benchmark.records import Record
from mgpu_utils.benchmark.statistics import NOTHING, outliers, paired_ratio, rounds_to_text
from mgpu_utils.timing import Interval, median_interval

if TYPE_CHECKING:
    import pandas as pd

# What two rows must have in common to be compared with each other, for each kind of scaling.
_ALIKE = ("model", "device_type", "precision", "accumulation", "num_workers", "load_ms")
MUST_MATCH: Mapping[str, tuple[str, ...]] = {
    "weak": (*_ALIKE, "per_device_batch"),
    "strong": (*_ALIKE, "global_batch"),
}

_SPEEDUP = ("speedup", "speedup_low", "speedup_high")


def summarise(records: list[Record]) -> pd.DataFrame:
    """Return one row a configuration, for records of one kind of scaling.

    ``samples_per_second`` counts all ranks; ``..._per_rank`` is one process's share. ``speedup`` is over
    `single` with the threads of one process, ``speedup_equal_threads`` over `single` with the same threads
    in total, ``efficiency`` is speedup over the number of devices, ``limit_share`` the share of what
    `independent` reaches. ``peak_memory`` lists MiB of each process, or of
    each GPU. Every ratio is taken within a round and between rows that have `MUST_MATCH` in common, then
    the median and 95 % interval over rounds; NaN where there is no pair.

    ``..._rounds`` says how many rounds a ratio has, ``by_round`` holds samples per second of each round (JSON),
    ``outlier_rounds`` names the rounds far from the others (counted from 1), which stay in all numbers.
    ``disturbed_runs`` counts runs beside other work, ``unsteady_runs`` those still speeding up when measured.

    Raises: ValueError for no records, a strategy that is not known, or weak and strong scaling mixed: their batches
    differ, so rows of the two must not be compared.
    """
    import pandas as pd

    kinds = sorted({record["scaling"] for record in records})
    if len(kinds) != 1:
        found = f"{' and '.join(kinds)} scaling together" if kinds else "no records"
        raise ValueError(f"A table holds one kind of scaling, but got {found}: pass the records of one kind.")
    unknown = sorted({str(record["strategy"]) for record in records} - set(CONTENDERS))
    if unknown:
        raise ValueError(f"The records hold strategy {unknown[0]}, but this version knows {', '.join(CONTENDERS)}.")
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(_configuration(record).values()), []).append(record)
    rows = [_row(group, list(groups.values())) for group in groups.values()]
    rows.sort(key=_position)
    return pd.DataFrame(rows)


def summarise_each(records: list[Record]) -> dict[str, pd.DataFrame]:
    """Return one table for each kind of scaling that was measured, weak before strong."""
    kinds = [kind for kind in ("weak", "strong") if any(record["scaling"] == kind for record in records)]
    return {kind: summarise([record for record in records if record["scaling"] == kind]) for kind in kinds}


def by_round(records: list[Record]) -> dict[int, float]:
    """Return samples per second by round, of the runs that went well."""
    return {record["round"]: record["samples_per_second"] for record in _measured(records)}


def _measured(records: list[Record]) -> list[Record]:
    return [record for record in records if record["status"] == "ok"]


def _configuration(record: Record) -> dict[str, Any]:
    """The fields of its configuration; records of earlier versions lack some, which then had their defaults."""
    return {name: record.get(name, DEFAULTS.get(name)) for name in Configuration.__dataclass_fields__}


def _row(group: list[Record], groups: list[list[Record]]) -> dict[str, Any]:
    first, ok = _configuration(group[0]), _measured(group)
    must_match = MUST_MATCH[first["scaling"]]

    def find(matches: Callable[[Record], bool]) -> list[Record]:
        alike = []
        for other in groups:
            fields = _configuration(other[0])
            if all(fields[name] == first[name] for name in must_match) and matches(fields):
                alike.append(other)
        return min(alike, key=lambda other: int(other[0]["total_threads"]), default=[])

    threads = first["total_threads"]
    single = find(lambda other: CONTENDERS[other["strategy"]].on_one_device)
    same_threads = find(lambda other: CONTENDERS[other["strategy"]].on_one_device and other["total_threads"] == threads)
    limit = find(lambda other: CONTENDERS[other["strategy"]].is_limit and other["total_threads"] == threads)
    devices = threads // single[0]["total_threads"] if single else first["world_size"]
    values = by_round(ok)

    def ratio(name: str, base: list[Record]) -> dict[str, float]:
        under = by_round(base)
        return _columns(name, paired_ratio(values, under)) | {f"{name}_rounds": len(values.keys() & under.keys())}

    speedup = ratio("speedup", single)
    rounds = sorted(values)
    far = [rounds[at] + 1 for at in outliers([values[number] for number in rounds])]
    return {
        "scaling": first["scaling"],
        **{name: value for name, value in first.items() if name != "scaling"},
        "steps_per_epoch": group[0].get("steps_per_epoch"),
        "rounds": len(ok),
        "failed": len(group) - len(ok),
        **_columns("samples_per_second", _interval(ok, "samples_per_second")),
        "samples_per_second_per_rank": _interval(ok, "samples_per_second_per_rank").median,
        **speedup,
        **ratio("speedup_equal_threads", same_threads),
        **{
            name.replace("speedup", "efficiency"): value / devices
            for name, value in speedup.items()
            if name in _SPEEDUP
        },
        **ratio("limit_share", limit),
        "startup_seconds": _interval(ok, "startup_seconds").median,
        "peak_memory": " ".join(f"{size / 2**20:.0f}" for size in _peaks(ok)),
        "outlier_rounds": " ".join(map(str, far)),
        "disturbed_runs": sum(machine_load.note(record.get("machine")) is not None for record in ok),
        "unsteady_runs": sum(record.get("warmup_steady") is False for record in ok),
        "by_round": rounds_to_text(values),
    }


def _interval(records: list[Record], field: str) -> Interval:
    values = [record[field] for record in records if record.get(field) is not None]
    return median_interval(values) if values else NOTHING


def _peaks(records: list[Record]) -> list[float]:
    """Peak bytes of each process (CPU) or device, in rank order: the largest over the rounds."""
    runs = [[size for rank in record.get("peak_memory") or [] for size in rank.values()] for record in records]
    return [max(sizes) for sizes in zip(*(sizes for sizes in runs if sizes), strict=False)]


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.median, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _position(row: dict[str, Any]) -> tuple[Any, ...]:
    strategies = list(CONTENDERS)
    return (
        *(row["model"], row["precision"] != "float32", row["precision"], row["accumulation"], row["world_size"]),
        *(strategies.index(row["strategy"]), row["total_threads"]),
    )
