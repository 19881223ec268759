"""One process within limits: what breaks them is ended, and nothing is left behind."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from mgpu_utils.classroom.limits import Ended, Limits, run_limited


def run(
    code: str, tmp_path: Path, *, seconds: float = 60.0, limits: Limits | None = None, job: str = ""
) -> tuple[Ended, list[str]]:
    lines: list[str] = []
    ended = run_limited(
        [sys.executable, "-c", textwrap.dedent(code)],
        job,
        cwd=tmp_path,
        env=os.environ,
        limits=limits or Limits(),
        seconds=seconds,
        on_line=lines.append,
    )
    return ended, lines


def test_a_process_that_ends_by_itself_delivers_all_its_lines_and_its_status(tmp_path: Path) -> None:
    code = "import sys; print(sys.stdin.read().upper()); sys.stderr.write('why'); sys.exit(3)"
    ended, lines = run(code, tmp_path, job="a\nb")
    assert lines == ["A", "B"]
    assert (ended.reason, ended.status, ended.log) == ("", 3, "why")


def test_memory_of_all_processes_together_is_limited(tmp_path: Path) -> None:
    code = """
        import subprocess, sys
        hog = "b = b'x' * 150_000_000; print('full', flush=True); import time; time.sleep(60)"
        for child in [subprocess.Popen([sys.executable, "-c", hog]) for _ in range(3)]:
            child.wait()
        """
    ended, _ = run(code, tmp_path, limits=Limits(memory_bytes=350_000_000))
    assert ended.reason == "memory"
    assert ended.peak_bytes > 350_000_000
    ended, lines = run("b = b'x' * 150_000_000; print('full')", tmp_path, limits=Limits(memory_bytes=350_000_000))
    assert (ended.reason, lines) == ("", ["full"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    code = """
        import mmap, os, time
        shared = mmap.mmap(-1, 200_000_000)
        shared.write(b"x" * 200_000_000)
        for _ in range(4):
            if os.fork() == 0:
                sum(shared[n] for n in range(0, 200_000_000, 4096))
                time.sleep(0.5)
                os._exit(0)
        for _ in range(4):
            os.wait()
        """
    ended, _ = run(code, tmp_path, limits=Limits(memory_bytes=600_000_000))
    assert ended.reason == ""


def test_a_process_that_starts_ever_more_is_ended_with_all_of_them(tmp_path: Path) -> None:
    code = """
        import subprocess, sys
        while True:
            child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
            print(child.pid, flush=True)
        """
    ended, pids = run(code, tmp_path, limits=Limits(processes=10))
    assert ended.reason == "processes"
    assert pids
    assert not any(is_alive(int(pid)) for pid in pids)


@pytest.mark.skipif(os.name != "posix", reason="sessions of processes are a thing of POSIX")
def test_time_is_limited_and_a_process_that_left_its_family_is_found(tmp_path: Path) -> None:
    code = """
        import os, subprocess, sys, time
        if os.fork() == 0:
            os.setsid()
            sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            print(sleeper.pid, flush=True)
            os._exit(0)
        time.sleep(600)
        """
    ended, (pid,) = run(code, tmp_path, seconds=2.0)
    assert (ended.reason, ended.status) == ("time", None)
    assert not is_alive(int(pid))


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
