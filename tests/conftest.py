"""Fixtures shared by all tests: groups of ranks that live as long as the test run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mgpu_utils.devices import plan
from mgpu_utils.ranks import RankGroup

_measured = pytest.StashKey[list[str]]()

# Output must not depend on how fast a machine is.
os.environ["MGPU_LIVE"] = "0"

# `make test ARGS=...` would hand its ARGS to every make that a test starts.
for name in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"):
    os.environ.pop(name, None)

# A shell's background job, or nohup, starts its processes with these signals ignored, and so would be all that the
# tests start. The stop button and a closed terminal are such signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes one line about something measured, never asserted; all are printed when the tests have ended."""
    return request.config.stash.setdefault(_measured, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Where tests run in several processes, each sends its lines to the one that prints.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["measured"] = session.config.stash.get(_measured, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what one process of several has measured (a hook of pytest-xdist)."""
    node.config.stash.setdefault(_measured, []).extend(getattr(node, "workeroutput", {}).get("measured", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_measured, [])
    if lines:
        terminalreporter.section("measured, not asserted")
        for line in lines:
            terminalreporter.write_line(line)


def _ready(group: RankGroup) -> RankGroup:
    """The group itself, restarted if a test before this one broke it."""
    alive = group._kernels and all(kernel.process.poll() is None for kernel in group._kernels)
    if not alive or group._lost:
        group.restart()
    group.timeout = 60.0
    return group


@pytest.fixture(scope="session")
def _two_ranks() -> Iterator[RankGroup]:
    # Not through start_ranks: it would replace a group that another test uses.
    with RankGroup(plan(2, "cpu"), 60.0, 1) as group:
        yield group


@pytest.fixture(scope="session")
def _three_ranks() -> Iterator[RankGroup]:
    with RankGroup(plan(3, "cpu"), 60.0, 1) as group:
        yield group


@pytest.fixture
def two_ranks(_two_ranks: RankGroup) -> RankGroup:
    """Two CPU ranks over gloo, ready for use."""
    return _ready(_two_ranks)


@pytest.fixture
def three_ranks(_three_ranks: RankGroup) -> RankGroup:
    """Three CPU ranks over gloo, ready for use."""
    return _ready(_three_ranks)
