"""Named hardware to predict for: links, latencies and one device's speed, every number with its source.

Bandwidths are what an all-reduce reaches (nccl-tests' bus bandwidth) where somebody published it, not the sum of both
directions that datasheets print. Latencies of NVLink, PCIe and network hops are the constants of NCCL's own model.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING

from mgpu_utils.scaling.collective_model import Cluster, Link
from mgpu_utils.scaling.step_time import Workload, network_workload

if TYPE_CHECKING:
    import pandas as pd

NCCL = "https://github.com/NVIDIA/nccl/blob/01afd20a77b5804e0ecf1042509dd9d20ebf9e93/src/graph/tuning.cc"
_EXAMPLES = "https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Classification/ConvNets/resnet50v1.5"
_CONFIGS = "https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/Classification/ConvNets/configs.yml"
_V100 = "https://github.com/pytorch/pytorch/blob/main/benchmarks/distributed/ddp/README.md"
_H100 = (
    "https://github.com/mlcommons/inference_results_v3.1/blob/main/closed/Dell/systems/XE9680_H100_SXM_80GBx8_TRT.json"
)
_ETHERNET = "https://www.controleng.com/ieee-approves-10-gbps-ethernet-standard-2/"
_GIGA, _MICRO = 1e9, 1e-6


@dataclass(frozen=True)
class Number:
    """A value in ``unit`` with the page it comes from and how it was taken from there."""

    value: float
    unit: str
    source: str
    how: str


@dataclass(frozen=True)
class Hardware:
    """A kind of cluster by name.

    Attributes:
        devices_per_machine: devices that share the link inside a machine.
        inside, between: bandwidth of an all-reduce inside a machine, and between machines (all of a machine's cards).
        inside_latency, between_latency: a step of the ring; ``inside_hop``, ``between_hop``: a hop of the tree.
        launch: starting a collective.
        samples_per_second: one device training ResNet-50, with ``batch`` samples a step.
    """

    name: str
    title: str
    devices_per_machine: Number
    inside: Number
    between: Number
    inside_latency: Number
    between_latency: Number
    inside_hop: Number
    between_hop: Number
    launch: Number
    samples_per_second: Number
    batch: Number

    def numbers(self) -> Iterator[tuple[str, Number]]:
        """Every number of the preset with its name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Number):
                yield field.name, value

    def table(self) -> pd.DataFrame:
        """Every number of the preset with its unit and source, one row each."""
        import pandas as pd

        rows = [
            {"number": name, "value": one.value, "unit": one.unit, "how": one.how, "source": one.source}
            for name, one in self.numbers()
        ]
        return pd.DataFrame(rows).set_index("number")

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{one.value:g} {escape(one.unit)}</td><td style='text-align:left'>"
            f"<a href='{escape(one.source)}'>{escape(one.how)}</a></td></tr>"
            for name, one in self.numbers()
        )
        head = "<tr><th>number</th><th>value</th><th style='text-align:left'>from</th></tr>"
        return f"<b>{escape(self.title)}</b><table>{head}{rows}</table>"

    @property
    def cluster(self) -> Cluster:
        """The preset as the collective model takes it, in seconds and bytes per second."""
        inside = Link(
            self.inside_latency.value * _MICRO, self.inside.value * _GIGA, tree_latency=self.inside_hop.value * _MICRO
        )
        between = Link(
            self.between_latency.value * _MICRO,
            self.between.value * _GIGA,
            tree_latency=self.between_hop.value * _MICRO,
        )
        return Cluster(inside, between, int(self.devices_per_machine.value), self.launch.value * _MICRO)

    def workload(self, cap_mb: float | None = None) -> Workload:
        """ResNet-50 as one device of this hardware trains it."""
        batch = int(self.batch.value)
        return network_workload("ResNet-50", batch, batch / self.samples_per_second.value, cap_mb=cap_mb)


def _nccl(value: float, what: str) -> Number:
    return Number(value, "us", NCCL, f"hwLat and baseLat, {what}")


def _speed(value: float, how: str, source: str = _EXAMPLES) -> Number:
    return Number(value, "samples/s", source, how)


_EIGHT_V100 = Number(8, "devices", _V100, "nvidia-smi topo: 8 GPUs a machine")
_NVLINK = {
    "inside_latency": _nccl(3.4, "NVLink, ring, Simple"),
    "inside_hop": _nccl(1.2, "NVLink, tree, LL128"),
}
_PCIE = {
    "inside_latency": _nccl(5.7, "PCI, ring, Simple"),
    "inside_hop": _nccl(1.9, "PCI, tree, LL128"),
}
_NETWORK = {
    "between_latency": _nccl(9.6, "network, ring, Simple"),
    "between_hop": _nccl(8.5, "network, tree, LL128"),
    "launch": _nccl(8.4, "ring, Simple, base"),
}
_V100_FP32 = {
    "samples_per_second": _speed(329, "ResNet-50, float32, 1 GPU, no DDP, p50", _V100),
    "batch": Number(32, "samples", _V100, "batch size of that run"),
}

