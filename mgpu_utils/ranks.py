"""A group of rank processes behind a notebook: start, run, restart, shut down.

Each rank is an IPython kernel in a process of its own. The notebook hosts the `TCPStore` at which the
ranks meet, on 127.0.0.1 and on a port that the system chooses.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from .devices import plan
from .learner_code import CellIndex
from .planning import Plan
from .rank_errors import BadArgument, RankError, RankInterrupt
from .rank_kernel import RankKernel
from .rank_outcome import Request
from .rank_output import OutputView
from .rank_texts import not_started
from .rank_watch import watch
from .rendezvous import loopback_store, rank_environment

_START_SECONDS = 120.0
# torch's own timeout of a collective stays far above the group's, so that it is the group that explains.
_PEER_SECONDS = 86_400.0
_RANK_SIDE = "__import__('mgpu_utils.rank_process').rank_process"
_RUN_FUNCTION = f"{_RANK_SIDE}.run_function()"
# Those of start_ranks that are not shut down; the last one is the current one.
_started: list[RankGroup] = []
_starting = threading.Lock()


@dataclass(frozen=True)
class CellResult:
    """What one rank made of a cell.

    Attributes:
        rank: its number.
        text: everything it printed, stdout and stderr, as one string.
        seconds: time from sending the cell to the rank's reply.
    """

    rank: int
    text: str = field(repr=False)
    seconds: float


class RankGroup:
    """Rank processes that form one `torch.distributed` process group. Made by `start_ranks`.

    Attributes:
        world_size: number of ranks.
        timeout: seconds a cell or call may take before `RankTimeout`; may be set at any time.
        plan: devices, backend, and the reason for them.
    """

    def __init__(self, plan: Plan, timeout: float, threads_per_rank: int) -> None:
        self.plan = plan
        self.world_size = len(plan.rank_devices)
        self.timeout = timeout
        self.threads_per_rank = threads_per_rank
        self._kernels: list[RankKernel] = []
        self._lost: dict[int, str] = {}
        self._compared_by_torch = False
        self._of_start_ranks = False
        self.cells = CellIndex(_RANK_SIDE)
        self._busy = threading.Lock()
        self._store: Any = None
        self._generation = 0
        self._owner = os.getpid()
        self._start()

    @property
    def timeout(self) -> float:
        """Seconds a cell or call on the ranks may take."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._timeout = checked_timeout(seconds)

    @property
    def device(self) -> str:
        """Type of the ranks' devices, such as `cpu` or `cuda`."""
        return self.plan.rank_devices[0].type

    @property
    def backend(self) -> str:
        """Backend of the process group: `nccl` or `gloo`."""
        return self.plan.backend

    @property
    def needs_restart(self) -> bool:
        """Whether a rank is missing, so that only `restart` makes the group whole again."""
        self._notice_idle_deaths()
        return bool(self._lost)

    def run(self, fn: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Call `fn(*args, **kwargs)` on every rank at the same time; returns one result a rank, in rank order.

        The function may be defined in a notebook cell. It, its arguments and its results travel by value: a model or
        tensor passed in is a copy on each rank; results on an accelerator come back on the CPU. The default process
        group is ready. In the function `rank`, `world_size`, `local_rank` and `device` are the rank's own, whatever
        the notebook calls so. Any other global name is the notebook's, which travels with the function; where the
        notebook has none, it is the rank's (`torch`, `dist`, `mgpu`, and what `%%ranks` cells defined). Where both
        have one, with values known to differ, a note says so the first time.

        Raises:
            TypeError: the function or an argument cannot be sent.
            RankError: a rank raised, or died.
            RankTimeout: the ranks did not finish within `timeout` seconds.
        """
        from .by_value import dump_call

        payload = dump_call(fn, args, kwargs)
        outcomes = self._execute({r: Request(_RUN_FUNCTION, [payload]) for r in range(self.world_size)})
        return [pickle.loads(outcome.result) for outcome in outcomes]

    def execute(self, code: str, rank: int | None = None) -> list[CellResult]:
        """Execute source code on every rank, or on one; what `%%ranks` and `%%rank` call.

        Raises:
            ValueError: there is no such rank.
            RankError, RankTimeout: as for `run`.
        """
        if not isinstance(code, str):
            raise BadArgument(
                f"execute takes source code as text, not {type(code).__name__}; a function goes to `run`."
            )
        if rank is not None and (isinstance(rank, bool) or rank not in range(self.world_size)):
            raise BadArgument(f"there is no rank {rank!r}: this group has ranks 0 to {self.world_size - 1}.")
        chosen = range(self.world_size) if rank is None else [rank]
        outcomes = self._execute({r: Request(code) for r in chosen})
        return [CellResult(o.rank, o.text, o.seconds) for o in outcomes]

    def _execute(self, requests: dict[int, Request]) -> list[Any]:
        if not self._busy.acquire(blocking=False):
            raise RankError("the ranks are busy with another call; wait for it, or start a second group.")
        try:
            self._check_usable(list(requests))
            for request in requests.values():
                self.cells.remember(request.code)
            view = OutputView(list(requests))
            return watch(self, requests, view)
        finally:
            self._busy.release()

    def _check_usable(self, ranks: list[int]) -> None:
        if not self._kernels:
            raise RankError("this group was shut down; call `ranks.restart()`, or start another with `start_ranks`.")
        if os.getpid() != self._owner:
            raise RankError("this group belongs to another process; start one here with `start_ranks`.")
        self._notice_idle_deaths()
        lost = [rank for rank in ranks if rank in self._lost]
        if lost:
            reasons = "; ".join(f"rank {rank}: {self._lost[rank]}" for rank in lost)
            raise RankError(f"the group is not complete ({reasons}). Call `ranks.restart()` for a fresh one.")

    def _notice_idle_deaths(self) -> None:
        for rank, kernel in enumerate(self._kernels):
            if rank not in self._lost and kernel.process.poll() is not None:
                self._lost[rank] = "its process ended while it was idle"

    def restart(self) -> None:
        """End every rank and start the group afresh; names defined on the ranks are gone."""
        self._end()
        self._start()
        if self._of_start_ranks and self not in _started:
            # Where another group has taken its place, that one stays the current one.
            _started.insert(0, self)

    def shutdown(self) -> None:
        """End every rank. Safe to call twice; leaves no process."""
        self._end()
        self._store = None
        if self in _started:
            _started.remove(self)

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    def __len__(self) -> int:
        return self.world_size

    def __repr__(self) -> str:
        state = "shut down" if not self._kernels else "needs restart()" if self.needs_restart else "ready"
        threads = f"{self.threads_per_rank} thread{'s' if self.threads_per_rank != 1 else ''} each"
        return f"<{self.world_size} {self.device.upper()} ranks, {self.backend}, {threads}: {state}>"

    def _start(self) -> None:
        if self._store is None:
            self._store = loopback_store(_START_SECONDS)
        self._generation += 1
        self._lost.clear()
        # Its process groups then compare the ranks' calls before they make them.
        self._compared_by_torch = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
        try:
            for rank in range(self.world_size):
                env = rank_environment(rank, self.world_size, self._store.port, self.threads_per_rank)
                try:
                    self._kernels.append(RankKernel(rank, env))
                except OSError as error:
                    raise RankError(not_started(rank, error)) from None
            deadline = time.monotonic() + _START_SECONDS
            for kernel in self._kernels:
                while not kernel.try_connect() and time.monotonic() < deadline and kernel.process.poll() is None:
                    time.sleep(0.005)
                if kernel.client is None or not kernel.wait_for_output_channel(deadline):
                    raise RankError(
                        f"rank {kernel.rank} did not start. It said:\n{kernel.read_report().strip() or '(nothing)'}"
                    )
            path = [entry for entry in sys.path if entry]
            requests = {}
            for rank, device in enumerate(self.plan.rank_devices):
                arguments: tuple[Any, ...] = (rank, self.world_size, str(device), self.backend, self._store.port)
                arguments += (f"group{self._generation}", self.threads_per_rank, _PEER_SECONDS, path)
                requests[rank] = Request(f"{_RANK_SIDE}.join(*{arguments!r})")
            watch(self, requests, OutputView(list(requests)), timeout=_START_SECONDS, show_output=False)
            for kernel in self._kernels:
                kernel.delete_keys()
        except BaseException as error:
            self._end()
            self._store = None
            if isinstance(error, KeyboardInterrupt):
                raise RankInterrupt(
                    "stopped while the ranks were starting, so none runs now: start them again."
                ) from None
            raise

    def _end(self) -> None:
        if os.getpid() != self._owner:
            return
        try:
            for kernel in self._kernels:
                kernel.ask_to_leave()
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline and any(kernel.process.poll() is None for kernel in self._kernels):
                time.sleep(0.01)
        finally:
            # Also when this is interrupted; a rank is forgotten only when it is gone.
            while self._kernels:
                self._kernels[-1].kill()
                self._kernels.pop()


def start_ranks(
    world_size: int | None = None, *, device: str = "auto", timeout: float = 60.0, threads_per_rank: int = 1
) -> RankGroup:
    """Start `world_size` ranks and join them into one process group; a group started before is shut down.

    Args:
        world_size: number of ranks; by default one for each GPU where there are two or more, else 2.
        device: `auto` (two or more GPUs: one rank a GPU over nccl; else CPU ranks over gloo), `cpu`, `cuda`, ...
        timeout: seconds that one cell or call on the ranks may take.
        threads_per_rank: intra-op threads of each rank; 1 by default, so that ranks on a CPU compare fairly.

    Raises:
        ValueError: an argument makes no sense here; the message says which and what would.
        RankError: a rank could not be started; the message holds what it said.
    """
    if "MGPU_INSIDE_RANK" in os.environ:
        raise BadArgument("start_ranks was called on a rank; ranks are started from the notebook.")
    if isinstance(threads_per_rank, bool) or not isinstance(threads_per_rank, int) or threads_per_rank < 1:
        raise BadArgument(f"threads_per_rank must be a whole number from 1, not {threads_per_rank!r}.")
    try:
        chosen = plan(world_size, device)
    except ValueError as error:
        raise BadArgument(str(error)) from None
    seconds = checked_timeout(timeout)
    with _starting:
        _shut_down_all()
        _register_magics()
        group = RankGroup(chosen, seconds, threads_per_rank)
        group._of_start_ranks = True
        _started.append(group)
        return group


def checked_timeout(seconds: float) -> float:
    """The timeout itself, if it is one.

    Raises:
        ValueError: it is not a number above 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < sys.float_info.max:
        raise BadArgument(f"timeout must be a number of seconds above 0, not {seconds!r}.")
    return float(seconds)


def current_group() -> RankGroup:
    """The group started last in this process.

    Raises:
        RankError: no group was started, or it was shut down.
    """
    if not _started:
        raise RankError("no ranks are running; start some first: `ranks = mgpu.start_ranks(2)`.")
    return _started[-1]


@atexit.register
def _shut_down_all() -> None:
    for group in list(_started):
        group.shutdown()


def _register_magics() -> None:
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None and "ranks" not in shell.magics_manager.magics["cell"]:
        from .magics import register

        register(shell)
