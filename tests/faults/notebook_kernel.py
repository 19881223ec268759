"""A notebook's kernel as JupyterLab runs it, its cells typed from here, and every process that came of it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
from jupyter_client import BlockingKernelClient, KernelManager

ROOT = Path(__file__).parents[2]
_MARK = "MGPU_FAULTS_NOTEBOOK"


@dataclass(frozen=True)
class Cell:
    """What became of one cell.

    Attributes:
        text: all that it printed and showed, as text.
        error: the class of its exception, empty where there was none.
        message: the text of its exception.
        seconds: from sending it to its end, or to giving up.
        ended: whether it ended within the limit.
    """

    text: str
    error: str
    message: str
    seconds: float
    ended: bool


class NotebookKernel:
    """One ipykernel; its files for a while lie in `folder`."""

    def __init__(self, folder: Path, variables: dict[str, str] | None = None) -> None:
        self.folder = folder / f"notebook-{secrets.token_hex(4)}"
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir(parents=True)
        self._mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        own = {_MARK: self._mark, "TMPDIR": str(self.temporary), "IPYTHONDIR": str(self.folder / "ipython")}
        self.manager = KernelManager(kernel_name="python3", connection_file=str(self.folder / "kernel.json"))
        environment = {**os.environ, **own, **(variables or {})}
        # Its warning that loopback is not encrypted would stand in the output of the tests.
        quiet = ["--log-level=40"]
        self.manager.start_kernel(env=environment, cwd=str(self.folder), extra_arguments=quiet)
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self._sent = ""
        self.pid = int(self.execute("import os\nprint(os.getpid())").text)
        self.process = psutil.Process(self.pid)

    def __enter__(self) -> NotebookKernel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def execute(self, code: str, limit: float = 120.0, stop_when: Callable[[float], bool] | None = None) -> Cell:
        """Run a cell for `limit` seconds at most; press the stop button when `stop_when(seconds so far)` says so."""
        self._sent = self.client.execute(code)
        return self.wait(limit, stop_when)

    def wait(self, limit: float, stop_when: Callable[[float], bool] | None = None) -> Cell:
        """Wait for the cell that was sent last; after one that did not end, its text is what came since."""
        began = time.monotonic()
        text, error, message, idle, replied = "", "", "", False, False
        while not (idle and replied):
            now = time.monotonic() - began
            if stop_when is not None and stop_when(now):
                stop_when = None
                self.stop()
            if now >= limit:
                return Cell(text, error, message, now, False)
            found = self._next("iopub", 0.05)
            if found is not None:
                content = found["content"]
                match found["msg_type"]:
                    case "stream":
                        text += content["text"]
                    case "display_data" | "update_display_data" | "execute_result":
                        text += content["data"].get("text/plain", "") + "\n"
                    case "error":
                        error, message = content["ename"], content["evalue"]
                    case "status":
                        idle = idle or content["execution_state"] == "idle"
            elif idle:
                replied = replied or self._next("shell", 0.05) is not None
        return Cell(text, error, message, time.monotonic() - began, True)

    def _next(self, channel: str, seconds: float) -> dict[str, Any] | None:
        take = self.client.get_iopub_msg if channel == "iopub" else self.client.get_shell_msg
        try:
            found: dict[str, Any] = take(timeout=seconds)
        except Empty:
            return None
        return found if found["parent_header"].get("msg_id") == self._sent else None

    def stop(self) -> None:
        """Press the stop button."""
        self.manager.interrupt_kernel()

    def processes(self) -> list[psutil.Process]:
        """All that run now and come of this notebook, without the kernel itself."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self._mark and process.pid != self.pid:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def kill(self) -> None:
        """End the kernel as SIGKILL does, and nothing else."""
        self.process.kill()
        self.manager.provisioner.process.wait()

    def close(self) -> list[psutil.Process]:
        """End the kernel as JupyterLab does; gives what was still there 5 s later, and ends that as well."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        end = time.monotonic() + 5.0
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return left
