"""One launch on several machines: what each machine is told, and how their parts become one result."""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu_utils.machine_crew import GRACE_SECONDS, Crew
from mgpu_utils.machines import endpoint_text
from mgpu_utils.rendezvous import loopback_interface, store_on
from mgpu_utils.torchrun_outcome import Outcome, failure

if TYPE_CHECKING:
    from mgpu_utils.torchrun import Launcher

_STORE_SECONDS = 300


@dataclass(frozen=True)
class Job:
    """What to start: a script or module, its arguments, and how many ranks of how many threads on each machine.

    ``fork`` starts the ranks from a process that has imported PyTorch already.
    """

    target: str
    args: tuple[str, ...]
    nproc_per_node: int
    threads_per_rank: int
    env: dict[str, str] = field(default_factory=dict)
    fork: bool = False


@dataclass(frozen=True)
class Place:
    """Where one machine stands in a launch: its number, the store where all meet, its own address and interface."""

    nnodes: int
    node_rank: int
    host: str
    port: int
    address: str
    interface: str | None
    run_id: str = ""

    def ranks(self, nproc_per_node: int) -> range:
        """The ranks that run on this machine."""
        return range(self.node_rank * nproc_per_node, (self.node_rank + 1) * nproc_per_node)

    def arguments(self) -> list[str]:
        """The options of ``torch.distributed.run`` which say all this."""
        shared = [f"--rdzv-id={self.run_id or uuid.uuid4().hex}", f"--local-addr={self.address}"]
        endpoint = f"--rdzv-endpoint={endpoint_text(self.host, self.port)}"
        if self.nnodes == 1:
            return [*shared, "--rdzv-backend=c10d", endpoint]
        return [
            *(*shared, "--rdzv-backend=mgpu", endpoint, f"--nnodes={self.nnodes}", f"--node-rank={self.node_rank}"),
            f"--rdzv-conf=rank={self.node_rank},timeout={_STORE_SECONDS}",
        ]


# The ranks of one machine meet over loopback on a port the system picks.
ONLY_MACHINE = Place(1, 0, "127.0.0.1", 0, "127.0.0.1", loopback_interface())


def run_together(
    crew: Crew, launcher: Launcher, job: Job, nnodes: int, *, timeout: float | None, log_dir: str | Path | None
) -> tuple[dict[int, Outcome], str | None]:
    """Do ``job`` on the first ``nnodes`` machines; return each machine's outcome and why it failed, None if not.

    A machine without an outcome was lost, or did not end when the others did.
    """
    missing = crew.missing(nnodes)
    if missing is not None:
        return {}, missing
    started = time.monotonic()
    # A new store for each launch: no key of the one before can be mistaken, and it listens on one address alone.
    store = store_on(crew.address, _STORE_SECONDS)
    place = Place(nnodes, 0, crew.address, store.port, crew.address, crew.interface, uuid.uuid4().hex)
    told = {"nnodes": nnodes, "host": place.host, "port": place.port, "run_id": place.run_id}
    agent = launcher.ready_agent()
    part = crew.start({"job": asdict(job), "place": told}, nnodes, on_trouble=agent.kill)
    try:
        here = launcher.run_part(job, place, agent=agent, timeout=timeout, log_dir=log_dir)
        left = GRACE_SECONDS if timeout is None else min(GRACE_SECONDS, started + timeout - time.monotonic())
        part.finish(max(left, 0))
    except BaseException:
        part.finish(0)
        raise
    there = {rank: Outcome.from_dict(result) for rank, result in part.results.items() if "problem" not in result}
    outcomes = {0: here} | there
    problems = [
        f"node rank {rank}: {result['problem']}" for rank, result in part.results.items() if "problem" in result
    ]
    silent = sorted(part.nodes - part.results.keys())
    return outcomes, _reason(outcomes, problems, part.trouble, silent, here, timeout)


def part_of(message: dict[str, Any], node_rank: int, address: str, interface: str) -> tuple[Job, Place]:
    """Return what a launch that came from node rank 0 means on this machine."""
    job = Job(**(message["job"] | {"args": tuple(message["job"]["args"])}))
    return job, Place(**message["place"], node_rank=node_rank, address=address, interface=interface)


def took_too_long(timeout: float | None) -> str:
    """Return the reason of a launch that was ended at its ``timeout`` in seconds."""
    return f"it did not finish within {timeout:g} s, so all its processes were ended"


def _reason(
    outcomes: dict[int, Outcome],
    problems: list[str],
    trouble: str | None,
    silent: list[int],
    here: Outcome,
    timeout: float | None,
) -> str | None:
    if trouble is not None:
        return trouble
    if problems:
        return problems[0]
    if not here.finished:
        return took_too_long(timeout)
    found = failure(outcomes)
    if found is None and silent:
        return f"node rank {silent[0]} had not ended {GRACE_SECONDS:g} s after node rank 0, so it was ended there"
    return found
