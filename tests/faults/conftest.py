"""Groups of ranks that all tests of faults share, and the processes that work through the fault matrix meanwhile."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_cases import SIZES
from leftovers import Leftovers
from measured import Recorder
from runner_process import Runner

from mgpu_utils.devices import plan
from mgpu_utils.ranks import RankGroup

HERE = Path(__file__).parent
_MATRIX = "test_fault_matrix.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The matrix mostly waits, so the other tests of this folder come first and run meanwhile.
    mine = [item for item in items if item.path.parent == HERE]
    if mine:
        after = items.index(mine[-1]) + 1
        last = [item for item in mine if item.path.name == _MATRIX]
        items[:] = [item for item in items[:after] if item not in last] + last + items[after:]


@pytest.fixture(scope="package")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for temporary files of this process and of the ranks it starts, theirs alone."""
    folder = tmp_path_factory.mktemp("temporary")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    variable, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), str(folder)
    yield folder
    tempfile.tempdir = before
    os.environ.pop("TMPDIR")
    if variable is not None:
        os.environ["TMPDIR"] = variable


@pytest.fixture(scope="package")
def groups(temporary: Path) -> Iterator[Callable[[int], RankGroup]]:
    """Gives the group of a world size, whole and with its usual patience."""
    made: dict[int, RankGroup] = {}

    def give(world_size: int) -> RankGroup:
        if world_size not in made:
            made[world_size] = RankGroup(plan(world_size, "cpu"), 60.0, 1)
        group = made[world_size]
        if group.needs_restart:
            group.restart()
        group.timeout = 60.0
        return group

    yield give
    for group in made.values():
        group.shutdown()


@pytest.fixture(scope="package", autouse=True)
def runners(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recorder: Recorder
) -> Iterator[dict[int, Runner]]:
    """By world size: the process that makes all the faults which were chosen. While measuring, one after the other."""
    chosen: dict[int, list[str]] = {size: [] for size in SIZES}
    for item in request.session.items:
        if item.path == HERE / _MATRIX and isinstance(item, pytest.Function):
            chosen[item.callspec.params["world_size"]].append(item.callspec.params["fault"].name)
    started: dict[int, Runner] = {}
    for size, names in chosen.items():
        if names:
            started[size] = Runner(size, names, tmp_path_factory.mktemp(f"ranks-{size}"))
            if recorder.active:
                started[size].outcome(names[-1])
    yield started
    for runner in started.values():
        runner.end()


@pytest.fixture
def left_behind(temporary: Path, runners: dict[int, Runner]) -> Callable[[RankGroup], Callable[[], list[str]]]:
    """Called with a group before a fault, gives a function that tells after it what is there and was not before."""
    apart = [runner.process.pid for runner in runners.values()]
    return lambda group: Leftovers(group, temporary, apart).look


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    """Keeps figures for docs/robustness.md where the run was asked for them, and otherwise forgets them."""
    kept = Recorder()
    yield kept
    kept.write()


@pytest.fixture
def works_again(recorder: Recorder) -> Callable[[str, RankGroup, float, Callable[[], list[str]]], None]:
    """Called after a fault with its name, the group, when it began and what finds leftovers: all is as before."""

    def check(name: str, group: RankGroup, began: float, look: Callable[[], list[str]]) -> None:
        group.execute("dist.all_reduce(torch.ones(1))")
        recovered = time.monotonic() - began
        left = look()
        assert left == []
        recorder.fault(name, group.world_size, recovered, left)

    return check
