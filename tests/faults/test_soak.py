"""Many cells with random faults in one notebook: nothing is lost, and the notebook does not grow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from soak import soak

CELLS = 40


@pytest.mark.skipif(sys.platform == "win32", reason="these faults are made with POSIX signals")
def test_a_notebook_with_random_faults_loses_nothing_and_does_not_grow(
    tmp_path: Path, note: Callable[[str], None]
) -> None:
    found = soak(CELLS, seed=18, folder=tmp_path, look_every=10)
    assert found.wrong == []
    assert found.cells >= CELLS
    assert len(found.faults) >= 4
    assert found.restarts >= 2
    # The first cells import what the later ones need.
    early, last = found.sizes[1], found.sizes[-1]
    assert last.cells > early.cells
    assert last.descriptors <= early.descriptors + 2
    assert last.processes == 2
    assert last.files == 0
    assert last.memory < early.memory + 48
    note(f"soak: {found.cells} cells in {found.seconds:.0f} s, memory {early.memory:.0f} to {last.memory:.0f} MiB")