_PRESETS = (
    Hardware(
        name="dgx-1-v100",
        title="DGX-1: 8 V100, NVLink, 4 x 100 Gb/s InfiniBand",
        devices_per_machine=_EIGHT_V100,
        inside=Number(
            120,
            "GB/s",
            "https://github.com/NVIDIA/nccl-tests/issues/149",
            "6 NVLinks of 25 GB/s in one direction, about 20 GB/s effective each, as NCCL's author says there",
        ),
        between=Number(50, "GB/s", _V100, "4 x 100 Gb/s InfiniBand a machine: the line rate, an upper bound"),
        **_NVLINK,
        **_NETWORK,
        **_V100_FP32,
    ),
    Hardware(
        name="dgx-a100",
        title="DGX A100: 8 A100, NVSwitch, 8 x 200 Gb/s InfiniBand",
        devices_per_machine=Number(8, "devices", _EXAMPLES, "DGX A100 (8x A100 80GB)"),
        inside=Number(
            230, "GB/s", "https://github.com/NVIDIA/nccl-tests/issues/149", "bus bandwidth that NCCL's author expects"
        ),
        between=Number(
            192,
            "GB/s",
            "https://github.com/NVIDIA/nccl/issues/812",
            "all-reduce bus bandwidth that NCCL's team measured",
        ),
        samples_per_second=_speed(938, "ResNet-50, TF32, DGX A100, 1 GPU"),
        batch=Number(256, "samples", _CONFIGS, "models, resnet50, DGXA100, TF32"),
        **_NVLINK,
        **_NETWORK,
    ),
    Hardware(
        name="hgx-h100",
        title="HGX H100: 8 H100, NVSwitch, 8 x 400 Gb/s InfiniBand",
        devices_per_machine=Number(8, "devices", _H100, "accelerators_per_node"),
        inside=Number(
            370,
            "GB/s",
            "https://github.com/NVIDIA/nccl-tests/issues/212",
            "ring, without NVLink SHARP, as NCCL's author says there",
        ),
        between=Number(
            400,
            "GB/s",
            _H100,
            "8 x 400 Gb/s InfiniBand a machine: the line rate, an upper bound",
        ),
        samples_per_second=_speed(
            2470,
            "ResNet-50, mixed precision, on an A100; an H100 computes faster and so hides less",
        ),
        batch=Number(256, "samples", _CONFIGS, "models, resnet50, DGXA100, AMP"),
        **_NVLINK,
        **_NETWORK,
    ),
    Hardware(
        name="pcie-workstation",
        title="4 GPUs on PCIe without NVLink, 10 Gb/s Ethernet",
        devices_per_machine=Number(
            4, "devices", "https://github.com/NVIDIA/nccl/issues/445", "1 node, 4 GPUs, NCCL over PCIe"
        ),
        inside=Number(
            4.88, "GB/s", "https://github.com/NVIDIA/nccl/issues/445", "all-reduce bus bandwidth measured there"
        ),
        between=Number(1.25, "GB/s", _ETHERNET, "10 Gb/s Ethernet: the line rate, an upper bound"),
        **_PCIE,
        **_NETWORK,
        **_V100_FP32,
    ),
    Hardware(
        name="10gbe-cluster",
        title="8 V100 with NVLink a machine, 10 Gb/s Ethernet between",
        devices_per_machine=_EIGHT_V100,
        inside=Number(
            120, "GB/s", "https://github.com/NVIDIA/nccl-tests/issues/149", "6 NVLinks, about 20 GB/s effective each"
        ),
        between=Number(1.25, "GB/s", _ETHERNET, "10 Gb/s Ethernet: the line rate, an upper bound"),
        **_NVLINK,
        **_NETWORK,
        **_V100_FP32,
    ),
)
PRESETS: dict[str, Hardware] = {preset.name: preset for preset in _PRESETS}


def preset(name: str) -> Hardware:
    """The hardware of this name. Raises: ValueError naming those there are."""
    if name in PRESETS:
        return PRESETS[name]
    close = difflib.get_close_matches(str(name), PRESETS, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(f"There is no hardware preset {name!r}; choose one of {', '.join(PRESETS)}.{hint}")
