"""The ways to run ranks from a notebook that are compared, each as a learner would type it.

Each has its usual good settings: gloo on loopback, and a timeout for collectives as this course's ranks have one.
`mp.spawn` and `torchrun` get a file, because they cannot run what stands in a notebook's cell.
"""

from __future__ import annotations

import secrets
import socket
import textwrap
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 10.0
# One write for a line: what two processes print at once may be mixed.
SUM = 'x = torch.ones(1)\ndist.all_reduce(x)\nprint(f"the sum is {int(x)}\\n", end="", flush=True)'
_LOCK = "import threading\nlock = threading.Lock()"
# The names of its modules are out of the way of those that the trial imports.
_FILE = """\
import os as _os
from datetime import timedelta
import torch, torch.distributed as dist

def main(rank, port=None, results=None):
    if port is not None:
        _os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds={patience}))
{code}
    dist.destroy_process_group()

if __name__ == "__main__":
    main(int(_os.environ["RANK"]))
"""


@dataclass(frozen=True)
class Trial:
    """What the ranks do: run source code, or hand a lock to the notebook, which no tool can send.

    Attributes:
        patience: seconds of the timeout for collectives.
    """

    code: str = SUM
    returns_a_lock: bool = False
    patience: float = PATIENCE


class Launcher:
    """One way to run two ranks. Methods give the source of cells; `folder` is the notebook's.

    Attributes:
        anew: what makes it usable again where the next call alone does not.
        tells: which line of what is shown says most: the first or the last one.
    """

    name = ""
    anew = ""
    tells = -1

    def begin(self, patience: float) -> str:
        """What is typed once, before the ranks do anything."""
        return "import sys"

    def again(self) -> str:
        """What is typed to make it usable again; empty where each call starts anew."""
        return ""

    def cell(self, folder: Path, trial: Trial) -> str:
        """The cell with the trial. Each rank leaves a file `here-RANK` when it has come to it."""
        raise NotImplementedError


class Ours(Launcher):
    """`mgpu.start_ranks` and `%%ranks`."""

    name, anew, tells = "this course", "`ranks.restart()`", 0

    def begin(self, patience: float) -> str:
        return f"import mgpu_utils as mgpu\nranks = mgpu.start_ranks(2, device='cpu', timeout={patience})"

    def again(self) -> str:
        return "ranks.restart()"

    def cell(self, folder: Path, trial: Trial) -> str:
        if trial.returns_a_lock:
            return f"def work():\n{_indented(_here(folder), _LOCK, 'return lock')}\n\nranks.run(work)"
        return f"%%ranks\n{_here(folder)}\nodd = rank == 1\n{trial.code}"


class Spawn(Launcher):
    """`torch.multiprocessing.spawn`, with a function from a file."""

    name = "`mp.spawn`"

    def cell(self, folder: Path, trial: Trial) -> str:
        module = _write(folder, trial, "results.put(lock)")
        results = "mp.get_context('spawn').SimpleQueue()" if trial.returns_a_lock else ""
        return (
            f"import torch.multiprocessing as mp\nsys.path.insert(0, {str(folder)!r})\nimport {module}\n"
            f"mp.spawn({module}.main, args=({_free_port()}, {results}), nprocs=2)"
        )


class Torchrun(Launcher):
    """`!torchrun`, with a script."""

    name = "`torchrun` in a cell"

    def cell(self, folder: Path, trial: Trial) -> str:
        module = _write(folder, trial, "torch.save(lock, f'result-{rank}.pt')")
        return f"!{{sys.executable}} -m torch.distributed.run --standalone --nproc-per-node 2 {folder / module}.py"


class Ipyparallel(Launcher):
    """A cluster of two engines and `%%px`."""

    name, anew = "ipyparallel", "a new cluster"

    def begin(self, patience: float) -> str:
        join = "\n".join(
            [
                "import torch, torch.distributed as dist",
                "from datetime import timedelta",
                "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:%d', rank=rank, world_size=2, "
                f"timeout=timedelta(seconds={patience}))",
            ]
        )
        return (
            "import ipyparallel as ipp\n"
            f"cluster = ipp.Cluster(n=2, log_level=40)\njoin = {join!r}\n{self._started(_free_port())}"
        )

    def again(self) -> str:
        stop = "cluster.stop_cluster_sync()\ncluster = ipp.Cluster(n=2, log_level=40)"
        return f"{stop}\n{self._started(_free_port())}"

    def _started(self, port: int) -> str:
        return (
            "client = cluster.start_and_connect_sync()\nview = client[:]\nview.block = True\nview.activate()\n"
            f"view.scatter('rank', client.ids, flatten=True)\nview.execute(join % {port})"
        )

    def cell(self, folder: Path, trial: Trial) -> str:
        if trial.returns_a_lock:
            return f"def work():\n{_indented(_here(folder), _LOCK, 'return lock')}\n\nview.apply_sync(work)"
        return f"%%px\n{_here(folder)}\nodd = rank == 1\n{trial.code}"


def _here(folder: Path) -> str:
    return f"open({str(folder)!r} + f'/here-{{rank}}', 'w').close()"


def _indented(*parts: str) -> str:
    return textwrap.indent("\n".join(parts), "    ")


def _write(folder: Path, trial: Trial, deliver: str) -> str:
    """Write the trial into a module of its own; returns its name."""
    name = f"work_{secrets.token_hex(4)}"
    code = f"{_LOCK}\n{deliver}" if trial.returns_a_lock else trial.code
    code = _indented(_here(folder), "odd = rank == 1", code)
    (folder / f"{name}.py").write_text(_FILE.format(patience=trial.patience, code=code), encoding="utf-8")
    return name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


LAUNCHERS = [Ours(), Spawn(), Torchrun(), Ipyparallel()]
