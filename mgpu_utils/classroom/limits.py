"""Run one process within limits of time, memory and number of processes, and leave nothing of it behind."""

from __future__ import annotations

import os
import queue
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mgpu_utils.process_tree import kill_tree

_MARK = "MGPU_MARKED_RUN"
_LOOK_SECONDS = 0.1
_LOG_BYTES = 4_000


@dataclass(frozen=True)
class Limits:
    """What the code of one submission may use.

    Attributes:
        seconds: for all of a submission.
        cell_seconds: for one cell.
        memory_bytes: of all its processes together; pages that they share count once.
        output_bytes: of what its cells print and show, together.
        processes: how many there may be at once.
    """

    seconds: float = 600.0
    cell_seconds: float = 120.0
    memory_bytes: int = 6 * 2**30
    output_bytes: int = 20_000_000
    processes: int = 200


@dataclass(frozen=True)
class Ended:
    """How a limited process ended.

    Attributes:
        reason: "" by itself, else the limit it broke: `time`, `memory` or `processes`.
        status: its exit status; None when it was ended.
        peak_bytes: the most memory that was seen.
        log: the end of what it wrote to stderr.
    """

    reason: str
    status: int | None
    peak_bytes: int
    log: str


def run_limited(
    command: list[str],
    job: str,
    *,
    cwd: Path,
    env: Mapping[str, str],
    limits: Limits,
    seconds: float,
    on_line: Callable[[str], None],
) -> Ended:
    """Run `command` with `job` on its stdin and give each line of its stdout to `on_line`.

    It is ended, with every process that it started, when it breaks a limit, when `seconds` have passed, or when
    this process is interrupted. Processes that hid from their parent are found by a mark in their environment.
    """
    mark = secrets.token_hex(16)
    lines: queue.Queue[str] = queue.Queue()
    with tempfile.TemporaryFile() as log:
        reason, peak = "", 0
        deadline = time.monotonic() + seconds
        process: subprocess.Popen[bytes] | None = None
        try:
            process = subprocess.Popen(
                command, cwd=cwd, env={**env, _MARK: mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
            threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
            threading.Thread(target=_send, args=(process.stdin, job), daemon=True).start()
            while process.poll() is None and not reason:
                with suppress(queue.Empty):
                    on_line(lines.get(timeout=_LOOK_SECONDS))
                used, count = memory_of_tree(process.pid)
                peak = max(peak, used)
                if used > limits.memory_bytes:
                    reason = "memory"
                elif count > limits.processes:
                    reason = "processes"
                elif time.monotonic() > deadline:
                    reason = "time"
            status = None if reason else process.poll()
        finally:
            if process is not None:
                kill_tree(process.pid, seconds=2.0)
                process.wait()
            # Also where the interruption came while it was being started.
            _kill_marked(mark)
        _drain(lines, on_line)
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _LOG_BYTES))
        return Ended(reason, status, peak, log.read().decode("utf-8", "replace"))


def memory_of_tree(pid: int) -> tuple[int, int]:
    """Bytes in memory of a process and all below it, shared pages counted once, and how many processes they are."""
    import psutil

    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    own, shared = 0, 0
    for member in family:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            memory = member.memory_info()
            common = int(getattr(memory, "shared", 0))
            own += max(0, memory.rss - common)
            shared = max(shared, common)
    return own + shared, len(family)


def _read_lines(pipe: IO[bytes] | None, lines: queue.Queue[str]) -> None:
    assert pipe is not None
    with pipe:
        for line in pipe:
            lines.put(line.decode("utf-8", "replace").rstrip("\n"))


def _send(pipe: IO[bytes] | None, job: str) -> None:
    assert pipe is not None
    # It may have ended before it read its job; its status says so.
    with suppress(OSError), pipe:
        pipe.write(job.encode())


def _drain(lines: queue.Queue[str], on_line: Callable[[str], None]) -> None:
    # The reader may still hold the last lines for a moment after the process has ended.
    with suppress(queue.Empty):
        while True:
            on_line(lines.get(timeout=0.2))


def _kill_marked(mark: str) -> None:
    import psutil

    for _ in range(5):
        found = [process for process in psutil.process_iter() if _is_marked(process, mark)]
        if not found:
            return
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline and any(_is_marked(process, mark) for process in found):
            time.sleep(0.02)


def _is_marked(process: Any, mark: str) -> bool:
    import psutil

    if process.pid == os.getpid():
        return False
    with suppress(psutil.Error, OSError):
        return bool(process.environ().get(_MARK) == mark)
    return False
