"""How `mgpu bench` works on several machines: its options, node rank 0's frame around a benchmark, and the others."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu_utils.benchmark import slurm
from mgpu_utils.benchmark.follower import follow
from mgpu_utils.machine_identity import description, identity
from mgpu_utils.machine_lead import ENVIRONMENT, JOIN_SECONDS, Lead
from mgpu_utils.machines import EXAMPLE_ENDPOINT, Machines, parse, route

_OTHERS = "MGPU_OTHER_MACHINES"
DEFAULT_BATCH = Path("mgpu-bench.sbatch")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for several machines to those of `mgpu bench`."""
    group = parser.add_argument_group(
        "several machines", "start the same command on each, with its own --node-rank; node rank 0 writes the results"
    )
    group.add_argument("--nnodes", type=int, default=1, metavar="N", help="how many machines (default: 1)")
    group.add_argument("--node-rank", type=int, metavar="K", help="which of them this is, 0 to N-1")
    group.add_argument(
        "--rdzv-endpoint", metavar="HOST:PORT", help=f"where node rank 0 listens for the others, as {EXAMPLE_ENDPOINT}"
    )
    group.add_argument(
        "--join-timeout",
        type=float,
        default=JOIN_SECONDS,
        metavar="S",
        help="seconds to wait for each other (default: %(default)g)",
    )
    group.add_argument(
        "--slurm",
        type=Path,
        nargs="?",
        const=DEFAULT_BATCH,
        metavar="FILE",
        help=f"only write a batch file for Slurm that starts this on --nnodes machines (default: {DEFAULT_BATCH})",
    )
    group.add_argument("--gpus-per-node", type=int, metavar="G", help="GPUs to ask Slurm for on each machine")
    group.add_argument("--time", default="01:00:00", help="how long Slurm lets it run (default: %(default)s)")


def from_options(options: argparse.Namespace) -> Machines | None:
    """Return the machines which the command line names, None for this one alone. Raises: MachinesError."""
    return parse(options.nnodes, options.node_rank, options.rdzv_endpoint)


def write_batch(options: argparse.Namespace, arguments: Sequence[str]) -> str:
    """Write the batch file for `mgpu bench` with ``arguments``; return how to use it. Raises: MachinesError."""
    batch = slurm.Batch(options.nnodes, list(arguments), gpus_per_node=options.gpus_per_node, time=options.time)
    return slurm.write(options.slurm, batch)


@contextlib.contextmanager
def leading(
    machines: Machines | None,
    config: str,
    environment: Mapping[str, Any],
    *,
    command: str,
    join_seconds: float = JOIN_SECONDS,
) -> Iterator[Callable[[int], int]]:
    """Have the other machines ready while the block runs; on one machine it does nothing.

    The block gets a function to call with its exit status at the end: the others then end with it too.
    Where it is not called (an exception), they end with status 1.

    Args:
        config: the effective configuration as text, the same on every machine.
        environment: what `mgpu_utils.benchmark.environment.environment` says of this machine.
        command: what to start on a machine that does not come, ``{node_rank}`` standing for its number.

    Raises: MachinesError when the machines do not come or do not fit.
    """
    if machines is None:
        yield lambda status: status
        return
    told = description(environment)
    with Lead(machines, route(machines), identity(config, environment), told) as lead:
        lead.gather(join_seconds, command=command)

        def finish(status: int) -> int:
            lead.close(status)
            return status

        added = lead.environment() | {_OTHERS: json.dumps(lead.others)}
        os.environ.update(added)
        try:
            yield finish
        finally:
            for name in added:
                os.environ.pop(name, None)


def follow_lead(
    machines: Machines, config: str, environment: Mapping[str, Any], *, join_seconds: float = JOIN_SECONDS
) -> int:
    """Work for node rank 0 to its end; return the exit status (see `follow`). Raises: MachinesError."""
    told, same = description(environment), identity(config, environment)
    return follow(machines, route(machines), same, told, join_seconds=join_seconds)


def nnodes(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many machines this process may start ranks on; more than one only inside `leading`."""
    text = environ.get(ENVIRONMENT)
    return int(json.loads(text)["nnodes"]) if text else 1


def other_machines(environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """Return what node rank 1 and up are, for ``environment.json``; empty on one machine."""
    return json.loads(environ.get(_OTHERS, "[]"))
