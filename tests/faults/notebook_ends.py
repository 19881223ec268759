"""How long ranks outlive a notebook's kernel that ends, in a real kernel."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from notebook_kernel import NotebookKernel

_START = "import mgpu_utils as mgpu\nranks = mgpu.start_ranks(2, device='cpu', timeout=600)"
_STUCK = "ranks.execute('if rank == 0:\\n    dist.barrier()')"
_GIL = "ranks.execute('import itertools\\nany(itertools.repeat(0))')"


def _restarted(kernel: NotebookKernel) -> None:
    kernel.manager.restart_kernel(now=False)


def _shut_down(kernel: NotebookKernel) -> None:
    kernel.manager.shutdown_kernel(now=False)


def _killed(kernel: NotebookKernel) -> None:
    kernel.kill()


WAYS: dict[str, list[tuple[str, Callable[[NotebookKernel], None]]]] = {
    "the kernel is restarted or shut down": [("", _restarted), (_STUCK, _restarted), ("", _shut_down)],
    "the kernel is killed while idle, stuck, or holding the GIL": [("", _killed), (_STUCK, _killed), (_GIL, _killed)],
}


def seconds_until_gone() -> dict[str, tuple[float, int]]:
    """By fault: the longest time from asking the kernel to end until its ranks are gone, and how many were left."""
    found = {}
    for name, ways in WAYS.items():
        times = [_one(running, end) for running, end in ways]
        found[name] = (max(seconds for seconds, _ in times), max(left for _, left in times))
    return found


def _one(running: str, end: Callable[[NotebookKernel], None]) -> tuple[float, int]:
    files = tempfile.TemporaryDirectory(prefix="ends-", ignore_cleanup_errors=True)
    with files as folder, NotebookKernel(Path(folder)) as kernel:
        kernel.execute(_START)
        ranks = kernel.processes()
        assert len(ranks) == 2
        if running:
            kernel.client.execute(running)
            time.sleep(1.0)
        began = time.monotonic()
        end(kernel)
        while (left := [rank for rank in ranks if rank.is_running()]) and time.monotonic() < began + 30.0:
            time.sleep(0.02)
        return time.monotonic() - began, len(left)
