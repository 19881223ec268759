"""The model against this machine: fitted to one step of one model, asked about other batches, models and worlds.

From the world it is fitted to, the model knows: all-reduces alone, N independent jobs (how much copies slow each
other), and one DDP and one DataParallel step of one model at one batch. All other DDP and DataParallel steps are
predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mgpu_utils.scaling.buckets import Bucket
from mgpu_utils.scaling.data_parallel import DataParallelCost, DataParallelJob, predict_data_parallel
from mgpu_utils.scaling.fit import Observation, fit_cluster, fit_serial, fit_wait
from mgpu_utils.scaling.step_time import DDPCost, StepTime, Workload, predict_ddp

# On CPU cores, a collective's copies and sums are done by the core that computes.
CPU_INTERFERENCE = 1.0
GPU_INTERFERENCE = 0.0


@dataclass(frozen=True)
class Point:
    """One model at one batch on one world, in seconds a step.

    Attributes:
        single, ddp_alone: one device without DDP, and a DDP of one rank.
        independent: all devices at once without communication, the slowest of them.
        ddp, data_parallel: what is to be predicted.
    """

    model: str
    batch: int
    world_size: int
    forward: float
    backward: float
    optimizer: float
    single: float
    ddp_alone: float
    independent: float
    ddp: float
    data_parallel: float


@dataclass(frozen=True)
class Run:
    """What one launch measured of one model on one world: its points, and what all of them share."""

    model: str
    world_size: int
    device_type: str
    points: tuple[Point, ...]
    collectives: tuple[tuple[int, float], ...]
    buckets: tuple[Bucket, ...]
    arrival: tuple[float, ...]
    parameter_bytes: int
    modules: int
    sample_bytes: int
    output_bytes: int
    copy_bandwidth: float

    @property
    def ready(self) -> tuple[float, ...]:
        """For each bucket the share of backward after which it can go."""
        shares: list[float] = []
        for bucket in self.buckets:
            latest = max(self.arrival[place] for place in bucket.parameters)
            shares.append(min(1.0, max([latest, *shares[-1:]])))
        return tuple(shares)

    def workload(self, point: Point) -> Workload:
        """The point as DDP's model takes it; its phases are stretched to add up to the whole step."""
        forward, backward, optimizer = _phases(point)
        sizes = tuple(bucket.size for bucket in self.buckets)
        return Workload(self.model, point.batch, forward, backward, optimizer, sizes, self.ready)

    def job(self, point: Point) -> DataParallelJob:
        """The point as DataParallel's model takes it."""
        return DataParallelJob(
            point.batch, *_phases(point), self.parameter_bytes, self.modules, self.sample_bytes, self.output_bytes
        )


@dataclass(frozen=True)
class MachineFit:
    """What was fitted to this machine, and to which point."""

    point: Point
    ddp: DDPCost
    data_parallel: DataParallelCost
    runs: tuple[Run, ...]
    reference: Run

    def ddp_step(self, run: Run, point: Point) -> StepTime:
        """Predict one DDP step."""
        cost = replace(self.ddp, own=_own(run), contention=self.contention(run, point.batch))
        cluster = fit_cluster(self._collectives(run), self.reference.world_size)
        return predict_ddp(run.workload(point), run.world_size, cluster, cost, "ring")

    def data_parallel_step(self, run: Run, point: Point) -> float:
        """Predict the seconds of one DataParallel step."""
        cost = replace(self.data_parallel, contention=self.contention(run, point.batch))
        return predict_data_parallel(run.job(point), run.world_size, cost).seconds

    def contention(self, run: Run, batch: int) -> float:
        """How much N copies of a model at a batch slow each other: measured in the fitted world, without communication.

        It depends on the batch: small tensors stay in each core's own cache, large ones share the memory.
        """
        ratios = {point.batch: point.independent / point.single for point in self._in_fitted_world(run).points}
        middle = sorted(ratios.values())[len(ratios) // 2]
        return max(1.0, ratios.get(batch, middle))

    def _collectives(self, run: Run) -> tuple[tuple[int, float], ...]:
        return self._in_fitted_world(run).collectives

    def _in_fitted_world(self, run: Run) -> Run:
        for other in self.runs:
            if other.model == run.model and other.world_size == self.reference.world_size:
                return other
        return self.reference


def run_of(record: dict[str, Any]) -> Run:
    """Read one record of the benchmark `predict`. Raises: ValueError for one that lacks what a run holds."""
    try:
        names = ("forward", "backward", "optimizer", "single", "ddp_alone", "independent", "ddp", "data_parallel")
        points = tuple(
            Point(record["model"], point["batch"], record["world_size"], **{name: point[name] for name in names})
            for point in record["points"]
        )
        return Run(
            model=record["model"],
            world_size=record["world_size"],
            device_type=record["device_type"],
            points=points,
            collectives=tuple((c["size"], c["seconds"]) for c in record["collectives"]),
            buckets=tuple(Bucket(tuple(b["parameters"]), b["size"]) for b in record["buckets"]),
            arrival=tuple(record["arrival"]),
            **{name: record[name] for name in ("parameter_bytes", "modules", "sample_bytes", "output_bytes")},
            copy_bandwidth=record["copy_bandwidth"],
        )
    except KeyError as error:
        raise ValueError(f"A record of the benchmark predict has no {error.args[0]!r}: measure it again.") from None


def fit_machine(runs: Sequence[Run]) -> MachineFit:
    """Fit the model to one point: the smallest world, the first model, its middle batch.

    Raises: ValueError when no run has two or more devices.
    """
    usable = [run for run in runs if run.world_size > 1 and run.points]
    if not usable:
        raise ValueError("Nothing was measured on two or more devices, so there is nothing to fit to.")
    smallest = min(run.world_size for run in usable)
    run = next(run for run in usable if run.world_size == smallest)
    by_batch = sorted(run.points, key=lambda point: point.batch)
    point = by_batch[len(by_batch) // 2]
    gpu = run.device_type != "cpu"
    unfitted = MachineFit(
        point,
        DDPCost(interference=GPU_INTERFERENCE if gpu else CPU_INTERFERENCE),
        DataParallelCost(bandwidth=run.copy_bandwidth, pipelined=gpu),
        tuple(usable),
        run,
    )
    contention = unfitted.contention(run, point.batch)
    cluster = fit_cluster(run.collectives, smallest)
    cost = replace(unfitted.ddp, own=_own(run), contention=contention)
    waiting = fit_wait(run.workload(point), Observation(smallest, point.ddp), cluster, cost)
    copying = replace(unfitted.data_parallel, contention=contention)
    serial = fit_serial(run.job(point), Observation(smallest, point.data_parallel), copying)
    return replace(unfitted, ddp=waiting, data_parallel=serial)


def _own(run: Run) -> float:
    extra = sorted(max(0.0, point.ddp_alone - point.single) for point in run.points)
    return extra[len(extra) // 2]


def _phases(point: Point) -> tuple[float, float, float]:
    stretch = point.single / (point.forward + point.backward + point.optimizer)
    return point.forward * stretch, point.backward * stretch, point.optimizer * stretch
