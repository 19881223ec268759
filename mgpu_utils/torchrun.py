"""Start a script or module under ``torch.distributed.run``, on one machine or several, and tell what became of it.

The engine is PyTorch's own launcher (https://docs.pytorch.org/docs/stable/elastic/run.html). This module
adds what a notebook and a benchmark need around it: loopback only where there is one machine, a free port, no
process left behind, the failing rank's own exception as the reason, and a rank judged by the result it
delivered.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from mgpu_utils import torchrun_forked, torchrun_logs
from mgpu_utils.machine_crew import Crew
from mgpu_utils.machine_lead import ENVIRONMENT
from mgpu_utils.torchrun_agent import Agent
from mgpu_utils.torchrun_outcome import Outcome, failure
from mgpu_utils.torchrun_together import ONLY_MACHINE, Job, Place, run_together, took_too_long

_RESULT_DIR = "MGPU_RESULT_DIR"


@dataclass(frozen=True)
class TorchrunResult:
    """What one launch did: ``ok``, the seconds it took, each rank's delivered value and output, and why it failed."""

    returncode: int
    seconds: float
    stdout: str
    stderr: str
    delivered: list[Any] = field(default_factory=list)
    reason: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every rank did its work (see `run`)."""
        return self.reason is None


def run(
    target: str | Path,
    args: Sequence[str] = (),
    *,
    nproc_per_node: int,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    threads_per_rank: int = 1,
    log_dir: str | Path | None = None,
) -> TorchrunResult:
    """Run a script (a path ending in ``.py``) or a module (a dotted name) on ``nproc_per_node`` ranks and wait.

    The ranks meet over loopback on a port the system picks, so nothing is looked up by host name and two
    launches never collide. ``env`` is added to the ranks' environment; ``log_dir`` keeps each rank's output
    files.

    A rank that calls `deliver` is judged by what it delivered, never by how its interpreter ended
    afterwards; a launch in which no rank delivers is judged by the launcher's exit code. A launch which
    takes longer than ``timeout`` seconds, or is interrupted, is ended with all its processes.

    Raises: ValueError for fewer than one rank or thread; FileNotFoundError for a script that is not there.
    """
    with Launcher() as launcher:
        return launcher.run(
            target,
            args,
            nproc_per_node=nproc_per_node,
            env=env,
            timeout=timeout,
            threads_per_rank=threads_per_rank,
            log_dir=log_dir,
        )


class Launcher:
    """Does several launches one after another, with fresh ranks each time, and imports PyTorch's launcher once.

    Use it in a ``with`` block; leaving the block ends whatever is left. With a ``crew`` (see
    `mgpu_utils.machine_crew`) a launch can take several machines; the launcher closes the crew at its end.
    """

    def __init__(self, crew: Crew | None = None) -> None:
        self._agent: Agent | None = None
        self._crew = crew

    def run(
        self,
        target: str | Path,
        args: Sequence[str] = (),
        *,
        nproc_per_node: int,
        nnodes: int = 1,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        threads_per_rank: int = 1,
        log_dir: str | Path | None = None,
        fork: bool = False,
    ) -> TorchrunResult:
        """Do one launch; the arguments, the result and the errors are those of the function `run`.

        ``nnodes`` above 1 takes this machine and the next ones of the crew, with ``nproc_per_node`` ranks
        each. A machine that is lost ends the launch on all of them; the reason names it.

        With ``fork`` the ranks are forked from a process that has imported PyTorch and, where the target is one,
        the module, which saves each of them over two seconds of work. It is for ranks that use the CPU alone: a
        process that has touched an accelerator cannot be forked. Elsewhere than on Linux it changes nothing. Give
        a timeout: ``torch.distributed.run`` waits without end for a forked rank that leaves by ``os._exit(0)``.
        """
        if nproc_per_node < 1 or threads_per_rank < 1:
            raise ValueError(
                f"nproc_per_node and threads_per_rank must be 1 or more, not {nproc_per_node} and {threads_per_rank}."
            )
        known = 1 if self._crew is None else self._crew.nnodes
        if not 1 <= nnodes <= known:
            raise ValueError(f"nnodes is {nnodes}, but this launcher has {known} machine{'s' if known > 1 else ''}.")
        job = Job(str(target), tuple(args), nproc_per_node, threads_per_rank, dict(env or {}), fork)
        started = time.perf_counter()
        if nnodes > 1:
            assert self._crew is not None
            outcomes, reason = run_together(self._crew, self, job, nnodes, timeout=timeout, log_dir=log_dir)
        else:
            outcomes = {0: self.run_part(job, timeout=timeout, log_dir=log_dir)}
            reason = failure(outcomes) if outcomes[0].finished else took_too_long(timeout)
        delivered: list[Any] = [None] * (nnodes * nproc_per_node)
        for node_rank, outcome in outcomes.items():
            for number, value in enumerate(outcome.delivered, start=node_rank * nproc_per_node):
                delivered[number] = None if value is None else value[0]
        ranks = [log for _, outcome in sorted(outcomes.items()) for log in outcome.ranks]
        returncodes = [outcome.returncode for outcome in outcomes.values() if outcome.returncode]
        return TorchrunResult(
            returncode=returncodes[0] if returncodes else int(not outcomes),
            seconds=time.perf_counter() - started,
            stdout=torchrun_logs.merged(ranks, "stdout"),
            stderr=torchrun_logs.merged(ranks, "stderr") or "".join(outcome.said for outcome in outcomes.values()),
            delivered=delivered,
            reason=reason,
        )

    def run_part(
        self,
        job: Job,
        place: Place = ONLY_MACHINE,
        *,
        agent: Agent | None = None,
        timeout: float | None = None,
        log_dir: str | Path | None = None,
    ) -> Outcome:
        """Do this machine's part of a launch.

        With an ``agent`` (see `ready_agent`) another thread can end it before it has begun: by killing that.
        """
        entry, imports = _forked_entry(job.target) if job.fork else (_entry(job.target), [])
        agent = agent or self.ready_agent()
        ranks = place.ranks(job.nproc_per_node)
        with tempfile.TemporaryDirectory(prefix="mgpu-torchrun-", ignore_cleanup_errors=True) as scratch:
            results, agent_log = Path(scratch) / "results", Path(scratch) / "agent.log"
            logs = Path(log_dir) if log_dir is not None else Path(scratch) / "logs"
            for folder in (results, logs):
                folder.mkdir(parents=True, exist_ok=True)
            arguments = [
                *(f"--nproc-per-node={job.nproc_per_node}", *place.arguments()),
                *(f"--log-dir={logs}", "--redirects=3", *entry, *job.args),
            ]
            environment = _environment(job, place, results)
            ended = agent.launch(arguments, environment, agent_log, timeout, imports)
            return Outcome(
                returncode=ended.returncode,
                finished=ended.finished,
                delivered=[_delivered(results, rank) for rank in ranks],
                ranks=torchrun_logs.read(logs, ranks),
                said=torchrun_logs.text(agent_log),
            )

    def ready_agent(self) -> Agent:
        """Return the process for the next launch, a new one where the last one was ended."""
        if self._agent is None or not self._agent.alive:
            self._agent = Agent()
        return self._agent

    def close(self) -> None:
        """End the launcher's process, and leave the other machines."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        if self._crew is not None:
            self._crew.close()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def deliver(value: Any) -> None:
    """Hand this rank's JSON-able result to the `run` that started it; from then on this rank counts as successful.

    Outside such a launch it does nothing, so that a script can be run by hand too.
    """
    path = _own_result()
    if path is None:
        return
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def has_delivered() -> bool:
    """Whether this rank has handed over its result already; where none is wanted it has."""
    path = _own_result()
    return path is None or path.exists()


