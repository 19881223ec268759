"""The one number by which results of a benchmark are compared, and whether more of it is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.report.keys import find_kind

# The first of these that every record holds is compared, where the benchmark itself names none.
_KNOWN = ("samples_per_second", "step_seconds", "seconds")
_MORE_IS_BETTER = ("per_second", "bandwidth", "throughput", "speedup", "efficiency")


@dataclass(frozen=True)
class Metric:
    """A field of a record that is compared; ``higher_is_better`` says which direction is progress."""

    field: str
    higher_is_better: bool

    @property
    def label(self) -> str:
        """What a table calls it, unit included."""
        if self.field == "samples_per_second":
            return "samples/s"
        return self.field.replace("_per_second", "/s").replace("_", " ")

    def values(self, records: Sequence[Record]) -> list[float]:
        """Return the values of the rounds that went well."""
        return [float(record[self.field]) for record in records if record["status"] == "ok" and self.field in record]

    def speed(self, ratio: float) -> float:
        """Turn a ratio of this metric into one of speeds: more than 1 is better."""
        return ratio if self.higher_is_better else 1 / ratio


def metric_of(benchmark: str, records: Sequence[Record]) -> Metric | None:
    """Return what to compare; None where no number is held by all records that went well.

    A `Kind` may name it: ``metric`` (a field of its records) and ``higher_is_better``.
    """
    ok = [record for record in records if record["status"] == "ok"]
    if not ok:
        return None
    kind = find_kind(benchmark)
    named, direction = getattr(kind, "metric", None), getattr(kind, "higher_is_better", None)
    for field in (named, *_KNOWN):
        if field and all(_is_positive(record.get(field)) for record in ok):
            better = direction if field == named and direction is not None else _more_is_better(field)
            return Metric(field, better)
    return None


def _more_is_better(field: str) -> bool:
    return any(word in field for word in _MORE_IS_BETTER)


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
