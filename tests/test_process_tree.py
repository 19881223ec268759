"""Ending a process with everything it started."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil

from mgpu_utils.process_tree import kill_tree


def test_the_whole_tree_ends_and_the_exit_status_is_left_to_whoever_started_it() -> None:
    code = (
        "import subprocess, sys, time; "
        "other = subprocess.Popen(['sleep', '600'], start_new_session=True); print(other.pid, flush=True); "
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = psutil.Process(int(process.stdout.readline()))
        kill_tree(process.pid)
        assert not other.is_running()
        assert process.poll() == -signal.SIGKILL


def test_a_process_that_is_gone_is_nothing_to_do() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        kill_tree(process.pid)
    assert process.returncode == 0
