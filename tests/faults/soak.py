"""Many cells with random faults in one notebook: `python tests/faults/soak.py --cells 1000 --seed 1`.

Every third cell or so is a fault that the fault matrix knows, the others work. What each cell shows is compared with
what it must show, and the kernel's memory, descriptors, processes and files are looked at on the way.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fault_cases import ON_RANKS, Fault, filled
from notebook_kernel import Cell, NotebookKernel

WORLD_SIZE = 2
SEEN_AT_ONCE = [fault for fault in ON_RANKS if not fault.waits and not fault.stop]
# The rest need a second or more each, so they come up less often.
LATER = [fault for fault in ON_RANKS if fault.waits or fault.stop]
_START = "import mgpu_utils as mgpu\nranks = mgpu.start_ranks(2, device='cpu', timeout=60)\ncells = 0"
_STATE = "print(ranks.needs_restart)"


@dataclass(frozen=True)
class Size:
    """How large the notebook's kernel is after so many cells. Memory in MiB."""

    cells: int
    memory: float
    descriptors: int
    processes: int
    files: int


@dataclass
class Soak:
    """What came of it.

    Attributes:
        wrong: one line for each cell that showed something else than it must.
        faults: how often each fault came up.
        restarts: how often `ranks.restart()` was needed.
        sizes: of the kernel, every so many cells.
    """

    seed: int
    cells: int = 0
    seconds: float = 0.0
    restarts: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)

    def between(self, first: int, last: int) -> tuple[Size, Size]:
        """The sizes nearest to two numbers of cells."""
        near = [min(self.sizes, key=lambda size: abs(size.cells - cells)) for cells in (first, last)]
        return near[0], near[1]


def soak(cells: int, seed: int, folder: Path, look_every: int = 50, tell: bool = False) -> Soak:
    """Run that many cells on a kernel of their own."""
    chance, found, began = random.Random(seed), Soak(seed), time.monotonic()
    with NotebookKernel(folder) as kernel:
        run = _Cells(kernel, found)
        run.must_be(_START, "")
        while found.cells < cells:
            if chance.random() < 0.35:
                run.fault(chance.choice(SEEN_AT_ONCE if chance.random() < 0.85 else LATER))
            else:
                run.work(chance)
            if found.cells // look_every > (found.sizes[-1].cells if found.sizes else 0) // look_every:
                found.sizes.append(_size(kernel, found.cells))
                if tell:
                    print(f"{time.monotonic() - began:6.0f} s  {found.sizes[-1]}", *found.wrong, sep="\n", flush=True)
        run.must_be("print(cells)", f"{run.worked}\n")
        run.must_be("ranks.shutdown()", "")
        end = time.monotonic() + 10
        while (left := kernel.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        found.wrong += [f"left behind: {process.cmdline()}" for process in left]
        found.wrong += [f"left behind: {file.name}" for file in _files(kernel)]
    found.seconds = time.monotonic() - began
    return found


class _Cells:
    def __init__(self, kernel: NotebookKernel, found: Soak) -> None:
        self.kernel, self.found, self.worked = kernel, found, 0

    def _run(self, code: str, stop: bool = False) -> Cell:
        self.found.cells += 1
        return self.kernel.execute(code, stop_when=(lambda seconds: seconds > 1.0) if stop else None)

    def _note(self, what: str, cell: Cell) -> None:
        self.found.wrong.append(f"cell {self.found.cells}: {what}: {cell}"[:1500])

    def must_be(self, code: str, text: str) -> None:
        cell = self._run(code)
        if not cell.ended or cell.error or cell.text != text:
            self._note(f"{code!r} must show {text!r}", cell)

    def work(self, chance: random.Random) -> None:
        """One cell that works, and whose answer depends on a number of its own."""
        number = chance.randrange(1000)
        self.worked += 1
        kind = chance.randrange(4)
        if kind == 0:
            # The notebook's counter goes on only in cells without a magic; the ranks have one of their own.
            self.worked -= 1
            code = f"%%ranks\nx = torch.full((4,), {number}.0)\ndist.all_reduce(x)\nprint(int(x[0]))"
            self.must_be(code, "".join(f"[rank {rank}] {2 * number}\n" for rank in range(WORLD_SIZE)))
        elif kind == 1:
            code = f"cells += 1\nprint(ranks.run(lambda: rank + {number}))"
            self.must_be(code, f"[{number}, {number + 1}]\n")
        elif kind == 2:
            code = f"cells += 1\nprint([len(part) for part in ranks.run(lambda: bytes({number} * 1000))])"
            self.must_be(code, f"[{number * 1000}, {number * 1000}]\n")
        else:
            self.must_be(f"cells += 1\nprint({number} + 1)", f"{number + 1}\n")

    def fault(self, fault: Fault) -> None:
        """A fault, its explanation, `ranks.restart()` where the explanation asks for it, and a sum over all ranks."""
        self.found.faults[fault.name] = self.found.faults.get(fault.name, 0) + 1
        patience = fault.patience if fault.waits else 60.0
        code = f"odd = rank == {WORLD_SIZE - 1}\n{fault.code}"
        setting = self.kernel.execute(
            f"ranks.timeout = 60\nranks.execute({fault.before!r})\nranks.timeout = {patience}"
        )
        cell = self._run(f"%%ranks\n{code}", fault.stop)
        said = cell.message.splitlines()[0] if cell.message else ""
        expected = filled(fault.sees, WORLD_SIZE)
        if setting.error or not cell.ended or cell.error != fault.error or not said.startswith(expected):
            self._note(f"{fault.name} must show {fault.error}: {expected}", cell)
        state = self.kernel.execute(_STATE).text.strip()
        if state != str(fault.restart):
            self._note(f"{fault.name}: needs_restart is {state}", cell)
        if state == "True":
            self.found.restarts += 1
            self.must_be("ranks.restart()", "")
        self.must_be("%%ranks\nx = torch.ones(1)\ndist.all_reduce(x)\nprint(int(x))", "[rank 0] 2\n[rank 1] 2\n")


def _size(kernel: NotebookKernel, cells: int) -> Size:
    kernel.execute("import gc\n_ = gc.collect()")
    # What reads a rank's state needs a moment to be gone.
    time.sleep(0.2)
    with kernel.process.oneshot():
        memory = kernel.process.memory_info().rss / 2**20
        descriptors = kernel.process.num_fds() if hasattr(kernel.process, "num_fds") else 0
    return Size(cells, round(memory, 1), descriptors, len(kernel.processes()), len(_files(kernel)))


def _files(kernel: NotebookKernel) -> list[Path]:
    """Files for a while, without the cache that PyTorch keeps there by the name of the user."""
    return [file for file in kernel.temporary.iterdir() if not file.name.startswith("torchinductor_")]


def main() -> None:
    arguments = argparse.ArgumentParser(description="Many cells with random faults in one notebook.")
    arguments.add_argument("--cells", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = soak(chosen.cells, chosen.seed, Path(folder), tell=True)
    print(json.dumps(asdict(found), indent=1))
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
