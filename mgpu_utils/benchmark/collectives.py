"""Measure collectives as nccl-tests does: seconds, algorithm and bus bandwidth against the size of the message.

Source of all definitions: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from mgpu_utils.benchmark.kinds import Kind, Record
from mgpu_utils.benchmark.launching import launch
from mgpu_utils.benchmark.plan import planned, world_sizes
from mgpu_utils.benchmark.schema import ConfigError, Precision, Strict, nothing_twice
from mgpu_utils.planning import Hardware
from mgpu_utils.timing import median_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mgpu_utils.torchrun import Launcher

Collective = Literal["all_reduce", "broadcast", "all_gather", "reduce_scatter"]

# Bus bandwidth over algorithm bandwidth on n ranks: what the busiest link carries for each byte of the message.
BUS_FACTORS: dict[Collective, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
}
_SHARDED = ("all_gather", "reduce_scatter")
# nccl-tests cuts shards to whole multiples of this, so that every rank's shard is aligned.
_ALIGNMENT = 16


class Sizes(Strict):
    """Sizes of messages in bytes: each is `factor` times the one before."""

    smallest: int = Field(default=1024, ge=_ALIGNMENT)
    largest: int = Field(default=64 * 2**20, ge=_ALIGNMENT)
    factor: int = Field(default=4, ge=2)

    @model_validator(mode="after")
    def _enough_for_a_line(self) -> Sizes:
        if len(self.all) < 3:
            raise ValueError(
                f"gives {len(self.all)} size{'s' if len(self.all) != 1 else ''}, but a line with its error needs 3: "
                "lower smallest or factor, or raise largest"
            )
        return self

    @property
    def all(self) -> list[int]:
        """Every size from the smallest to the largest."""
        sizes = [self.smallest] if self.smallest <= self.largest else []
        while sizes and sizes[-1] * self.factor <= self.largest:
            sizes.append(sizes[-1] * self.factor)
        return sizes


class CollectivesSection(Strict):
    """What is measured. ``world_sizes: auto`` takes 2, 4, 8, ... up to what the machine has, and that number too.

    ``seconds_per_point`` is the time for one size in one round: a call is repeated at least 5 times, and until that
    time is used. ``calls`` are timed together and divided; nccl-tests sends 20 in a row, which hides the cost of
    starting a call on a GPU. ``in_place`` false gives the shards of all_gather and reduce_scatter buffers of their own.
    """

    collectives: list[Collective] = Field(default=list(BUS_FACTORS), min_length=1)
    world_sizes: list[int] | Literal["auto"] = "auto"
    sizes_bytes: Sizes = Sizes()
    seconds_per_point: float = Field(default=0.2, gt=0)
    calls: int = Field(default=1, ge=1)
    dtype: Precision = "float32"
    in_place: bool = True
    rounds: int | None = Field(default=None, ge=1)

    @field_validator("world_sizes")
    @classmethod
    def _ranks_can_talk(cls, value: list[int] | str) -> list[int] | str:
        if isinstance(value, list) and not value:
            raise ValueError("must hold at least one whole number, or be auto")
        if isinstance(value, list) and min(value) < 2:
            raise ValueError(f"must be 2 or more, not {min(value)}: one rank alone sends nothing")
        return value

    _once = field_validator("collectives", "world_sizes")(nothing_twice)


@dataclass(frozen=True)
class CollectiveRun:
    """One collective on one number of ranks, over all sizes (bytes); one launch measures it once."""

    collective: Collective
    world_size: int
    device_type: str
    backend: str
    dtype: str
    in_place: bool
    calls: int
    seconds_per_point: float
    threads_per_process: int
    oversubscribed: bool
    sizes: tuple[int, ...]
    nnodes: int = 1

    @property
    def key(self) -> str:
        """A text which tells this run from every other one."""
        fields = asdict(self) | {"sizes": "-".join(map(str, self.sizes))}
        return "/".join(str(value) for value in fields.values())

    def to_dict(self) -> dict[str, Any]:
        """The fields as a record holds them."""
        return asdict(self) | {"sizes": list(self.sizes)}


class Collectives(Kind):
    """Latency and bandwidth of the collectives that data parallelism is made of."""

    name = "collectives"
    on_several_machines = True
    notebook = "04_measure_collectives.ipynb"
    section = CollectivesSection

    def configurations(
        self, section: CollectivesSection, config: Any, hardware: Hardware, environ: Mapping[str, str]
    ) -> list[CollectiveRun]:
        """Every collective on every world size. Raises: ConfigError for more ranks than this machine has room for."""
        scope = config.model_copy(update={"world_sizes": section.world_sizes})
        sizes = _up_to_all(scope, hardware, environ) if section.world_sizes == "auto" else section.world_sizes
        try:
            world_sizes(scope.model_copy(update={"world_sizes": sizes}), hardware, environ)
        except ConfigError as error:
            raise ConfigError(f"collectives.world_sizes: {error}") from None
        made = []
        for size in sizes:
            plan = planned(scope, hardware, size, environ)
            on_cpu = plan.rank_devices[0].type == "cpu"
            for collective in section.collectives:
                run = CollectiveRun(
                    collective=collective,
                    world_size=size,
                    device_type=plan.rank_devices[0].type,
                    backend=plan.backend,
                    dtype=section.dtype,
                    in_place=section.in_place or collective not in _SHARDED,
                    calls=section.calls,
                    seconds_per_point=section.seconds_per_point,
                    threads_per_process=config.threads_per_process,
                    oversubscribed=on_cpu and size * config.threads_per_process > hardware.cores,
                    sizes=_whole_shards(section.sizes_bytes.all, collective, size),
                )
                made.append(run)
        return made

    def measure_one(self, item: CollectiveRun, number: int, *, launcher: Launcher, seed: int, timeout: float) -> Record:
        """Measure one collective over all its sizes in fresh processes; a failure is a record."""
        record, ranks = launch(
            launcher,
            "mgpu_utils.benchmark.collectives_worker",
            item,
            item.to_dict(),
            processes=item.world_size // item.nnodes,
            threads=item.threads_per_process,
            timeout=timeout,
            nnodes=item.nnodes,
        )
        record |= {"benchmark": self.name, "key": item.key, "round": number}
        if not ranks:
            return record
        measured = ranks[0]
        points = [
            {"bytes": size} | _bandwidths(item, size, _times(seconds))
            for size, seconds in zip(item.sizes, measured["points"], strict=True)
        ]
        # A wrong element fails the run before anything is timed.
        record |= {"wrong": 0, "call": measured["call"]}
        return record | {"barrier": _times(measured["barrier"]), "points": points}

    def summarise(self, records: list[Record]) -> pd.DataFrame:
        """One row a collective, world size and message size; see `collectives_table.summarise`."""
        from mgpu_utils.benchmark.collectives_table import summarise

        return summarise(records)

    def findings(self, table: pd.DataFrame) -> list[str]:
        """Latency, bandwidth, where one turns into the other, and where the line misses."""
        from mgpu_utils.benchmark.collectives_table import findings

        return findings(table)

    def figures(self, records: list[Record], table: pd.DataFrame) -> dict[str, Figure]:
        """For each world size, time with the fitted line and its misses, and bus bandwidth."""
        from mgpu_utils.benchmark.collectives_table import landmarks
        from mgpu_utils.figures.collectives import draw

        return draw(table, landmarks())

    def quick(self, section: CollectivesSection) -> CollectivesSection:
        """One round, up to 1 MiB where that leaves sizes enough, as few repeats as there may be."""
        sizes = section.sizes_bytes
        largest = max(min(sizes.largest, 2**20), sizes.smallest * sizes.factor**2)
        changed = {
            "rounds": 1,
            "seconds_per_point": min(section.seconds_per_point, 0.02),
            "sizes_bytes": sizes.model_copy(update={"largest": largest}),
        }
        return section.model_copy(update=changed)

    def description(self, section: CollectivesSection, items: Sequence[CollectiveRun]) -> list[str]:
        """Collectives, world sizes and the range of sizes."""
        sizes = section.sizes_bytes.all
        return [
            f"collectives  {', '.join(section.collectives)}",
            f"world sizes  {', '.join(str(size) for size in sorted({item.world_size for item in items}))}",
            f"messages     {sizes[0]:,} to {sizes[-1]:,} bytes, {len(sizes)} sizes, {section.dtype}",
        ]

    def label(self, record: Record) -> str:
        """Collective and number of ranks."""
        return f"{record['collective']} on {record['world_size']} ranks"


def _up_to_all(scope: Any, hardware: Hardware, environ: Mapping[str, str]) -> list[int]:
    """Powers of two up to what the machine has, and that number itself."""
    plan = planned(scope, hardware, None, environ)
    most = plan.world_size
    if plan.backend == "gloo":
        room = hardware.cores // scope.threads_per_process
        most = min(most, room) if environ.get("MGPU_WORLD_SIZE", "").strip() else room
    if most < 2:
        raise ConfigError(
            f"collectives need 2 ranks, but there is room for {most} here ({hardware.cores} usable CPU "
            f"core{'s' if hardware.cores != 1 else ''}, {scope.threads_per_process} a rank): lower "
            "threads_per_process, name world_sizes and set oversubscribe: true, or leave collectives out"
        )
    return sorted({2**power for power in range(1, int(math.log2(most)) + 1)} | {most})


def _whole_shards(sizes: Sequence[int], collective: Collective, world_size: int) -> tuple[int, ...]:
    """The sizes cut down so that every rank has the same, aligned share of them."""
    unit = _ALIGNMENT * (world_size if collective in _SHARDED else 1)
    if sizes[0] < unit:
        raise ConfigError(
            f"collectives.sizes_bytes.smallest is {sizes[0]}, but {collective} on {world_size} ranks needs "
            f"{unit} bytes or more ({_ALIGNMENT} a rank)"
        )
    return tuple(size - size % unit for size in sizes)


def _times(seconds: Sequence[float]) -> dict[str, Any]:
    middle, low, high = median_interval(seconds)
    return {"seconds": middle, "seconds_low": low, "seconds_high": high, "repeats": len(seconds)}


def _bandwidths(item: CollectiveRun, size: int, times: dict[str, Any]) -> dict[str, Any]:
    """The times of one size with algorithm and bus bandwidth in bytes a second beside them."""
    algorithm = size / times["seconds"]
    return times | {"algbw": algorithm, "busbw": algorithm * BUS_FACTORS[item.collective](item.world_size)}


KIND = Collectives()
