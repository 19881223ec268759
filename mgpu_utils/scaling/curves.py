"""Predictions for more devices than anybody here has: efficiency from one device to thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgpu_utils.scaling.collective_model import Algorithm, Cluster
from mgpu_utils.scaling.hardware import PRESETS, Hardware
from mgpu_utils.scaling.step_time import DDPCost, Workload, efficiency, predict_ddp

LARGEST = 4096
MIDDLE = 0.5
POWERS = tuple(2**power for power in range(LARGEST.bit_length()))


@dataclass(frozen=True)
class Curve:
    """Predicted efficiency (1 is N times one device) for each number of devices.

    ``with_overlap``: a collective costs the compute beside it nothing; ``without_overlap``: it stops it; ``middle``: it
    makes it half as fast. Which of them is nearest can only be measured.
    """

    title: str
    devices: tuple[int, ...]
    with_overlap: tuple[float, ...]
    middle: tuple[float, ...]
    without_overlap: tuple[float, ...]


def curve(
    title: str,
    workload: Workload,
    cluster: Cluster,
    devices: Sequence[int] = POWERS,
    algorithm: Algorithm = "auto",
) -> Curve:
    """Predict ``workload`` on each number of ``devices``."""
    ends = []
    for interference in (0.0, MIDDLE, 1.0):
        cost = DDPCost(interference=interference)
        steps = [predict_ddp(workload, count, cluster, cost, algorithm) for count in devices]
        ends.append(tuple(efficiency(workload, steps)))
    return Curve(title, tuple(devices), *ends)


def preset_curve(hardware: Hardware, devices: Sequence[int] = POWERS) -> Curve:
    """Predict ResNet-50 on this hardware, at its own published speed of one device."""
    return curve(hardware.title, hardware.workload(), hardware.cluster, devices)


def preset_curves(devices: Sequence[int] = POWERS, *, fast: bool | None = None) -> list[Curve]:
    """Predict ResNet-50 on every preset; with ``fast``, only on those that stay above half of N devices, or below."""
    made = [preset_curve(hardware, devices) for hardware in PRESETS.values()]
    return [one for one in made if fast is None or fast == (one.middle[-1] > 0.5)]
