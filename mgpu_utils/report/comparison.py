"""Configurations that several folders measured, set side by side, each difference of circumstances named."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.benchmark.records import key_of
from mgpu_utils.report.environments import differences
from mgpu_utils.report.expansion import expand
from mgpu_utils.report.folders import Result
from mgpu_utils.report.keys import descriptions, loose_key, set_up_differently
from mgpu_utils.report.metrics import Metric, metric_of
from mgpu_utils.report.unpaired import unpaired_ratio
from mgpu_utils.timing import Interval, median_interval

_NOTHING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Side:
    """One configuration in one folder: its records, what they reached, and the ratio to the first folder's.

    ``environment`` and ``set_up`` name every difference to the first folder: machine and versions; implementation,
    backend, kind of device, steps.
    """

    result: Result
    records: list[Record]
    values: list[float]
    reached: Interval
    ratio: Interval
    environment: list[str]
    set_up: list[str]

    @property
    def differs(self) -> bool:
        """Whether anything but the folder differs."""
        return bool(self.environment or self.set_up)

    @property
    def failures(self) -> list[str]:
        """The reasons of the runs that failed, each once."""
        return list(dict.fromkeys(str(record.get("reason")) for record in self.records if record["status"] != "ok"))


@dataclass(frozen=True)
class Compared:
    """One configuration in all folders that measured it, the first one being what the others are compared with."""

    benchmark: str
    name: str
    metric: Metric
    sides: list[Side]


def compare(results: Sequence[Result], *, exactly: bool = False) -> list[Compared]:
    """Return every configuration found in more than one folder.

    ``exactly`` pairs only what was set up the same way; otherwise implementation, backend, kind of device and the
    number of steps may differ, and the labels say so.
    """
    found: dict[tuple[str, str], list[tuple[Result, list[Record]]]] = {}
    for result in results:
        for records in _groups(result):
            shared = key_of(records[0]) if exactly else loose_key(records[0])
            found.setdefault((result.benchmark, shared), []).append((result, records))
    names = descriptions(record for result in results for record in expand(result.records))
    metrics = {
        benchmark: metric_of(
            benchmark, [row for one in results if one.benchmark == benchmark for row in expand(one.records)]
        )
        for benchmark in dict.fromkeys(result.benchmark for result in results)
    }
    compared = []
    for (benchmark, _), places in found.items():
        metric = metrics[benchmark]
        if metric is not None and len({id(result) for result, _ in places}) > 1:
            name = names[loose_key(places[0][1][0])]
            compared.append(Compared(benchmark, name, metric, _sides(places, metric)))
    return sorted(compared, key=lambda one: (one.benchmark, _natural(one.name)))


def only_in(one: Result, other: Result, *, exactly: bool = False) -> list[str]:
    """Return the names of the configurations that ``one`` holds and ``other`` does not."""
    key = key_of if exactly else loose_key
    here, there = expand(one.records), {key(record) for record in expand(other.records)}
    names = descriptions(here)
    return list(dict.fromkeys(names[loose_key(record)] for record in here if key(record) not in there))


def _groups(result: Result) -> list[list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in expand(result.records):
        found.setdefault(key_of(record), []).append(record)
    return list(found.values())


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort numbers by their value, also where thousands are told apart: 8,192 before 65,536."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", plain)]


def _sides(places: list[tuple[Result, list[Record]]], metric: Metric) -> list[Side]:
    base, base_records = places[0]
    base_values = metric.values(base_records)
    sides = []
    for result, records in places:
        values = metric.values(records)
        first = result is base
        sides.append(
            Side(
                result=result,
                records=records,
                values=values,
                reached=median_interval(values) if values else _NOTHING,
                ratio=unpaired_ratio(values, base_values) if values and base_values and not first else _NOTHING,
                environment=[] if first else differences(base.environment, result.environment),
                set_up=set_up_differently(base_records[0], records[0]),
            )
        )
    return sides
