"""The model against the published V100 table: fitted to one network on 1 and 2 GPUs, asked about everything else.

Source of the table: https://github.com/pytorch/pytorch/blob/main/benchmarks/distributed/ddp/README.md (PyTorch 1.4,
whose buckets were filled in the order of registration).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgpu_utils import reference_points
from mgpu_utils.scaling.collective_model import Cluster, Link
from mgpu_utils.scaling.fit import DDPFit, Observation, fit_bandwidth, fit_own_cost
from mgpu_utils.scaling.hardware import preset
from mgpu_utils.scaling.step_time import DDPCost, Workload, network_workload

if TYPE_CHECKING:
    import pandas as pd

FITTED = "ResNet-50"
FITTED_DEVICES = (1, 2)
# The table cannot tell a slow link from compute that a collective slows down: with 1 the whole loss is the link's.
_INTERFERENCE = 1.0


def v100_workload(network: str, batch: int, single: float) -> Workload:
    """One V100's step: ``single`` in samples a second, without DDP."""
    return network_workload(network, batch, batch / single, rule="registered")


def fit_v100(table: pd.DataFrame, network: str = FITTED) -> DDPFit:
    """Fit DDP's own cost and the link to the rows of ``network`` on 1 and 2 GPUs.

    Latencies are those of the preset `dgx-1-v100`, and no machine sends more than its network cards can.
    Raises: ValueError for a network that the table does not hold.
    """
    rows = table[table["network"] == network].set_index("devices")
    if not set(FITTED_DEVICES) <= set(rows.index):
        raise ValueError(
            f"The table holds no {network!r} on 1 and 2 GPUs; it has {', '.join(table['network'].unique())}."
        )
    batch = int(rows["batch"].iloc[0])
    workload = v100_workload(network, batch, float(rows["single"].iloc[0]))
    own = fit_own_cost(workload, batch / float(rows["ddp"][1]))
    cost = DDPCost(own_per_byte=own, interference=_INTERFERENCE)
    known = preset("dgx-1-v100").cluster
    inside = Link(known.inside.latency, known.inside.bandwidth, known.inside.tree_latency)
    start = Cluster(inside, known.between, known.devices_per_machine, known.launch)
    return DDPFit(fit_bandwidth(workload, Observation(2, batch / float(rows["ddp"][2])), start, cost), cost)


def validate_v100(network: str = FITTED) -> pd.DataFrame:
    """Predict every row of the published table from ``network``'s 1- and 2-GPU rows; return both with their errors.

    Columns: network, devices, ``role`` (fitted or predicted), ``published`` and ``predicted`` in samples/s per GPU,
    ``error`` = predicted / published - 1; ``as_on_2`` and ``as_on_2_error`` take the fitted network's loss on 2 GPUs
    for all; ``own_2`` and ``own_2_error`` take each network's own published number on 2 GPUs, which the
    model never sees.
    """
    import pandas as pd

    table = reference_points.v100_table()
    fitted = fit_v100(table, network)
    base = table[table["network"] == network].set_index("devices")
    loss = float(base["ddp"][2] / base["single"][2])
    found = []
    for row in table.to_dict("records"):
        workload = v100_workload(row["network"], row["batch"], row["single"])
        own = table[(table["network"] == row["network"]) & (table["devices"] == 2)]["ddp"].iloc[0]
        known = row["network"] == network and row["devices"] in FITTED_DEVICES
        predicted = row["batch"] / fitted.predict(workload, row["devices"])
        others = {"predicted": predicted, "as_on_2": row["single"] * loss, "own_2": float(own)}
        found.append(
            {
                "network": row["network"],
                "devices": row["devices"],
                "role": "fitted" if known else "predicted",
                "single": row["single"],
                "published": row["ddp"],
                **others,
                "error": predicted / row["ddp"] - 1,
                **{f"{name}_error": others[name] / row["ddp"] - 1 for name in ("as_on_2", "own_2")},
            }
        )
    return pd.DataFrame(found)


def v100_findings(table: pd.DataFrame) -> list[str]:
    """Say how far predictions and the trivial baselines are off, on 4 to 16 GPUs."""
    rows = table[(table["role"] == "predicted") & (table["devices"] > 2)]
    said = []
    names = {
        "error": "the model",
        "as_on_2_error": "every network loses what the fitted one lost on 2 GPUs",
        "own_2_error": "each network's own published number on 2 GPUs, which the model does not see",
    }
    for column, name in names.items():
        errors = rows[column].abs()
        said.append(f"{name}: mean error {errors.mean():.1%}, largest {errors.max():.1%}, {len(rows)} rows")
    better = rows["as_on_2_error"].abs().mean() - rows["error"].abs().mean()
    if better < 0.01:
        said.append(
            f"On this table the model adds little ({better * 100:+.1f} points of mean error): NVLink and InfiniBand "
            "are so fast that DDP loses a few per cent everywhere. It pays where links are slow or devices are many."
        )
    return said
