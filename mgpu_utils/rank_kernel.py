"""One rank process: start an IPython kernel on loopback, send it code, watch and end it.

A rank is an ordinary IPython kernel (`rank_process.py` runs inside it). This module is the notebook's
end of the line. Every port is chosen by the kernel itself when it binds, so no port can be taken by
somebody else between choosing and binding.
"""

from __future__ import annotations

import codecs
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from .collective_log import LogReader, mapped, shared_memory

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


@cache
def _context() -> Any:
    """One ZeroMQ context for all ranks: one of each client's own would wait for ever to end while a socket is open."""
    import zmq

    context = zmq.Context()  # type: ignore[attr-defined]
    context.linger = 0
    return context


class RankKernel:
    """The process of one rank and the sockets that lead to it.

    Args:
        rank: number of this rank, used in messages only.
        env: environment of the new process.
    """

    def __init__(self, rank: int, env: dict[str, str]) -> None:
        import zmq

        self.rank = rank
        self.client: Any = None
        self._shell: Any = None
        self._iopub: Any = None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # What this rank calls on torch.distributed; None where the two processes cannot share memory.
        self.collectives: LogReader | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="mgpu-rank-", ignore_cleanup_errors=True)
        self._connection_file = Path(self._directory.name) / "connection.json"
        info: dict[str, Any] = {f"{channel}_port": 0 for channel in CHANNELS}
        info |= {"ip": "127.0.0.1", "transport": "tcp", "key": secrets.token_hex(32)}
        info |= {"signature_scheme": "hmac-sha256", "kernel_name": ""}
        if zmq.has("curve"):
            public, secret = zmq.curve_keypair()
            info |= {"curve_publickey": public.decode(), "curve_secretkey": secret.decode()}
        try:
            with open(os.open(self._connection_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                json.dump(info, file)
            self._launch(env)
        except BaseException:
            self._directory.cleanup()
            raise

    def _launch(self, env: dict[str, str]) -> None:
        from jupyter_client.launcher import launch_kernel

        command = [sys.executable, "-m", "mgpu_utils.rank_process", str(self._connection_file)]
        if sys.platform == "win32":
            self._report_fd = -1
            self.process: subprocess.Popen[bytes] = launch_kernel(command, env=env, stdout=subprocess.DEVNULL)
            return
        # One pipe carries all that the process says when its Python can no longer talk: start-up errors,
        # messages of C++ code, and the stacks that faulthandler writes on request or in a crash.
        self._report_fd, write_end = os.pipe()
        os.set_blocking(self._report_fd, False)
        # The kernel asks Linux to kill it when the *thread* that started it ends, so only the main
        # thread, which lives as long as the process, may be the one.
        die_with_parent = threading.current_thread() is threading.main_thread()
        env = env | {"MGPU_REPORT_FD": str(write_end), "MGPU_DIE_WITH_PARENT": str(int(die_with_parent))}
        inherited = [write_end]
        if (log := shared_memory()) is not None:
            inherited.append(log)
            env["MGPU_COLLECTIVE_LOG_FD"] = str(log)
        try:
            self.process = launch_kernel(command, env=env, stdout=write_end, stderr=write_end, pass_fds=inherited)
        except BaseException:
            os.close(self._report_fd)
            raise
        finally:
            os.close(write_end)
            if log is not None:
                self.collectives = LogReader(mapped(log))

    def try_connect(self) -> bool:
        """Connect when the kernel has written its ports; False while it has not."""
        if self.client is not None:
            return True
        try:
            info = json.loads(self._connection_file.read_text())
        except (OSError, ValueError):
            return False
        if not all(info[f"{channel}_port"] for channel in CHANNELS):
            return False
        from jupyter_client import KernelClient

        client = KernelClient(context=_context())
        client.load_connection_info(info)
        self._iopub = client.connect_iopub()
        self._shell = client.connect_shell()
        for socket in (self._iopub, self._shell):
            # The default of 1,000 waiting messages would drop output of a rank that prints a lot.
            socket.rcvhwm = 0
        self.client = client
        return True

    @property
    def sockets(self) -> list[Any]:
        """The sockets to poll for messages of this rank."""
        return [self._shell, self._iopub]

    @property
    def report_fd(self) -> int | None:
        """The end of the pipe that `read_report` reads, to poll; None on Windows."""
        return self._report_fd if self._report_fd >= 0 else None

    def wait_for_output_channel(self, deadline: float) -> bool:
        """Wait until the kernel has seen the subscription, so that no output is missed; False if too late."""
        while time.monotonic() < deadline and self.process.poll() is None:
            if self._iopub.poll(50) and any(m["msg_type"] == "iopub_welcome" for m in self._receive(self._iopub)):
                return True
        return False

    def delete_keys(self) -> None:
        """Remove the connection file; call it once the kernel has answered, for it is the last to touch the file."""
        self._directory.cleanup()

    def send(self, code: str, buffers: list[bytes] | None = None) -> str:
        """Ask the rank to execute `code`; returns the id that its answers carry."""
        content = {
            "code": code,
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        message = self.client.session.send(self._shell, "execute_request", content, buffers=buffers)
        return str(message["header"]["msg_id"])

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield every message that has arrived, output before replies."""
        yield from self._receive(self._iopub)
        yield from self._receive(self._shell)

    def _receive(self, socket: Any) -> Iterator[dict[str, Any]]:
        from zmq import NOBLOCK  # type: ignore[attr-defined]

        while True:
            _, message = self.client.session.recv(socket, mode=NOBLOCK, copy=False)
            if message is None:
                return
            yield message

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the rank, as the notebook's stop button does."""
        if self.process.poll() is not None:
            return
        if sys.platform == "win32":
            from jupyter_client.win_interrupt import send_interrupt

            send_interrupt(self.process.win32_interrupt_event)
        else:
            # As Jupyter does: data loader workers are interrupted too, or the rank would wait for them.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGINT)

    def is_stopped(self) -> bool:
        """Whether somebody stopped the process (SIGSTOP), so that it can neither work nor answer."""
        import psutil

        try:
            return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def request_stack(self) -> None:
        """Have faulthandler write the stacks of all threads of the rank (see `read_report`)."""
        if sys.platform != "win32" and self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)

    def read_report(self) -> str:
        """What the process wrote about itself outside its output channel since the last call, as text."""
        chunks = []
        # A process that writes faster than this reads must not keep the notebook here.
        for _ in range(64):
            if self._report_fd < 0:
                break
            try:
                chunk = os.read(self._report_fd, 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                break
            chunks.append(chunk)
        return self._decoder.decode(b"".join(chunks))

    def ask_to_leave(self) -> None:
        """Tell an idle rank to leave by itself; `kill` ends it in any case."""
        if self._shell is not None and self.process.poll() is None:
            self.send("__import__('mgpu_utils.rank_process').rank_process.leave()")

    def kill(self) -> None:
        """End the process and all that it started, and free everything held for it. Never fails."""
        if sys.platform == "win32":
            self.process.kill()
        else:
            # The rank leads a process group of its own; data loader workers are in it.
            for end in (lambda: os.killpg(self.process.pid, signal.SIGKILL), self.process.kill):
                try:
                    end()
                except (ProcessLookupError, PermissionError):
                    continue
        self.process.wait()
        if self._report_fd >= 0:
            os.close(self._report_fd)
            self._report_fd = -1
        for socket in (self._shell, self._iopub):
            if socket is not None:
                socket.close(linger=0)
        self.client = self._shell = self._iopub = None
        if self.collectives is not None:
            self.collectives.close()
            self.collectives = None
        self._directory.cleanup()
