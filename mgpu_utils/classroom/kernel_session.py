"""A notebook kernel that runs one cell at a time within limits, and keeps nothing of what the cell prints."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Any

MARK = "application/vnd.mgpu.mark+json"
_START_SECONDS = 120.0
# What a cell gets to end after it was interrupted, before its kernel is given up.
_GRACE_SECONDS = 5.0
_MESSAGES = ("stream", "display_data", "execute_result", "update_display_data", "error")


class KernelGone(Exception):
    """The kernel ended or hangs; nothing can be run on it any more. The message says which."""


@dataclass
class CellRun:
    """What became of one cell.

    Attributes:
        trouble: "" when it ended by itself and without an error, else one sentence.
        limit: whether that was a limit of time or output.
        marks: what it published as a mark, one dictionary each.
    """

    trouble: str
    limit: bool
    marks: list[dict[str, Any]]


class KernelSession:
    """One IPython kernel; used as a context, it is ended at the end.

    Args:
        cwd: the folder it runs in.
        cell_seconds: time for one cell.
        output_bytes: how much all cells together may print and show.
    """

    def __init__(self, cwd: Path, cell_seconds: float, output_bytes: int) -> None:
        from jupyter_client import KernelManager

        self._cell_seconds = cell_seconds
        self._output_left = output_bytes
        self._output_bytes = output_bytes
        self._manager: Any = KernelManager(kernel_name="python3")
        # Its own stdout is not this process's: what marks are read from is out of the kernel's reach.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._manager.start_kernel(cwd=str(cwd), **quiet)
        try:
            self._client: Any = self._manager.blocking_client()
            self._client.start_channels()
            self._client.wait_for_ready(timeout=_START_SECONDS)
        except BaseException:
            self._manager.shutdown_kernel(now=True)
            raise

    def __enter__(self) -> KernelSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def run(self, code: str) -> CellRun:
        """Run one cell; an error in it is an answer, not an exception. Raises KernelGone."""
        request = self._client.execute(code, allow_stdin=False, stop_on_error=False)
        deadline = time.monotonic() + self._cell_seconds
        marks: list[dict[str, Any]] = []
        error = stopped = ""
        replied_at: float | None = None
        while True:
            with suppress(Empty):
                message = self._client.get_iopub_msg(timeout=0.1)
                if message["parent_header"].get("msg_id") == request:
                    if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                        break
                    error = self._take(message, marks) or error
            replied_at = replied_at or self._reply_time(request)
            now = time.monotonic()
            # Under a flood of output the message that ends a cell may be lost; its reply is not.
            if replied_at and now > replied_at + 2.0:
                break
            if not self._manager.is_alive():
                raise KernelGone("it ended the notebook's process")
            if not stopped and (self._output_left < 0 or now > deadline):
                stopped = self._limit_broken()
                deadline = now + _GRACE_SECONDS
                self._manager.interrupt_kernel()
            elif stopped and now > deadline:
                raise KernelGone(stopped + ", and could not be interrupted")
        if stopped and self._output_left < 0:
            self._output_left = self._output_bytes
        return CellRun(stopped or error, bool(stopped), marks)

    def _take(self, message: dict[str, Any], marks: list[dict[str, Any]]) -> str:
        content = message["content"]
        if message["msg_type"] in _MESSAGES:
            self._output_left -= _size(content)
        if message["msg_type"] == "display_data" and MARK in content["data"]:
            marks.append(content["data"][MARK])
        if message["msg_type"] == "error":
            return f"{content['ename']}: {content['evalue']}"
        return ""

    def _reply_time(self, request: str) -> float | None:
        with suppress(Empty):
            while True:
                if self._client.get_shell_msg(timeout=0)["parent_header"].get("msg_id") == request:
                    return time.monotonic()
        return None

    def _limit_broken(self) -> str:
        if self._output_left < 0:
            return f"it printed more than {self._output_bytes / 1e6:g} MB"
        return f"it did not finish within {self._cell_seconds:g} s"


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(item) for item in value.values())
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    return 8
