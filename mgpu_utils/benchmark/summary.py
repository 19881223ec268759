"""From records to a table: medians, intervals, and ratios paired by round."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.plan import Configuration
from mgpu_utils.benchmark.records import Record, key_of
from mgpu_utils.benchmark.settings import replace_text
from mgpu_utils.timing import Interval, median_interval

if TYPE_CHECKING:
    import pandas as pd

_NOTHING = Interval(math.nan, math.nan, math.nan)
_STRATEGY_ORDER = ("single", "data_parallel", "ddp", "independent")


def summarise(records: list[Record]) -> pd.DataFrame:
    """Return one row a configuration, for records of one kind of scaling.

    ``samples_per_second`` counts all ranks; ``..._per_rank`` is one process's share. ``speedup`` is over
    `single` with the threads of one process, ``speedup_equal_threads`` over `single` with the same threads
    in total, ``efficiency`` is speedup over the number of devices, ``limit_share`` the share of what
    `independent` reaches. Every ratio is taken within a round, then the median and 95 % interval over
    rounds; NaN where there is no pair.

    Raises: ValueError for no records, or weak and strong scaling mixed: their batches differ, so rows of
    the two must not be compared.
    """
    import pandas as pd

    kinds = sorted({record["scaling"] for record in records})
    if len(kinds) != 1:
        found = f"{' and '.join(kinds)} scaling together" if kinds else "no records"
        raise ValueError(f"A table holds one kind of scaling, but got {found}: pass the records of one kind.")
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    rows = [_row(group, list(groups.values())) for group in groups.values()]
    rows.sort(key=_position)
    return pd.DataFrame(rows)


def summarise_each(records: list[Record]) -> dict[str, pd.DataFrame]:
    """Return one table for each kind of scaling that was measured, weak before strong."""
    kinds = [kind for kind in ("weak", "strong") if any(record["scaling"] == kind for record in records)]
    return {kind: summarise([record for record in records if record["scaling"] == kind]) for kind in kinds}


def write_csv(tables: dict[str, pd.DataFrame], path: Path) -> None:
    """Write the tables below one another; the first column says which kind of scaling a row belongs to."""
    import pandas as pd

    table = pd.concat(tables.values(), ignore_index=True) if tables else pd.DataFrame()
    replace_text(path, table.to_csv(index=False, float_format="%.6g"))


def paired(records: list[Record], base: list[Record]) -> Interval:
    """Return median and 95 % interval of throughput over ``base``'s, each ratio taken within one round."""
    other = {record["round"]: record["samples_per_second"] for record in _measured(base)}
    ratios = [
        record["samples_per_second"] / other[record["round"]]
        for record in _measured(records)
        if record["round"] in other
    ]
    return median_interval(ratios) if ratios else _NOTHING


def _measured(records: list[Record]) -> list[Record]:
    return [record for record in records if record["status"] == "ok"]


def _row(group: list[Record], groups: list[list[Record]]) -> dict[str, Any]:
    first, ok = group[0], _measured(group)

    def find(matches: Callable[[Record], bool]) -> list[Record]:
        alike = (other for other in groups if other[0]["model"] == first["model"] and matches(other[0]))
        return min(alike, key=lambda other: int(other[0]["total_threads"]), default=[])

    single = find(lambda other: other["strategy"] == "single")
    threads = first["total_threads"]
    same_threads = find(lambda other: other["strategy"] == "single" and other["total_threads"] == threads)
    limit = find(lambda other: other["strategy"] == "independent" and other["total_threads"] == threads)
    devices = threads // single[0]["total_threads"] if single else first["world_size"]
    speedup = paired(ok, single)
    row: dict[str, Any] = {"scaling": first["scaling"]}
    row |= {name: first[name] for name in Configuration.__dataclass_fields__ if name != "scaling"}
    row |= {
        "steps_per_epoch": first.get("steps_per_epoch"),
        "rounds": len(ok),
        "failed": len(group) - len(ok),
        **_columns("samples_per_second", _interval(ok, "samples_per_second")),
        "samples_per_second_per_rank": _interval(ok, "samples_per_second_per_rank").median,
        **_columns("speedup", speedup),
        **_columns("speedup_equal_threads", paired(ok, same_threads)),
        **_columns("efficiency", Interval(*(value / devices for value in speedup))),
        **_columns("limit_share", paired(ok, limit)),
        "startup_seconds": _interval(ok, "startup_seconds").median,
    }
    return row


def _interval(records: list[Record], field: str) -> Interval:
    values = [record[field] for record in records if record.get(field) is not None]
    return median_interval(values) if values else _NOTHING


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.median, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _position(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["model"], row["world_size"], _STRATEGY_ORDER.index(row["strategy"]), row["total_threads"]
