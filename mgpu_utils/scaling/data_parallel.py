"""What one step of `nn.DataParallel` costs: copies of the model, scatter, gather, reduce, and one Python for all.

Source of the steps: `torch/nn/parallel/data_parallel.py`,
https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class DataParallelJob:
    """A model and one replica's share of a step.

    Attributes:
        batch: samples a replica.
        forward, backward, optimizer: seconds of one replica's share on one device, alone.
        parameter_bytes: what is copied to every replica each step, and summed back.
        modules: modules in the model: each is rebuilt for each replica by one Python thread at a time.
        sample_bytes, output_bytes: of one sample.
    """

    batch: int
    forward: float
    backward: float
    optimizer: float
    parameter_bytes: int
    modules: int
    sample_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class DataParallelCost:
    """What the machine makes of it.

    Attributes:
        bandwidth: bytes a second of one copy from device 0 to another, or back.
        latency: seconds a copy takes before its bytes.
        serial: seconds a module and replica under the one lock of Python (replicate, launch, bookkeeping).
        contention: how many times longer compute takes when all devices work at once.
        pipelined: whether copies to several devices go round in pieces (NCCL's broadcast), or one after another.
    """

    bandwidth: float
    latency: float = 0.0
    serial: float = 0.0
    contention: float = 1.0
    pipelined: bool = False


@dataclass(frozen=True)
class DataParallelStep:
    """Seconds of the parts of one step, which add up to ``seconds``."""

    replicate: float
    scatter: float
    serial: float
    forward: float
    gather: float
    backward: float
    reduce: float
    optimizer: float

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


def predict_data_parallel(job: DataParallelJob, replicas: int, cost: DataParallelCost) -> DataParallelStep:
    """Predict one step on ``replicas`` devices of one process. On one device nothing is copied.

    Raises: ValueError for less than one replica or a bandwidth that is not positive.
    """
    if replicas < 1 or not cost.bandwidth > 0:
        raise ValueError(f"There must be a replica and a bandwidth above 0, not {replicas} and {cost.bandwidth}.")
    others = replicas - 1

    def copies(size: float, pipelined: bool) -> float:
        return cost.latency * others + (min(others, 1) if pipelined else others) * size / cost.bandwidth

    slower = cost.contention if others else 1.0
    model = copies(job.parameter_bytes, cost.pipelined)
    return DataParallelStep(
        replicate=model,
        # Each replica gets its own piece, so nothing can be passed on.
        scatter=copies(job.batch * job.sample_bytes, False),
        serial=cost.serial * job.modules * replicas if others else 0.0,
        forward=job.forward * slower,
        gather=copies(job.batch * job.output_bytes, False),
        backward=job.backward * slower,
        reduce=model,
        optimizer=job.optimizer,
    )
