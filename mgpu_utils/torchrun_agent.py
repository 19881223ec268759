"""The process in which ``torch.distributed.run`` works: it does one launch after another, each with fresh ranks.

Importing PyTorch takes over a second. An agent that stays pays for it once, not once for each launch; the
ranks are new processes every time, new interpreters or forks of the agent.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from mgpu_utils.process_tree import kill_tree


class Launch(NamedTuple):
    """How one launch ended: the launcher's exit code, and False where it was ended at the timeout."""

    returncode: int
    finished: bool


class Agent:
    """One agent process. It dies with its owner, and takes its ranks along."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mgpu_utils.torchrun_agent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # A process that is to be forked has no pool of threads.
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            # Its own session: Ctrl-C goes to the owner alone, which then ends the whole tree.
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="mgpu-torchrun-agent", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether another launch can be given to it."""
        return self._process.poll() is None

    def launch(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        timeout: float | None,
        imports: Sequence[str] = (),
    ) -> Launch:
        """Do one launch and wait for its end; on a timeout or an interrupt end the agent and all its ranks.

        The agent imports the modules ``imports`` before: ranks that are forked from it have them at once.
        """
        assert self._process.stdin is not None
        job = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "imports": list(imports),
        }
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(job) + "\n")
                self._process.stdin.flush()
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            self.kill()
            return Launch(1, finished=False)
        except BaseException:
            self.kill()
            raise
        if not answer.strip():
            return Launch(self._process.wait() or 1, finished=True)
        return Launch(int(answer), finished=True)

    def close(self) -> None:
        """End the agent; it has nothing to do any more."""
        self.kill()

    def kill(self) -> None:
        """End the agent and its ranks at once; from another thread, a `launch` that waits returns."""
        kill_tree(self._process.pid)
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")


def end_with(owner_pid: int, poll_seconds: float = 0.5) -> None:
    """Watch process ``owner_pid`` from a thread; when it is gone, end this process and everything it started."""
    owner: psutil.Process | None = None
    with suppress(psutil.NoSuchProcess):
        owner = psutil.Process(owner_pid)

    def watch() -> None:
        with suppress(psutil.Error):
            while owner is not None and owner.is_running() and owner.status() != psutil.STATUS_ZOMBIE:
                time.sleep(poll_seconds)
        kill_tree(os.getpid())

    threading.Thread(target=watch, name="mgpu-owner-watch", daemon=True).start()


def _do(job: dict[str, Any]) -> int:
    from torch.distributed.run import main

    from mgpu_utils.torchrun_rendezvous import register

    register()
    os.environ.clear()
    os.environ.update(job["environment"])
    # What PyTorch and a forked rank put among the temporary files goes when the launch has ended.
    tempfile.tempdir = str(Path(job["log"]).parent)
    for module in job["imports"]:
        # One that fails here fails in the ranks too, and is their reason.
        with suppress(Exception):
            importlib.import_module(module)
    if job["imports"]:
        # Collections would write to the memory that forked ranks share with the agent, and so copy it.
        gc.freeze()
    try:
        main(job["arguments"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _serve() -> None:
    end_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        job = json.loads(line)
        # All that torchrun and PyTorch's own code print during this launch belongs to it.
        with open(job["log"], "wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = _do(job)
        sys.stdout.flush()
        sys.stderr.flush()
        answers.write(f"{code}\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