def leave() -> NoReturn:
    """End this rank cleanly: barrier, destroy the process group, flush, and exit without interpreter tear-down.

    A correct gloo run otherwise aborts now and then while the interpreter shuts down. Collective: one
    barrier.
    """
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    if multiprocessing.parent_process() is not None:
        # A forked rank ends without tear-down anyway, after it has told its launcher.
        raise SystemExit(0)
    os._exit(0)


def _entry(target: str | Path) -> list[str]:
    text = str(target)
    if text.endswith(".py") or os.sep in text:
        if not Path(text).is_file():
            raise FileNotFoundError(f"There is no script {text}; give a .py file or the dotted name of a module.")
        return [text]
    return ["--module", text]


def _forked_entry(target: str) -> tuple[list[str], list[str]]:
    """What starts a script or module in forked ranks, and what the process they are forked from imports before."""
    entry = _entry(target)
    if sys.platform != "linux":
        return entry, []
    # The first optimizer of a process imports torch._dynamo, which takes nearly as long as torch itself.
    path, imports = target, ["torch._dynamo"]
    if entry[0] == "--module":
        spec = importlib.util.find_spec(target)
        if spec is None or spec.origin is None:
            return entry, []
        path, imports = spec.origin, [*imports, target]
    return ["--start-method=fork", "--run-path", torchrun_forked.__file__, path], imports


def _environment(job: Job, place: Place, results: Path) -> dict[str, str]:
    # A launch from inside a rank must not inherit that rank's place in its own group.
    stale = {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        ENVIRONMENT,
    }
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in stale and not name.startswith(("TORCHELASTIC_", "MGPU_RESULT"))
    }
    if place.nnodes > 1 and place.interface is not None:
        # Where somebody chose an interface (InfiniBand beside Ethernet), it stays.
        environment.setdefault("GLOO_SOCKET_IFNAME", place.interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", f"={place.interface}")
    elif place.interface is not None:
        environment["GLOO_SOCKET_IFNAME"] = place.interface
    environment.update(
        OMP_NUM_THREADS=str(job.threads_per_rank),
        PYTHONUNBUFFERED="1",
        **{_RESULT_DIR: str(results)},
    )
    return environment | job.env


def _own_result() -> Path | None:
    folder = os.environ.get(_RESULT_DIR)
    return None if folder is None else _result_of(Path(folder), int(os.environ.get("RANK", "0")))


def _result_of(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


def _delivered(results: Path, rank: int) -> list[Any] | None:
    try:
        return [json.loads(_result_of(results, rank).read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return None
