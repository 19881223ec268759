"""The time of one training step under DDP on N devices, put together from its measured and modelled parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgpu_utils.scaling.architectures import layers
from mgpu_utils.scaling.buckets import Rule, assign, empty_tensors, ready_shares
from mgpu_utils.scaling.collective_model import Algorithm, Cluster, all_reduce_seconds
from mgpu_utils.scaling.overlap import Overlap, simulate

# A backward does twice the multiply-adds of its forward: gradients of the inputs and of the weights.
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True)
class Workload:
    """One step on one device: seconds of its parts, and the buckets that it sends.

    Attributes:
        batch: samples a device and step.
        forward, backward, optimizer: seconds on one device, alone.
        buckets: bytes of each bucket in the order in which they are sent.
        ready: for each bucket the share of backward after which it can go.
    """

    name: str
    batch: int
    forward: float
    backward: float
    optimizer: float
    buckets: tuple[int, ...]
    ready: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.batch < 1 or not min(self.forward, self.backward, self.optimizer) >= 0 or not self.compute > 0:
            raise ValueError(f"{self.name}: a step needs a batch of at least 1 and a positive time on one device.")
        if len(self.buckets) != len(self.ready):
            raise ValueError(f"{self.name}: {len(self.buckets)} buckets, but {len(self.ready)} shares of backward.")

    @property
    def compute(self) -> float:
        """Seconds of a step on one device without DDP."""
        return self.forward + self.backward + self.optimizer

    @property
    def gradient_bytes(self) -> int:
        """Bytes that every device sends around each step."""
        return sum(self.buckets)


@dataclass(frozen=True)
class DDPCost:
    """What DDP costs besides the links' time. Each number is 0 (or 1) where it costs nothing.

    Attributes:
        own: seconds a step that DDP itself needs on one rank: hooks and bookkeeping.
        own_per_byte: seconds a byte of gradients: copying into buckets and back, also on one rank.
        contention: how many times longer compute takes when all devices work at once (they share memory or power).
        interference: the share by which backward goes slower while a collective runs (see `overlap.simulate`).
        wait: seconds that each collective takes longer when it is called from a training step than alone: the
            slowest rank, and a communication thread that first has to get a core.
    """

    own: float = 0.0
    own_per_byte: float = 0.0
    contention: float = 1.0
    interference: float = 0.0
    wait: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """A predicted step: seconds of its parts, which add up to ``seconds``."""

    devices: int
    batch: int
    forward: float
    own: float
    overlap: Overlap
    optimizer: float

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.forward + self.own + self.overlap.end + self.optimizer

    @property
    def samples_per_second(self) -> float:
        """Samples a second of all devices together."""
        return self.devices * self.batch / self.seconds

    @property
    def exposed(self) -> float:
        """Seconds of communication that no compute hides."""
        return self.overlap.exposed


def predict_ddp(
    workload: Workload,
    devices: int,
    cluster: Cluster,
    cost: DDPCost | None = None,
    algorithm: Algorithm = "auto",
) -> StepTime:
    """Predict one DDP step on ``devices`` devices; every device computes ``workload.batch`` samples."""
    cost = cost or DDPCost()
    slower = cost.contention if devices > 1 else 1.0
    wait = cost.wait if devices > 1 else 0.0
    collectives = [all_reduce_seconds(size, devices, cluster, algorithm) + wait for size in workload.buckets]
    overlap = simulate(workload.backward * slower, workload.ready, collectives, cost.interference)
    return StepTime(
        devices=devices,
        batch=workload.batch,
        forward=workload.forward * slower,
        own=cost.own + cost.own_per_byte * workload.gradient_bytes,
        overlap=overlap,
        optimizer=workload.optimizer * slower,
    )


def network_workload(
    name: str, batch: int, seconds: float, *, cap_mb: float | None = None, rule: Rule = "rebuilt"
) -> Workload:
    """Return the workload of a published network (`architectures.NETWORKS`) whose whole step takes ``seconds``.

    Only the whole is known there: a third is taken for forward, two thirds for backward, which the optimizer's small
    share is part of.
    """
    made = layers(name)
    buckets = assign(empty_tensors([layer.shape for layer in made]), cap_mb=cap_mb, rule=rule)
    shares = ready_shares(buckets, [layer.work for layer in made])
    return Workload(
        name=name,
        batch=batch,
        forward=seconds * FORWARD_SHARE,
        backward=seconds * (1 - FORWARD_SHARE),
        optimizer=0.0,
        buckets=tuple(bucket.size for bucket in buckets),
        ready=tuple(shares),
    )


def with_batch(workload: Workload, batch: int) -> Workload:
    """Return the workload with another batch: forward and backward grow with it, the optimizer does not.

    True where the device is busy anyway; a small batch on a large GPU takes longer than this says.
    """
    if batch < 1:
        raise ValueError(f"The batch must be at least 1, not {batch}.")
    grown = batch / workload.batch
    return replace(workload, batch=batch, forward=workload.forward * grown, backward=workload.backward * grown)


def efficiency(workload: Workload, steps: Sequence[StepTime]) -> list[float]:
    """Return each step's samples a second over N times those of one device without DDP."""
    alone = workload.batch / workload.compute
    return [step.samples_per_second / step.devices / alone for step in steps]
