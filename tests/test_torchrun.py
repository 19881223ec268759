"""Launching through torch.distributed.run: results, reasons, and no process left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from mgpu_utils import torchrun
from mgpu_utils.rendezvous import loopback_interface

SCRIPT = """
import os, signal, sys, time
import torch, torch.distributed as dist
from mgpu_utils import torchrun

mode, rank = sys.argv[1], int(os.environ["RANK"])
print("hello from", rank, flush=True)
dist.init_process_group("gloo")
if mode == "raise" and rank == 1:
    raise ValueError("label 12 is out of range")
if mode == "status" and rank == 1:
    sys.exit(3)
if mode == "early" and rank == 1:
    sys.exit(0)
if mode == "kill" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "hang":
    open(os.path.join(sys.argv[2], f"pid-{rank}"), "w").write(str(os.getpid()))
    if rank == 1:
        time.sleep(600)
dist.all_reduce(torch.ones(1))
if mode == "exit":
    torchrun.leave()
torchrun.deliver({
    "rank": rank,
    "threads": torch.get_num_threads(),
    "address": os.environ["MASTER_ADDR"],
    "interface": os.environ["GLOO_SOCKET_IFNAME"],
    "greeting": os.environ.get("GREETING"),
    "arguments": sys.argv[1:],
    "name": __name__,
    "leads_its_session": os.getsid(0) == os.getpid(),
})
if mode == "abort":
    dist.barrier()
    os.abort()
torchrun.leave()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torchrun") / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def launcher() -> Iterator[torchrun.Launcher]:
    with torchrun.Launcher() as launcher:
        yield launcher


Launch = Callable[..., torchrun.TorchrunResult]


@pytest.fixture(params=["new interpreters", "forks"])
def launch(request: pytest.FixtureRequest, launcher: torchrun.Launcher, script: Path) -> Launch:
    """Launches the script with what it is given, its ranks as new interpreters or as forks of the launcher."""
    return partial(launcher.run, script, fork=request.param == "forks")


def pids_in(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("pid-*") if path.read_text()]


def wait_until_gone(pids: list[int], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(psutil.pid_exists(pid) for pid in pids):
        time.sleep(0.05)
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_ranks_deliver_in_rank_order_over_loopback_with_their_threads(launch: Launch) -> None:
    result = launch(["go"], nproc_per_node=2, threads_per_rank=1, env={"GREETING": "good day"})
    assert result.ok, result.reason
    assert [rank["rank"] for rank in result.delivered] == [0, 1]
    assert {rank["threads"] for rank in result.delivered} == {1}
    assert {rank["address"] for rank in result.delivered} == {"127.0.0.1"}
    assert {rank["interface"] for rank in result.delivered} == {loopback_interface()}
    assert {rank["greeting"] for rank in result.delivered} == {"good day"}
    assert {tuple(rank["arguments"]) for rank in result.delivered} == {("go",)}
    assert {rank["name"] for rank in result.delivered} == {"__main__"}
    assert {rank["leads_its_session"] for rank in result.delivered} == {True}
    assert result.stdout == "[rank 0] hello from 0\n[rank 1] hello from 1\n"


def test_each_launch_has_its_own_environment_and_threads(launch: Launch) -> None:
    first = launch(["go"], nproc_per_node=1, threads_per_rank=2, env={"GREETING": "good evening"})
    second = launch(["go"], nproc_per_node=1)
    assert [(rank["threads"], rank["greeting"]) for rank in first.delivered] == [(2, "good evening")]
    assert [(rank["threads"], rank["greeting"]) for rank in second.delivered] == [(1, None)]


def test_a_rank_that_aborts_after_delivering_has_succeeded(launch: Launch) -> None:
    result = launch(["abort"], nproc_per_node=2)
    assert result.returncode != 0
    assert result.ok, result.reason


def test_a_script_that_delivers_nothing_is_judged_by_its_exit_code(launch: Launch) -> None:
    result = launch(["exit"], nproc_per_node=1)
    assert result.ok, result.reason
    assert result.delivered == [None]


def test_the_reason_is_the_failing_rank_s_own_exception(launch: Launch) -> None:
    result = launch(["raise"], nproc_per_node=2)
    assert not result.ok
    assert result.reason == "rank 1: ValueError: label 12 is out of range"


def test_an_exit_status_is_the_reason_where_there_is_no_exception(launch: Launch) -> None:
    result = launch(["status"], nproc_per_node=2)
    assert result.reason == "rank 1: ended with exit code 3"


def test_a_rank_that_ends_early_without_an_error_holds_up_nobody(launch: Launch) -> None:
    result = launch(["early"], nproc_per_node=2, timeout=60)
    assert result.seconds < 55
    assert not result.ok
    if launch.keywords["fork"]:  # type: ignore[attr-defined]
        assert str(result.reason).startswith("rank 1: RuntimeError: it ended (sys.exit?) before it left its group")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_rank_that_is_killed_is_named_with_its_signal(launch: Launch) -> None:
    result = launch(["kill"], nproc_per_node=2)
    assert result.reason == "rank 1: was ended by SIGKILL"


def test_a_hanging_launch_ends_at_its_timeout_and_the_next_one_works(launch: Launch, tmp_path: Path) -> None:
    done = threading.Event()
    seen: list[int] = []

    def watch() -> None:
        while not done.is_set():
            seen[:] = pids_in(tmp_path)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = launch(["hang", str(tmp_path)], nproc_per_node=2, timeout=10)
    done.set()
    watcher.join()
    assert not result.ok
    assert "did not finish within 10 s" in str(result.reason)
    assert len(seen) == 2
    assert wait_until_gone(seen, 3) == []
    assert launch(["go"], nproc_per_node=1).ok


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("fork", [False, True])
def test_killing_the_process_that_launched_leaves_no_rank(script: Path, tmp_path: Path, fork: bool) -> None:
    code = (
        "from mgpu_utils import torchrun; "
        f"torchrun.Launcher().run({str(script)!r}, ['hang', {str(tmp_path)!r}], nproc_per_node=2, fork={fork})"
    )
    owner = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len(pids_in(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    family = [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]
    assert set(pids_in(tmp_path)) <= set(family)
    owner.kill()
    owner.wait()
    assert wait_until_gone(family, 3) == []


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("unshare"),
    reason="needs root on Linux to take this machine's name away for one process",
)
def test_it_works_where_the_host_name_does_not_resolve(script: Path) -> None:
    code = (
        "import socket; socket.sethostname('no-such-host.invalid');"
        "from mgpu_utils import torchrun;"
        f"result = torchrun.run({str(script)!r}, ['go'], nproc_per_node=2, timeout=60);"
        "print(socket.gethostname(), result.reason)"
    )
    said = subprocess.run(["unshare", "--uts", sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.strip() == "no-such-host.invalid None", said.stderr


def test_two_launches_at_once_do_not_get_in_each_other_s_way(launcher: torchrun.Launcher, script: Path) -> None:
    results: list[torchrun.TorchrunResult] = []
    other = threading.Thread(target=lambda: results.append(torchrun.run(script, ["go"], nproc_per_node=2)))
    other.start()
    results.append(launcher.run(script, ["go"], nproc_per_node=2))
    other.join()
    assert [result.reason for result in results] == [None, None]


def test_a_script_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no script .*missing\.py"):
        torchrun.run(tmp_path / "missing.py", nproc_per_node=2)


def test_fewer_than_one_rank_is_refused(script: Path) -> None:
    with pytest.raises(ValueError, match="must be 1 or more, not 0 and 1"):
        torchrun.run(script, nproc_per_node=0)
