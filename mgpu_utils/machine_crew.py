"""The other machines as a launcher sees them: start its run on them too, and know what became of each part."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from mgpu_utils.machine_lead import ENVIRONMENT
from mgpu_utils.machine_link import Link, Message, read, write
from mgpu_utils.machines import MachinesError

# When one machine's part has failed, the others find out by themselves or are ended after this long.
GRACE_SECONDS = 10.0
_CONNECT_SECONDS = 10.0


class Crew:
    """The machines of node rank 1 and up, reached through the `Lead` of this machine.

    Raises: MachinesError when the lead cannot be reached.
    """

    def __init__(self, nnodes: int, address: str, interface: str, port: int, token: str, silence: float) -> None:
        self.nnodes, self.address, self.interface = nnodes, address, interface
        self._changed = threading.Condition()
        self._part: Part | None = None
        self._end: str | None = None
        try:
            sock = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
            write(sock, {"kind": "drive", "token": token})
            welcome = read(sock)
        except OSError as error:
            raise MachinesError(
                f"the `mgpu bench` process that leads the machines cannot be reached ({error}); start it again."
            ) from None
        self._lost: dict[int, dict[str, str]] = {int(rank): seen for rank, seen in welcome["lost"].items()}
        self._link = Link(sock, on_message=self._take, on_end=self._alone, silence=silence)
        self._link.start()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Crew | None:
        """Return the crew that `Lead.environment` describes, None on one machine."""
        text = environ.get(ENVIRONMENT)
        return cls(**json.loads(text)) if text else None

    def missing(self, nnodes: int) -> str | None:
        """Return in a sentence why a run on the first ``nnodes`` machines cannot start, None when it can."""
        with self._changed:
            if self._end is not None:
                return self._end
            for rank in range(1, nnodes):
                if rank in self._lost:
                    return (
                        f"{self._name(rank)} was lost before this run: {self._lost[rank]['seen']}; "
                        "start it again there, then this command with --resume"
                    )
        return None

    def start(self, job: Mapping[str, Any], nnodes: int, *, on_trouble: Callable[[], None]) -> Part:
        """Start ``job`` on node rank 1 to ``nnodes`` - 1.

        ``on_trouble`` is called, in another thread, when this machine's own part has no chance any more: at
        once when a machine is lost, and some seconds after another machine's part has failed.
        """
        part = Part(self, set(range(1, nnodes)), on_trouble)
        with self._changed:
            self._part = part
            trouble = self.missing(nnodes)
        if trouble is not None:
            part.give_up(trouble)
        else:
            self.send({"kind": "launch", "id": part.id, "nodes": sorted(part.nodes), "job": dict(job)})
        return part

    def send(self, message: Message) -> None:
        """Send a message to the machines named in it."""
        self._link.send(message)

    def close(self) -> None:
        """Leave the machines; they wait for the next launcher."""
        self._link.close()

    def _name(self, rank: int) -> str:
        return f"node rank {rank} of {self.nnodes} ({self._lost[rank]['address']})"

    def _take(self, message: Message) -> None:
        kind, rank = message["kind"], int(message.get("node_rank", 0))
        with self._changed:
            part = self._part
            if kind == "joined":
                self._lost.pop(rank, None)
            elif kind == "lost":
                self._lost[rank] = {"address": message["address"], "seen": message["seen"]}
        if part is None:
            return
        if kind == "lost" and part.waits_for(rank):
            part.give_up(f"{self._name(rank)} was lost during the run: {message['seen']}")
        elif kind == "result" and message.get("id") == part.id:
            part.take(rank, message["result"])

    def _alone(self, seen: str) -> None:
        sentence = f"the process that leads the machines ended: {seen}"
        with self._changed:
            self._end, part = sentence, self._part
        if part is not None:
            part.give_up(sentence)


class Part:
    """What the other machines do of one launch."""

    def __init__(self, crew: Crew, nodes: set[int], on_trouble: Callable[[], None]) -> None:
        self.id, self.nodes = uuid.uuid4().hex, nodes
        self.results: dict[int, dict[str, Any]] = {}
        self.trouble: str | None = None
        self._crew, self._on_trouble = crew, on_trouble
        self._changed = threading.Condition()
        self._grace: threading.Timer | None = None
        self._over = False

    def waits_for(self, rank: int) -> bool:
        """Whether this machine takes part and has not answered yet."""
        with self._changed:
            return not self._over and rank in self.nodes and rank not in self.results

    def take(self, rank: int, result: dict[str, Any]) -> None:
        """Keep a machine's answer; a failed one starts the others' last seconds."""
        with self._changed:
            if self._over:
                return
            self.results[rank] = result
            if not result["ok"] and self._grace is None:
                self._grace = threading.Timer(GRACE_SECONDS, self._on_trouble)
                self._grace.daemon = True
                self._grace.start()
            self._changed.notify_all()

    def give_up(self, trouble: str) -> None:
        """Nothing more is to be waited for, because of ``trouble``."""
        with self._changed:
            if self._over or self.trouble is not None:
                return
            self.trouble = trouble
            self._changed.notify_all()
        self._on_trouble()

    def finish(self, seconds: float) -> None:
        """Wait at most ``seconds`` for what is still missing, then end it where it runs."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self.nodes - self.results.keys() and self.trouble is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            self._over = True
            missing = sorted(self.nodes - self.results.keys())
            if self._grace is not None:
                self._grace.cancel()
        if missing:
            self._crew.send({"kind": "abandon", "id": self.id, "nodes": missing})
