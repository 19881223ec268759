"""Fit what cannot be looked up to some measured worlds, so that the others can be predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import NamedTuple

from mgpu_utils.scaling.collective_model import Cluster, fit_link
from mgpu_utils.scaling.data_parallel import DataParallelCost, DataParallelJob, predict_data_parallel
from mgpu_utils.scaling.step_time import DDPCost, Workload, predict_ddp

_SLOWEST_LINK, _FASTEST_LINK = 1e5, 1e14


class Observation(NamedTuple):
    """A measured step: on how many devices, and its seconds."""

    devices: int
    seconds: float


@dataclass(frozen=True)
class DDPFit:
    """What was fitted, and to how many observations."""

    cluster: Cluster
    cost: DDPCost

    def predict(self, workload: Workload, devices: int) -> float:
        """Seconds of a step."""
        return predict_ddp(workload, devices, self.cluster, self.cost).seconds


def fit_own_cost(workload: Workload, alone: float) -> float:
    """Return the seconds a byte of gradients that DDP costs on one rank, where it takes ``alone`` seconds a step."""
    return max(0.0, alone - workload.compute) / workload.gradient_bytes


def fit_bandwidth(workload: Workload, observation: Observation, cluster: Cluster, cost: DDPCost) -> Cluster:
    """Return the cluster with the bandwidth at which ``workload`` takes the observed time.

    Where even an infinite bandwidth is too slow, or the slowest too fast, that end is returned.
    Raises: ValueError for an observation of one device, which says nothing of a link.
    """
    if observation.devices < 2:
        raise ValueError("A link's bandwidth can only be fitted to a step of at least 2 devices.")

    def with_bandwidth(bandwidth: float) -> Cluster:
        return replace(cluster, inside=replace(cluster.inside, bandwidth=bandwidth))

    def excess(bandwidth: float) -> float:
        return predict_ddp(workload, observation.devices, with_bandwidth(bandwidth), cost).seconds - observation.seconds

    return with_bandwidth(_root(excess, _SLOWEST_LINK, _FASTEST_LINK))


def fit_wait(workload: Workload, observation: Observation, cluster: Cluster, cost: DDPCost) -> DDPCost:
    """Return the cost with the wait a collective at which ``workload`` takes the observed time; 0 if it is faster."""

    def excess(wait: float) -> float:
        return (
            predict_ddp(workload, observation.devices, cluster, replace(cost, wait=wait)).seconds - observation.seconds
        )

    if excess(0.0) >= 0:
        return replace(cost, wait=0.0)
    return replace(cost, wait=_root(excess, 1e-9, max(1.0, observation.seconds), rising=True))


def fit_serial(job: DataParallelJob, observation: Observation, cost: DataParallelCost) -> DataParallelCost:
    """Return the cost with the Python seconds a module at which the step takes the observed time; 0 if it is faster."""
    without = predict_data_parallel(job, observation.devices, replace(cost, serial=0.0)).seconds
    modules = job.modules * observation.devices
    return replace(cost, serial=max(0.0, observation.seconds - without) / modules)


def fit_cluster(times: Sequence[tuple[float, float]], devices: int) -> Cluster:
    """Return one machine whose ring of ``devices`` takes these times, given as (bytes, seconds)."""
    return Cluster(fit_link([size for size, _ in times], [seconds for _, seconds in times], devices))


def _root(excess: Callable[[float], float], low: float, high: float, *, rising: bool = False) -> float:
    """Where ``excess`` crosses 0 between two positive numbers, searched by their logarithm; else the nearer end."""
    from scipy.optimize import brentq

    first, last = excess(low), excess(high)
    if (first > 0) == (last > 0):
        too_slow = first > 0
        return low if too_slow == rising else high
    return exp(float(brentq(lambda logarithm: excess(exp(logarithm)), log(low), log(high), xtol=1e-9)))
