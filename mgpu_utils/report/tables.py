"""Tables of a page: cells as text, numbers told from words, units in the header, intervals beside their median."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mgpu_utils.timing import interval_words

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = re.compile(r"^-?[\d,]*\.?\d+(e[-+]?\d+)?\s?%?x?$")
_WITH_INTERVAL = re.compile(r"^(.*?) (\[.*\])$")
_UNITS = (
    ("_per_second", "/s"),
    ("_seconds", " (s)"),
    ("_ms", " (ms)"),
    ("_us", " (us)"),
    ("_gb_s", " (GB/s)"),
    ("_gib", " (GiB)"),
    ("_mib", " (MiB)"),
    # As PyTorch calls it; it counts in MiB.
    ("_cap_mb", " cap (MiB)"),
    ("_bytes", " (bytes)"),
)
_COUNTS = ("rounds", "runs")
_SHARES = ("efficiency", "share", "fraction", "overlap")
_SHARES_AT_THE_END = ("error", "miss", "overhead", "of_best")
# What the columns of a comparison are called where nothing around them explains it.
_IN_FULL = {
    "speedup": "speed-up over single",
    "same threads": "speed-up, same threads",
    "of limit": "share of the limit",
    "start-up s": "start-up (s)",
    "peak MiB each": "peak memory each (MiB)",
}


@dataclass(frozen=True)
class Cell:
    """What stands in a cell: the text, and the interval that is shown smaller beside it."""

    text: str
    spread: str = ""


@dataclass(frozen=True)
class Table:
    """A table ready to be shown. ``numeric`` says of each column whether it is right-aligned, ``spans`` over how many
    rows each first cell reaches (0: it is reached by one above)."""

    caption: str
    header: list[str]
    rows: list[list[Cell]]
    numeric: list[bool]
    spans: list[int]


def make_table(header: list[str], rows: list[list[str]], caption: str, *, merged: bool = False) -> Table:
    """Return a table of texts; a text like ``1.80 [1.71, 1.86]`` becomes a number with its interval.

    ``merged``: rows whose first text is empty belong to the last one that has a first text.
    """
    cells = [[_cell(text) for text in row] for row in rows]
    numeric = [_is_numeric([row[column] for row in cells]) for column in range(len(header))]
    spans = [1] * len(rows)
    if merged:
        starts = [at for at, row in enumerate(rows) if row[0]]
        spans = [0] * len(rows)
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            spans[start] = end - start
    return Table(caption, header, cells, numeric, spans)


def from_frame(frame: pd.DataFrame, caption: str) -> Table:
    """Return the texts of a frame that is formatted already, its index as the first columns."""
    plain = frame.reset_index() if any(name is not None for name in frame.index.names) else frame
    rows = [["" if value is None else str(value) for value in row] for row in plain.itertuples(index=False)]
    return make_table([_IN_FULL.get(str(name), str(name)) for name in plain.columns], rows, caption)


def from_summary(frame: pd.DataFrame, caption: str) -> Table:
    """Return a summary as it lies in ``summary.csv``: ``X``, ``X_low``, ``X_high`` become one column, and columns that
    hold the same in every row move into the caption. Times that are all below a second are shown in milliseconds."""
    frame = _in_milliseconds(frame)
    columns = [str(name) for name in frame.columns]
    ends = {
        f"{name}{end}" for name in columns for end in ("_low", "_high") if {f"{name}_low", f"{name}_high"} <= {*columns}
    }
    shown = [name for name in columns if name not in ends]
    records = frame.to_dict("records")
    texts = {name: [_with_interval(row, name) for row in records] for name in shown}
    same = [name for name in shown if len(records) > 1 and len(set(texts[name])) == 1 and not ends & {f"{name}_low"}]
    kept = [name for name in shown if name not in same] or shown
    alike = ", ".join(f"{_words(name)} {texts[name][0]}" for name in same if name not in kept and texts[name][0])
    caption = f"{caption} In every row: {alike}.".strip() if alike else caption
    return make_table(
        [_words(name) for name in kept], [[texts[name][at] for name in kept] for at in range(len(records))], caption
    )


def number(value: Any, name: str = "") -> str:
    """Return a number as a reader wants it: four digits, thousands told apart, shares as per cent."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if (any(word in name for word in _SHARES) and not name.endswith(_COUNTS)) or name.endswith(_SHARES_AT_THE_END):
        return f"{value:.0%}"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def spread_words(counts: Iterable[int]) -> str:
    """Return what the brackets beside medians of so many rounds hold."""
    several = sorted({count for count in counts if count > 1})
    words = " or ".join(dict.fromkeys(interval_words(count) for count in several))
    return f"Medians; in brackets: {words}." if words else "One round each: no interval."


def with_interval(median: float, low: float, high: float, form: str) -> str:
    """Return ``1.80 [1.71, 1.86]``; the median alone where there is no interval, nothing where there is no median."""
    if math.isnan(median):
        return ""
    spread = "" if math.isnan(low) else f" [{form.format(low)}, {form.format(high)}]"
    return form.format(median) + spread


def _with_interval(row: dict[Any, Any], name: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    text = number(row[name], name)
    if not text or low is None or high is None or math.isnan(low) or low == high:
        return text
    return f"{text} [{number(low, name)}, {number(high, name)}]"


def _in_milliseconds(frame: pd.DataFrame) -> pd.DataFrame:
    changed = frame.copy()
    for name in map(str, frame.columns):
        stem = name.removesuffix("_low").removesuffix("_high")
        if not stem.endswith("seconds") or stem not in frame:
            continue
        values = frame[[column for column in (stem, f"{stem}_low", f"{stem}_high") if column in frame]]
        if all(kind.kind in "fi" for kind in values.dtypes) and values.abs().max().max() < 1:
            changed[name] = frame[name] * 1e3
            in_ms = "time_ms" if stem == "seconds" else stem.removesuffix("seconds") + "ms"
            changed = changed.rename(columns={name: in_ms + name.removeprefix(stem)})
    return changed


def _words(name: str) -> str:
    for ending, unit in _UNITS:
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    name = "time (s)" if name == "seconds" else name
    return name.replace("_", " ")


def _cell(text: str) -> Cell:
    found = _WITH_INTERVAL.match(text)
    return Cell(found[1], found[2]) if found and _NUMBER.match(found[1]) else Cell(text)


def _is_numeric(cells: list[Cell]) -> bool:
    texts = [cell.text for cell in cells if cell.text not in ("", "failed")]
    return bool(texts) and all(_NUMBER.match(text) for text in texts)
