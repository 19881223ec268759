"""Numbers that others published, each with its source, to stand beside a reader's own.

They lie in ``reference_points.csv`` as they were published; nothing is converted, so a number has the unit of its
row's ``metric``.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("source", "url", "hardware", "workload", "metric", "note")
COUNTS = ("year", "devices")
VALUES = ("single", "data_parallel", "ddp")
V100_SOURCE = "pytorch/pytorch, benchmarks/distributed/ddp/README.md"


def load() -> pd.DataFrame:
    """Return every published number, one row a source, workload and number of devices.

    Columns: ``source``, ``url``, ``year``, ``hardware``, ``workload``, ``metric`` (what the values count, and of what),
    ``devices``, ``single``, ``data_parallel``, ``ddp`` (NaN where the source gives none), ``note``.

    Raises: ValueError for a file whose rows have no source.
    """
    import pandas as pd

    path = resources.files("mgpu_utils") / "reference_points.csv"
    with path.open(encoding="utf-8") as file:
        types = dict.fromkeys(TEXTS, "string") | dict.fromkeys(COUNTS, "int64") | dict.fromkeys(VALUES, "float64")
        table = pd.read_csv(file, dtype=types)
    nameless = table.index[table["source"].isna() | table["url"].isna()]
    if len(nameless):
        raise ValueError(f"reference_points.csv: row {nameless[0] + 1} has no source; a number without one is no fact.")
    return table[["source", "url", "year", "hardware", "workload", "metric", "devices", *VALUES, "note"]]


def v100_table() -> pd.DataFrame:
    """Return the published V100 runs of DDP: network, batch, devices, single and ddp in samples/s per GPU.

    ``single`` is one GPU without DDP, the same in every row of a network; ``ddp`` on one device is what DDP costs by
    itself. Eight GPUs are one machine, 16 are two.
    """
    table = load()
    rows = table[table["source"] == V100_SOURCE]
    network = rows["workload"].str.split(", batch ").str[0].astype(str)
    batch = rows["workload"].str.extract(r"batch (\d+)")[0].astype(int)
    made = rows.assign(network=network, batch=batch)
    return made[["network", "batch", "devices", "single", "ddp"]].reset_index(drop=True)


def beside() -> pd.DataFrame:
    """Return the published numbers other than the V100 table, to be read beside one's own."""
    table = load()
    rows = table[table["source"] != V100_SOURCE].drop(columns=["url"])
    return rows.astype({name: object for name in VALUES}).fillna("").reset_index(drop=True)
