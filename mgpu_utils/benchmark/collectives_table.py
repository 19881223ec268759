"""The measured collectives as a table with the fitted line beside them, and in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu_utils.benchmark.collective_fit import Fit, find_bend, fit
from mgpu_utils.benchmark.statistics import NOTHING
from mgpu_utils.timing import Interval, median_interval

if TYPE_CHECKING:
    import pandas as pd

    from mgpu_utils.benchmark.kinds import Record

_FIELDS = ["collective", "world_size", "device_type", "backend", "dtype", "in_place", "calls"]
_FIELDS += ["threads_per_process", "oversubscribed"]
_NAN = Fit(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan, 0)
# A miss of the line that is worth a sentence.
_MISS = 0.2


def summarise(records: Sequence[Record]) -> pd.DataFrame:
    """Return one row a collective, world size and message size, with the line of its collective in every row.

    Columns: the run's settings; `bytes`, `rounds`, `failed`, `repeats` (in all rounds); `seconds` with its interval
    over rounds; `algbw_gb_s` and `busbw_gb_s` (10**9 bytes a second); of the fitted line `latency_us`,
    `bandwidth_gb_s` (algorithm bandwidth) with their standard errors, `half_bandwidth_bytes`, `line_seconds`,
    `line_miss` (measured / line - 1), `line_median_error`, `line_worst_error`, `line_worst_bytes`; `barrier_us`. Where
    the data ask for a line with a bend: `bend_bytes`, `bend_bandwidth_gb_s` up to it, `beyond_bandwidth_gb_s` for the
    bytes beyond it, `bend_median_error`, `bend_worst_error`; else NaN.
    """
    import pandas as pd

    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(record["key"]), []).append(record)
    rows = [row for group in groups.values() for row in _rows(group)]
    rows.sort(key=lambda row: (row["world_size"], _position(row["collective"]), row["bytes"]))
    return pd.DataFrame(rows)


def lines(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a collective and world size: latency, bandwidth and errors of its line, and how well it fits."""
    columns = ["collective", "world_size", "latency_us", "latency_error_us", "bandwidth_gb_s", "bandwidth_error_gb_s"]
    columns += ["half_bandwidth_bytes", "line_median_error", "line_worst_error", "line_worst_bytes", "barrier_us"]
    return table.drop_duplicates(["collective", "world_size"])[columns].reset_index(drop=True)


def fit_of(table: pd.DataFrame, collective: str, world_size: int) -> Fit:
    """Return the line through the measured points of one collective.

    Raises: ValueError when it was not measured on so many ranks, naming what was.
    """
    rows = table[(table["collective"] == collective) & (table["world_size"] == world_size)].dropna(subset=["seconds"])
    if rows.empty:
        measured = table.dropna(subset=["seconds"])[["collective", "world_size"]].drop_duplicates().itertuples()
        there = ", ".join(f"{row.collective} on {row.world_size}" for row in measured) or "nothing"
        raise ValueError(f"{collective} was not measured on {world_size} ranks; there is {there}.")
    return fit([{"bytes": row.bytes, "seconds": row.seconds} for row in rows.itertuples()])


def shares(table: pd.DataFrame, sizes: Mapping[str, int], collective: str = "all_reduce") -> pd.DataFrame:
    """Return what the line says of messages of these `sizes` (bytes, by name), on every measured world size.

    `latency_share` is the part of the time that is latency. `line_miss` is measured / line - 1 at the measured size
    nearest to the message, `nearest_bytes`: how far to trust the row.
    """
    import pandas as pd

    rows = []
    measured = table[table["collective"] == collective].dropna(subset=["seconds"])
    for world_size, points in measured.groupby("world_size"):
        line = fit_of(table, collective, int(str(world_size)))
        for name, size in sizes.items():
            nearest = points.iloc[int((points["bytes"] / size).map(math.log).abs().to_numpy().argmin())]
            rows.append(
                {
                    "message": name,
                    "world_size": world_size,
                    "bytes": size,
                    "latency_ms": line.latency * 1e3,
                    "transfer_ms": size / line.bandwidth * 1e3,
                    "latency_share": line.latency_share(size),
                    "nearest_bytes": nearest["bytes"],
                    "line_miss": nearest["line_miss"],
                }
            )
    return pd.DataFrame(rows)


def landmarks() -> dict[str, int]:
    """Return two messages worth a look, in bytes: all gradients of the digits network, and a full bucket of DDP.

    Source of the bucket's 25 MiB:
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    """
    from mgpu_utils.models import build

    gradients = sum(parameter.nbytes for parameter in build("digits_cnn").parameters())
    return {"gradients of the digits network": gradients, "a full bucket of DDP": 25 * 2**20}


def findings(table: pd.DataFrame) -> list[str]:
    """Return one sentence or two for each collective on each world size, then the barrier's latency."""
    said = []
    for _, rows in table.groupby(["world_size", "collective"], sort=False):
        measured = rows.dropna(subset=["seconds"])
        if measured.empty:
            continue
        said.append(" ".join(_sentences(measured)))
    for world_size, rows in table.dropna(subset=["barrier_us"]).groupby("world_size"):
        said.append(
            f"A barrier of {world_size} ranks, which sends no data, takes {_number(rows['barrier_us'].median())} us."
        )
    if "oversubscribed" in table and table["oversubscribed"].any():
        said.append("Worlds with more threads than cores are oversubscribed: their times say nothing about the links.")
    return said


