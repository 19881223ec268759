"""What `mgpu bench` does on node rank 1 and up: join node rank 0, do its part of every run, leave when told to."""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mgpu_utils.machine_lead import JOIN_SECONDS
from mgpu_utils.machine_link import SILENCE_SECONDS, Link, LinkError, Message, read, write
from mgpu_utils.machines import Machines, MachinesError, Route
from mgpu_utils.torchrun import Launcher
from mgpu_utils.torchrun_agent import Agent
from mgpu_utils.torchrun_together import part_of

INTERRUPTED, LOST = 130, 1
_TRY_EVERY_SECONDS, _ANSWER_SECONDS = 0.5, 10.0


def follow(
    machines: Machines,
    route: Route,
    identity: Mapping[str, str],
    machine: Mapping[str, Any],
    *,
    join_seconds: float = JOIN_SECONDS,
    say: Callable[[str], None] = lambda sentence: print(sentence, file=sys.stderr, flush=True),
) -> int:
    """Work for node rank 0 until it sends this machine home; return the exit status.

    The status is node rank 0's own when it ends in order, 1 when it is lost, 130 when this machine is
    interrupted (Ctrl-C or SIGTERM). No rank is left behind in any case.

    Raises: MachinesError when node rank 0 does not come within ``join_seconds``, or refuses this machine.
    """
    sock, silence = _join(machines, route, dict(identity), dict(machine), join_seconds)
    say(f"node rank {machines.node_rank} of {machines.nnodes} joined {machines.endpoint}")
    with Launcher() as launcher:
        return _Follower(machines, route, sock, silence, launcher, say).work()


class _Follower:
    def __init__(
        self,
        machines: Machines,
        route: Route,
        sock: socket.socket,
        silence: float,
        launcher: Launcher,
        say: Callable[[str], None],
    ) -> None:
        self._machines, self._route, self._launcher, self._say = machines, route, launcher, say
        self._todo: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: tuple[str, Agent] | None = None
        self._abandoned: set[str] = set()
        self._link = Link(sock, on_message=self._take, on_end=self._alone, silence=silence)

    def work(self) -> int:
        self._link.start()
        done = 0
        try:
            while True:
                message = self._todo.get()
                if message["kind"] == "launch":
                    done += self._launch(message)
                elif message["kind"] == "end":
                    reason = f": {message['reason']}" if message.get("reason") else ""
                    self._say(f"node rank 0 ended this after {done} runs here{reason}")
                    return int(message["status"])
                else:
                    self._say(f"node rank 0 at {self._machines.endpoint} was lost: {message['seen']}")
                    return LOST
        except KeyboardInterrupt:
            self._link.send({"kind": "leave", "reason": "it was interrupted there"})
            self._say(f"interrupted; node rank 0 was told, after {done} runs here")
            return INTERRUPTED
        finally:
            self._link.close()

    def _launch(self, message: Message) -> bool:
        run = message["id"]
        with self._lock:
            if run in self._abandoned or "" in self._abandoned:
                return False
            # From here on giving the run up ends this agent, whether the run has begun on it or not.
            agent = self._launcher.ready_agent()
            self._running = (run, agent)
        result: dict[str, Any]
        try:
            job, place = part_of(message["job"], self._machines.node_rank, self._route.address, self._route.interface)
            result = self._launcher.run_part(job, place, agent=agent).to_dict()
        except Exception as error:
            result = {"ok": False, "problem": f"{type(error).__name__}: {error}"}
        with self._lock:
            self._running = None
        self._link.send({"kind": "result", "id": run, "result": result})
        return True

    def _take(self, message: Message) -> None:
        if message["kind"] == "abandon":
            self._give_up(message.get("id"))
        elif message["kind"] in ("launch", "end"):
            self._todo.put(message)
            if message["kind"] == "end":
                self._give_up(None, for_good=True)

    def _alone(self, seen: str) -> None:
        self._give_up(None, for_good=True)
        self._todo.put({"kind": "lost", "seen": seen})

    def _give_up(self, run: str | None, *, for_good: bool = False) -> None:
        """End one run, or whichever runs; one that has not begun yet is left out when its turn comes."""
        with self._lock:
            if run is not None:
                self._abandoned.add(run)
            if for_good:
                self._abandoned.add("")
            running = self._running
        if running is not None and run in (None, running[0]):
            running[1].kill()


def _join(
    machines: Machines, route: Route, identity: dict[str, str], machine: dict[str, Any], seconds: float
) -> tuple[socket.socket, float]:
    """Connect to node rank 0 and be accepted; return the connection and the silence that counts as its end."""
    deadline, seen = time.monotonic() + seconds, "nothing listens there"
    while True:
        sock = None
        try:
            left = max(deadline - time.monotonic(), 0.1)
            sock = socket.create_connection((route.endpoint_address, machines.port), timeout=min(left, 5.0))
            sock.settimeout(_ANSWER_SECONDS)
            write(
                sock,
                {
                    "kind": "join",
                    "node_rank": machines.node_rank,
                    "nnodes": machines.nnodes,
                    "identity": identity,
                    "machine": machine,
                },
            )
            answer = read(sock)
        except (OSError, LinkError) as error:
            if sock is not None:
                sock.close()
            # create_connection's own words for a refused connection say nothing new.
            seen = "nothing listens there" if isinstance(error, ConnectionRefusedError) else str(error)
        else:
            if answer["kind"] == "refused":
                sock.close()
                raise MachinesError(str(answer["reason"]))
            return sock, float(answer.get("silence", SILENCE_SECONDS))
        if time.monotonic() + _TRY_EVERY_SECONDS >= deadline:
            raise MachinesError(
                f"waited {seconds:g} s for node rank 0 of {machines.nnodes} at {machines.endpoint} ({seen}); start "
                f"there the same command with --node-rank 0, and see that no firewall closes port {machines.port}."
            )
        with suppress(InterruptedError):
            time.sleep(_TRY_EVERY_SECONDS)
