"""The breakdown's table, and the table in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.contenders import CONTENDERS
from mgpu_utils.benchmark.kinds import Record
from mgpu_utils.step_profile import COPIES, PARTS

if TYPE_CHECKING:
    import pandas as pd

# Parts that miss more of a plain step than this are said to.
TOLERANCE = 0.05
_FIELDS = (
    *("model", "strategy", "implementation", "device_type", "world_size", "per_device_batch", "global_batch"),
    *("threads_per_process", "oversubscribed"),
)
_ORDER = tuple(CONTENDERS)


def middle_mean(values: Sequence[float], by: Sequence[float] | None = None) -> float:
    """The mean over the middle half of `values`, sorted by size or by the numbers in `by`; NaN for none."""
    ranking = values if by is None else by
    order = sorted(range(len(values)), key=lambda i: ranking[i])
    cut = len(values) // 4
    kept = [values[i] for i in order[cut : len(values) - cut]]
    return fmean(kept) if kept else math.nan


def summarise(records: list[Record]) -> pd.DataFrame:
    """One row a configuration, times in seconds, a column for each part.

    Means over the middle half of the rounds, sorted by `step_seconds`; lowest and highest rounds stand beside what
    varies most. `overhead` is how much longer the profiled steps took, `missing_share` what of the plain step the parts
    do not make up (negative where they make up more). All NaN where every round failed.
    """
    import pandas as pd

    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(record["key"]), []).append(record)
    rows = sorted(map(_row, groups.values()), key=_position)
    return pd.DataFrame(rows)


def findings(table: pd.DataFrame) -> list[str]:
    """Where the time of each configuration goes, and whether its parts add up to a step without the profiler."""
    said = []
    for _, row in table.iterrows():
        if math.isnan(row["step_seconds"]):
            continue
        total = sum(row[f"{part}_seconds"] for part in PARTS)
        shares = {name: share / total for name, share in grouped(row).items()}
        parts = ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in shares.items() if share >= 0.005)
        who = f"{row['model']}, {called(row)}"
        said.append(
            f"{who}: a step takes {row['step_seconds'] * 1e3:.3g} ms. Of a profiled step: {parts}. {_adds_up(row)}"
        )
    return said


def grouped(row: Any) -> dict[str, float]:
    """The seconds of a row's parts under fewer names: what DataParallel's replicas compute is forward, too."""
    seconds = {part: float(row[f"{part}_seconds"]) for part in PARTS}
    copies = sum(seconds[part] for part in COPIES)
    return {
        "data": seconds["data"],
        "forward": seconds["forward"] + seconds["parallel_apply"],
        "backward": seconds["backward"],
        "optimizer": seconds["optimizer"],
        "copies between devices": copies,
        "exposed communication": seconds["exposed_communication"],
        "other": seconds["other"],
    }


def called(row: Any) -> str:
    """A configuration's name in figures and sentences."""
    label = CONTENDERS[row["strategy"]].label
    stand_in = " stand-in" if row["implementation"] != "torch" else ""
    marked = ", oversubscribed" if row["oversubscribed"] else ""
    return (
        f"{label}{stand_in}{marked}" if row["world_size"] == 1 else f"{label}{stand_in} on {row['world_size']}{marked}"
    )


def _adds_up(row: Any) -> str:
    missing, overhead = row["missing_share"], row["overhead"]
    slower = f"profiled steps took {abs(overhead):.1%} {'longer' if overhead >= 0 else 'less'}".replace("%", " %")
    if overhead < -TOLERANCE:
        # No profiler makes a step faster.
        slower += ", so the machine was not steady: measure more blocks"
    if abs(missing) <= TOLERANCE:
        return f"The parts add up to {1 - missing:.3f} of it ({slower})."
    share = f"{abs(missing):.1%}".replace("%", " %")
    if missing > 0:
        return f"The parts do not add up: {share} of the step is missing ({slower})."
    return f"The parts do not add up: they make up {share} more than the step ({slower})."


def _row(group: list[Record]) -> dict[str, Any]:
    first, ok = group[0], [record for record in group if record["status"] == "ok"]
    steps = [record["step_seconds"] for record in ok]

    def middle(values: Sequence[float]) -> float:
        return middle_mean(values, by=steps)

    step, profiled = middle(steps), middle([record["profiled_step_seconds"] for record in ok])
    parts = {part: middle([record["parts"][part] for record in ok]) for part in PARTS}
    return {
        **{name: first[name] for name in _FIELDS},
        "rounds": len(ok),
        "failed": len(group) - len(ok),
        "step_seconds": step,
        "step_seconds_low": min(steps, default=math.nan),
        "step_seconds_high": max(steps, default=math.nan),
        "profiled_step_seconds": profiled,
        "overhead": profiled / step - 1,
        **{f"{part}_seconds": seconds for part, seconds in parts.items()},
        "missing_share": 1 - sum(parts.values()) / step,
        "missing_share_low": min((record["missing_share"] for record in ok), default=math.nan),
        "missing_share_high": max((record["missing_share"] for record in ok), default=math.nan),
    }


def _position(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["model"], _ORDER.index(row["strategy"]), row["world_size"]
