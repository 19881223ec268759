"""What node rank 0 does for the others: it listens at the endpoint, gathers them, and passes messages on.

Two kinds of connection arrive at the one port. A machine joins with its node rank and what it runs; the
process that measures (the notebook's kernel) joins with the token which this process gave it, and alone may
start something on the machines. There is no other password, so the port belongs in a trusted network.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mgpu_utils.machine_link import SILENCE_SECONDS, Link, LinkError, Message, read, write
from mgpu_utils.machines import Machines, MachinesError, Route

ENVIRONMENT = "MGPU_MACHINES"
# What tells one running computer from another; compared, never recorded.
BOOT = "boot"
JOIN_SECONDS = 60.0
_HELLO_SECONDS, _GOODBYE_SECONDS, _LONGEST_HELLO = 5.0, 3.0, 2**16


@dataclass(frozen=True)
class _Node:
    link: Link
    address: str
    machine: dict[str, Any]


class Lead:
    """The meeting point of ``machines``, open as long as its ``with`` block.

    Args:
        identity: what has to be the same on every machine, name by name (see `hello`).
        machine: what this machine is, for the record of the environment.
        silence: seconds without a sign of life after which a machine counts as lost.

    Raises: MachinesError when the endpoint's port cannot be had.
    """

    def __init__(
        self,
        machines: Machines,
        route: Route,
        identity: Mapping[str, str],
        machine: Mapping[str, Any],
        *,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.machines, self.route, self._silence = machines, route, silence
        self._identity, self._machine = dict(identity), dict(machine)
        self._token = secrets.token_hex(16)
        self._changed = threading.Condition()
        self._nodes: dict[int, _Node] = {}
        self._lost: dict[int, dict[str, str]] = {}
        self._refused: str | None = None
        self._driver: Link | None = None
        family = socket.AF_INET6 if ":" in route.address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # This address alone: not every interface of the machine.
            self._listener.bind((route.address, machines.port))
            self._listener.listen(128)
        except OSError as error:
            self._listener.close()
            raise MachinesError(
                f"port {machines.port} of --rdzv-endpoint {machines.endpoint} cannot be used "
                f"({error.strerror or error}); choose another port, the same on every machine."
            ) from None
        threading.Thread(target=self._accept, name="mgpu-machine-lead", daemon=True).start()

    def gather(self, seconds: float = JOIN_SECONDS, *, command: str = "mgpu bench ... --node-rank {node_rank}") -> None:
        """Wait until every other machine has joined.

        ``command`` is what to start on a machine that is missing, with ``{node_rank}`` for its number.

        Raises: MachinesError naming the machines that did not come, or the one which does not fit.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._missing() and self._refused is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            missing, refused = self._missing(), self._refused
        if refused is not None:
            raise MachinesError(refused)
        if missing:
            which = ", ".join(map(str, missing))
            start = "; ".join(command.replace("{node_rank}", str(rank)) for rank in missing[:3])
            more = ", and so on" if len(missing) > 3 else ""
            raise MachinesError(
                f"waited {seconds:g} s for node rank {which} of {self.machines.nnodes} at {self.machines.endpoint}; "
                f"start there: {start}{more}"
            )

    @property
    def others(self) -> list[dict[str, Any]]:
        """What the other machines that joined are, in order of their node rank, for the record of the environment.

        ``own_machine`` is False for one that runs on the same computer as node rank 0.
        """
        with self._changed:
            nodes = sorted(self._nodes.items())
        boot = self._machine.get(BOOT)
        return [
            {name: value for name, value in node.machine.items() if name != BOOT}
            | {"node_rank": rank, "own_machine": node.machine.get(BOOT) != boot}
            for rank, node in nodes
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment variable with which a process on this machine starts runs on all of them."""
        where = {
            "nnodes": self.machines.nnodes,
            "address": self.route.address,
            "interface": self.route.interface,
            "port": self.machines.port,
            "token": self._token,
            "silence": self._silence,
        }
        return {ENVIRONMENT: json.dumps(where)}

    def close(self, status: int = 0, reason: str | None = None) -> None:
        """Send the machines home: each ends with ``status``, and says ``reason`` where there is one."""
        with self._changed:
            links = [node.link for node in self._nodes.values()]
            self._nodes.clear()
            driver, self._driver = self._driver, None
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in links:
            link.send({"kind": "end", "status": status, "reason": reason})
        deadline = time.monotonic() + _GOODBYE_SECONDS
        for link in links:
            # A machine closes when it has read the message; closing first could throw it away.
            link.wait(deadline - time.monotonic())
            link.close()
        if driver is not None:
            driver.close()

    def __enter__(self) -> Lead:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close(1, "node rank 0 stopped before the end")

    def _missing(self) -> list[int]:
        return [rank for rank in range(1, self.machines.nnodes) if rank not in self._nodes]

    def _accept(self) -> None:
        while True:
            try:
                sock, (address, *_) = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._welcome, args=(sock, address), daemon=True).start()

    def _welcome(self, sock: socket.socket, address: str) -> None:
        sock.settimeout(_HELLO_SECONDS)
        try:
            message = read(sock, _LONGEST_HELLO)
            if message["kind"] == "drive" and secrets.compare_digest(str(message.get("token")), self._token):
                self._take_driver(sock)
            elif message["kind"] == "join":
                self._take_node(sock, address, message)
            else:
                sock.close()
        except LinkError:
            sock.close()

    def _take_driver(self, sock: socket.socket) -> None:
        def gone(seen: str) -> None:
            with self._changed:
                if self._driver is not link:
                    return
                self._driver = None
            self._broadcast({"kind": "abandon"})

        link = Link(sock, on_message=self._from_driver, on_end=gone, silence=self._silence)
        with self._changed:
            self._driver = link
            write(sock, {"kind": "welcome", "lost": {str(rank): seen for rank, seen in self._lost.items()}})
        link.start()

    def _take_node(self, sock: socket.socket, address: str, message: Message) -> None:
        problem, fatal = self._problem(message)
        if problem is not None:
            with suppress(LinkError):
                write(sock, {"kind": "refused", "reason": problem})
            sock.close()
            if fatal:
                with self._changed:
                    self._refused = problem
                    self._changed.notify_all()
            return
        rank = message["node_rank"]
        link = Link(
            sock,
            on_message=lambda sent: self._from_node(rank, link, sent),
            on_end=lambda seen: self._node_gone(rank, link, seen),
            silence=self._silence,
        )
        with self._changed:
            if rank in self._nodes:
                # Another one of the same number came between the check and here.
                sock.close()
                return
            write(sock, {"kind": "welcome", "silence": self._silence})
            self._nodes[rank] = _Node(link, address, dict(message.get("machine") or {}))
            self._lost.pop(rank, None)
            self._changed.notify_all()
            driver = self._driver
        link.start()
        if driver is not None:
            driver.send({"kind": "joined", "node_rank": rank})

    def _problem(self, message: Message) -> tuple[str | None, bool]:
        """Return why a machine may not join, and whether the whole command is wrong then."""
        rank, nnodes = message.get("node_rank"), message.get("nnodes")
        if nnodes != self.machines.nnodes:
            return (
                f"node rank {rank} was started with --nnodes {nnodes}, node rank 0 with {self.machines.nnodes}.",
                True,
            )
        if not isinstance(rank, int) or not 0 < rank < self.machines.nnodes:
            return f"there is no node rank {rank} to join; node rank 0 leads already.", False
        for name, ours in self._identity.items():
            theirs = (message.get("identity") or {}).get(name)
            if theirs != ours:
                return (
                    f"node rank {rank} has another {name} than node rank 0 ({theirs} there, {ours} here); "
                    "make them the same.",
                    True,
                )
        for name, word in (("device_count", "devices"), ("cores_usable", "usable CPU cores")):
            ours_count, theirs_count = self._machine.get(name), (message.get("machine") or {}).get(name)
            if isinstance(ours_count, int) and isinstance(theirs_count, int) and theirs_count < ours_count:
                return (
                    f"node rank {rank} has fewer {word} than node rank 0 ({theirs_count} there, {ours_count} here); "
                    "machines that work together have to be alike.",
                    True,
                )
        with self._changed:
            taken = self._nodes.get(rank)
        if taken is not None:
            return f"node rank {rank} is there already, from {taken.address}; give this machine another number.", False
        return None, False

    def _from_driver(self, message: Message) -> None:
        self._broadcast(message)

    def _broadcast(self, message: Message) -> None:
        wanted = message.pop("nodes", None)
        with self._changed:
            links = [node.link for rank, node in self._nodes.items() if wanted is None or rank in wanted]
        for link in links:
            link.send(message)

    def _from_node(self, rank: int, link: Link, message: Message) -> None:
        if message["kind"] == "leave":
            link.close()
            self._node_gone(rank, link, str(message.get("reason")))
        else:
            self._tell_driver(message | {"node_rank": rank})

    def _node_gone(self, rank: int, link: Link, seen: str) -> None:
        with self._changed:
            if rank not in self._nodes or self._nodes[rank].link is not link:
                return
            self._lost[rank] = {"address": self._nodes.pop(rank).address, "seen": seen}
            lost = self._lost[rank]
            self._changed.notify_all()
        self._tell_driver({"kind": "lost", "node_rank": rank} | lost)

    def _tell_driver(self, message: Message) -> None:
        with self._changed:
            driver = self._driver
        if driver is not None:
            driver.send(message)