def _rows(group: list[Record]) -> Iterator[dict[str, Any]]:
    first, ok = group[0], [record for record in group if record["status"] == "ok"]
    by_size = {
        size: [point for record in ok for point in record["points"] if point["bytes"] == size]
        for size in first["sizes"]
    }
    times = {size: _interval([point["seconds"] for point in points]) for size, points in by_size.items()}
    known = [{"bytes": size, "seconds": time.median} for size, time in times.items() if not math.isnan(time.median)]
    line = fit(known) if len(known) > 1 else _NAN
    bend = find_bend(known) if len(known) > 1 else None
    bent = {
        "bend_bytes": bend.bytes if bend else math.nan,
        "bend_bandwidth_gb_s": bend.bandwidth / 1e9 if bend else math.nan,
        "beyond_bandwidth_gb_s": bend.bandwidth_beyond / 1e9 if bend else math.nan,
        "bend_median_error": bend.median_error if bend else math.nan,
        "bend_worst_error": bend.worst_error if bend else math.nan,
    }
    barrier = _interval([record["barrier"]["seconds"] for record in ok])
    for size, time in times.items():
        points = by_size[size]
        expected = line.seconds(size)
        yield {name: first[name] for name in _FIELDS} | {
            "bytes": size,
            "rounds": len(points),
            "failed": len(group) - len(ok),
            "repeats": sum(point["repeats"] for point in points),
            "seconds": time.median,
            "seconds_low": time.low,
            "seconds_high": time.high,
            "algbw_gb_s": size / time.median / 1e9,
            # The factor between the two bandwidths is the same in every point.
            "busbw_gb_s": size / time.median / 1e9 * (points[0]["busbw"] / points[0]["algbw"] if points else math.nan),
            "latency_us": line.latency * 1e6,
            "latency_error_us": line.latency_error * 1e6,
            "bandwidth_gb_s": line.bandwidth / 1e9,
            "bandwidth_error_gb_s": line.bandwidth_error / 1e9,
            "half_bandwidth_bytes": line.half_bandwidth_bytes,
            "line_seconds": expected,
            "line_miss": time.median / expected - 1,
            "line_median_error": line.median_error,
            "line_worst_error": line.worst_error,
            "line_worst_bytes": line.worst_bytes or math.nan,
            **bent,
            "barrier_us": barrier.median * 1e6,
        }


def _interval(values: Sequence[float]) -> Interval:
    return median_interval(values) if values else NOTHING


def _position(collective: str) -> int:
    from mgpu_utils.benchmark.collectives import BUS_FACTORS

    return [str(name) for name in BUS_FACTORS].index(collective)


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    first = rows.iloc[0]
    where = f"{first['collective']} on {first['world_size']} ranks over {first['backend']}"
    latency = _with_error(first["latency_us"], first["latency_error_us"], "us")
    if math.isinf(first["bandwidth_gb_s"]):
        yield f"{where}: {latency} at every size: the messages are too small to show a bandwidth."
    else:
        bandwidth = _with_error(first["bandwidth_gb_s"], first["bandwidth_error_gb_s"], "GB/s")
        yield f"{where}: {latency} latency, then {bandwidth}."
        yield from _where_bandwidth_takes_over(first["half_bandwidth_bytes"], rows)
    best = rows.iloc[int(rows["busbw_gb_s"].to_numpy().argmax())]
    yield f"The best measured bus bandwidth is {best['busbw_gb_s']:.3g} GB/s, at {size_words(best['bytes'])}."
    missed = "; ".join(_missed(rows))
    yield (
        f"Half of the sizes lie within {_percent(first['line_median_error'])} of the line, and "
        + (f"it misses by more than {_percent(_MISS)} at {missed}." if missed else f"all within {_percent(_MISS)}.")
    )
    if not math.isnan(first["bend_bytes"]):
        yield (
            f"A line with a bend at {size_words(first['bend_bytes'])} fits better (half within "
            f"{_percent(first['bend_median_error'])}): {first['bend_bandwidth_gb_s']:.3g} GB/s up to there, "
            f"{first['beyond_bandwidth_gb_s']:.3g} GB/s for the bytes beyond."
        )
    if first["rounds"] == 1:
        yield "One round only: how much these numbers vary is not known."


def _where_bandwidth_takes_over(half: float, rows: pd.DataFrame) -> Iterator[str]:
    if half < rows["bytes"].min():
        yield "Bandwidth decides at every measured size."
    elif half > rows["bytes"].max():
        yield "Latency decides at every measured size."
    else:
        yield f"Up to about {size_words(half)} latency takes the larger part of the time, above it bandwidth does."


def _missed(rows: pd.DataFrame) -> Iterator[str]:
    """Stretches of neighbouring sizes that the line misses to the same side."""
    stretch: list[tuple[int, float]] = []

    def words() -> str:
        sizes = [size_words(size) for size, _ in (stretch[0], stretch[-1])]
        between = sizes[0] if len(stretch) == 1 else f"{sizes[0]} to {sizes[1]}"
        worst = max((miss for _, miss in stretch), key=abs)
        most = "up to " if len(stretch) > 1 else ""
        return f"{between} ({most}{_percent(abs(worst))} {'slower' if worst > 0 else 'faster'} than the line)"

    for size, miss in [*zip(rows["bytes"], rows["line_miss"], strict=True), (0, 0.0)]:
        if stretch and (abs(miss) <= _MISS or (miss > 0) != (stretch[-1][1] > 0)):
            yield words()
            stretch = []
        if abs(miss) > _MISS:
            stretch.append((int(size), float(miss)))


def size_words(size: float) -> str:
    """A number of bytes with a binary unit: 64 KiB, 1.5 MiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _with_error(value: float, error: float, unit: str) -> str:
    return f"{_number(value)} {unit}" + ("" if math.isnan(error) else f" (± {_number(error, 2)})")


def _number(value: float, digits: int = 3) -> str:
    """So many significant digits, never as a power of ten below a million."""
    return f"{float(f'{value:.{digits}g}'):,g}"
