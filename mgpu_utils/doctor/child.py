"""A child process that reports in JSON, one object a line, and never outlives the question."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

Event = dict[str, Any]
_living: weakref.WeakSet[Child] = weakref.WeakSet()
_starting, _no_more = threading.Lock(), threading.Event()


class Child:
    """This environment's Python with `arguments`; use it in a `with` block, which ends it with all it started.

    Its standard input stays open as long as this process lives, so that a child which waits for its end leaves by
    itself when this process is killed.
    """

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        environment = dict(os.environ if env is None else env)
        # Where mgpu_utils was found by this process, the child finds it too.
        above = str(Path(__file__).resolve().parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [above, environment.get("PYTHONPATH")]))
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=20)
        pipe = subprocess.PIPE
        # -P: a learner's own torch.py in the working directory must not be imported instead of PyTorch.
        command = [sys.executable, "-P", *arguments]
        with _starting:
            # Whoever ends all children must not miss one that is just being born.
            if _no_more.is_set():
                raise ChildEnded("the examination was stopped")
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
            _living.add(self)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read_events, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    def wait_for(self, name: str, seconds: float) -> Event:
        """The child's next report of this name.

        Raises: TimeoutError when it does not come within `seconds`; ChildEnded when the process ended before.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(name) from None
            if event is None:
                self._events.put(None)
                raise ChildEnded(self._last_words())
            if event.get("event") == name:
                return event
            if event.get("event") == "failed":
                raise ChildEnded(str(event.get("error")))

    def tell(self, line: str) -> None:
        """Write a line to the child; a child that has ended hears nothing."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError:
            return

    def kill(self) -> None:
        """Kill the process with everything it started."""
        if self._process.poll() is None:
            try:
                from mgpu_utils.process_tree import kill_tree

                kill_tree(self._process.pid)
            except ImportError:
                self._process.kill()

    def end(self) -> None:
        """Kill the process with everything it started, and wait for its end."""
        self.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=2)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                continue

    def _read_events(self, stream: IO[str]) -> None:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self._events.put(event)
        self._events.put(None)

    def _read_errors(self, stream: IO[str]) -> None:
        for line in stream:
            if line.strip():
                self._said.append(line.strip())

    def _last_words(self) -> str:
        try:
            status = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        self._readers[1].join(timeout=2)
        if status < 0:
            return f"ended by {signal.Signals(-status).name}" + (f"; {self._said[-1]}" if self._said else "")
        return self._said[-1] if self._said else f"exit status {status}"


@contextmanager
def children_end_together() -> Iterator[Callable[[], None]]:
    """Yield a function that kills every child of this process and lets none start until this block is left.

    Threads that wait for a child go on then, and those that want to start one get ChildEnded.
    """

    def end_all() -> None:
        with _starting:
            _no_more.set()
            living = list(_living)
        for child in living:
            child.kill()

    try:
        yield end_all
    finally:
        _no_more.clear()


class ChildEnded(Exception):
    """The child ended, or could not go on; the message is what it said last."""
