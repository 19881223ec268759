"""How long an all-reduce takes: latency and bandwidth of links inside and between machines, ring and tree.

The ring is bandwidth-optimal, and its latency grows with the number of devices; the tree's grows with the
logarithm of the number of machines. NCCL picks between the two by the same kind of formula.

Sources: Patarasu and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002 (ring); Sanders et al. 2009,
https://doi.org/10.1016/j.parco.2009.09.001 (two trees); NCCL's own model of both,
https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc; nccl-tests,
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md (bus bandwidth).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Algorithm = Literal["auto", "ring", "tree"]
ALGORITHMS: tuple[Algorithm, ...] = ("auto", "ring", "tree")
# What NCCL allows a tree of the links' bandwidth (tuning.cc, "busBw*.9").
TREE_SHARE = 0.9


@dataclass(frozen=True)
class Link:
    """What one hop costs.

    Attributes:
        latency: seconds a ring step takes before its bytes.
        bandwidth: bytes per second in one direction, as nccl-tests' bus bandwidth counts them.
        tree_latency: the same for a hop of a tree; the ring's when not given.
    """

    latency: float
    bandwidth: float
    tree_latency: float | None = None

    def __post_init__(self) -> None:
        if not self.latency >= 0 or not self.bandwidth > 0:
            raise ValueError(
                f"A link needs a latency of at least 0 s and a bandwidth above 0 bytes/s, not {self.latency} and "
                f"{self.bandwidth}."
            )

    @property
    def hop(self) -> float:
        """Seconds of latency of a hop of a tree."""
        return self.latency if self.tree_latency is None else self.tree_latency


@dataclass(frozen=True)
class Cluster:
    """Devices in machines, and their links.

    Attributes:
        inside: the link between devices of one machine.
        between: the link between machines: all network cards of a machine together. ``inside`` when not given.
        devices_per_machine: how many devices share ``inside``; None: all of them, one machine.
        launch: seconds to start a collective, whatever its size.
    """

    inside: Link
    between: Link | None = None
    devices_per_machine: int | None = None
    launch: float = 0.0

    def machines(self, devices: int) -> int:
        """How many machines ``devices`` fill. Raises: ValueError for less than one device."""
        if devices < 1:
            raise ValueError(f"An all-reduce needs at least one device, not {devices}.")
        return 1 if self.devices_per_machine is None else math.ceil(devices / self.devices_per_machine)

    def bandwidth(self, devices: int) -> float:
        """Bytes per second of the narrowest link on the way round."""
        if self.machines(devices) == 1 or self.between is None:
            return self.inside.bandwidth
        return min(self.inside.bandwidth, self.between.bandwidth)


def ring_seconds(size: float, devices: int, cluster: Cluster) -> float:
    """Seconds of a ring all-reduce of ``size`` bytes: 2 (N - 1) steps, each of size / N bytes; 0 for one device."""
    machines = cluster.machines(devices)
    if devices == 1:
        return 0.0
    steps = 2 * (devices - 1)
    crossing = 2 * (machines - 1)
    between = cluster.between or cluster.inside
    latency = (steps - crossing) * cluster.inside.latency + crossing * between.latency
    return cluster.launch + latency + steps / devices * size / cluster.bandwidth(devices)


def tree_seconds(size: float, devices: int, cluster: Cluster) -> float:
    """Seconds of a double-tree all-reduce of ``size`` bytes: up and down, chains inside machines; 0 for one device."""
    machines = cluster.machines(devices)
    if devices == 1:
        return 0.0
    local = math.ceil(devices / machines)
    between = cluster.between or cluster.inside
    hops = (local - 1) * cluster.inside.hop + math.ceil(math.log2(machines)) * between.hop
    return cluster.launch + 2 * hops + 2 * size / (TREE_SHARE * cluster.bandwidth(devices))


def all_reduce_seconds(size: float, devices: int, cluster: Cluster, algorithm: Algorithm = "auto") -> float:
    """Seconds of an all-reduce of ``size`` bytes; ``auto`` takes the faster of ring and tree.

    Raises: ValueError for an algorithm that is not one of these, a negative size or less than one device.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {algorithm!r}; choose one of {', '.join(ALGORITHMS)}.")
    if not size >= 0:
        raise ValueError(f"The size must be at least 0 bytes, not {size}.")
    ring, tree = ring_seconds(size, devices, cluster), tree_seconds(size, devices, cluster)
    return {"ring": ring, "tree": tree, "auto": min(ring, tree)}[algorithm]


def fit_link(sizes: Sequence[float], seconds: Sequence[float], devices: int) -> Link:
    """Return the link on which a ring of ``devices`` would take these ``seconds`` for these ``sizes`` in bytes.

    Least squares of relative errors, so that small messages count as much as large ones; neither number can
    become negative.

    Raises: ValueError for less than two different sizes, times that are not positive, or one device.
    """
    import numpy as np
    from scipy.optimize import nnls

    x, y = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if devices < 2:
        raise ValueError(f"A link can only be fitted to collectives of at least 2 devices, not {devices}.")
    if len(x) != len(y) or len(set(x.tolist())) < 2:
        raise ValueError("A link needs times for at least two different sizes: one for latency, one for bandwidth.")
    if not (np.isfinite(y).all() and (y > 0).all()):
        raise ValueError(f"Every time must be a positive number of seconds, but got {list(seconds)}.")
    steps = 2 * (devices - 1)
    columns = np.stack([np.full_like(x, steps), steps / devices * x], axis=1)
    (latency, per_byte), _ = nnls(columns / y[:, None], np.ones_like(y))
    return Link(latency=float(latency), bandwidth=1 / per_byte if per_byte > 0 else math.inf)
