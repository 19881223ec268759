"""One connection between two machines: JSON messages both ways, and a sure sign when the other side is gone.

A machine that dies closes its connections; one whose network is cut does not. So both sides send a beat
every few seconds, and silence counts as the end.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
SILENCE_SECONDS = 15.0
_BEATS_IN_SILENCE = 5
_LENGTH = struct.Struct("!I")
LONGEST_MESSAGE = 64 * 2**20


class LinkError(ConnectionError):
    """The other side is gone, or sent what is no message; the text says what was seen."""


def write(sock: socket.socket, message: Message) -> None:
    """Send one message. Raises: LinkError."""
    body = json.dumps(message).encode("utf-8")
    try:
        sock.sendall(_LENGTH.pack(len(body)) + body)
    except OSError as error:
        raise LinkError(_seen(error, sock)) from None


def read(sock: socket.socket, longest: int = LONGEST_MESSAGE) -> Message:
    """Receive one message, of at most ``longest`` bytes. Raises: LinkError."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    if length > longest:
        raise LinkError("it sent what is no message")
    try:
        message = json.loads(_exactly(sock, length))
    except ValueError:
        raise LinkError("it sent what is no message") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise LinkError("it sent what is no message")
    return message


class Link:
    """A connection in use: messages arrive at ``on_message``; ``on_end`` is told once what ended it.

    Both are called in a thread of the link's own. ``on_end`` is not called after `close`.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_message: Callable[[Message], None],
        on_end: Callable[[str], None],
        silence: float = SILENCE_SECONDS,
    ) -> None:
        sock.settimeout(silence)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._on_message, self._on_end = sock, on_message, on_end
        self._beat_every = silence / _BEATS_IN_SILENCE
        self._sending = threading.Lock()
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to listen and to send beats."""
        for work in (self._listen, self._beat):
            threading.Thread(target=work, name="mgpu-machine-link", daemon=True).start()

    def send(self, message: Message) -> bool:
        """Send a message; False when the other side is gone (``on_end`` tells that too)."""
        try:
            with self._sending:
                write(self._sock, message)
        except LinkError:
            # Wakes the listening thread, which alone reports the end.
            self._shut()
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Wait at most ``seconds`` for the other side to end the connection."""
        self._closed.wait(max(seconds, 0))

    def close(self) -> None:
        """End the connection from this side."""
        self._closed.set()
        self._shut()

    def _shut(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        seen = "its connection closed"
        try:
            while True:
                message = read(self._sock)
                if message["kind"] != "beat":
                    self._on_message(message)
        except LinkError as error:
            seen = str(error)
        finally:
            ours = self._closed.is_set()
            self._closed.set()
            self._sock.close()
            if not ours:
                self._on_end(seen)

    def _beat(self) -> None:
        while not self._closed.wait(self._beat_every):
            if not self.send({"kind": "beat"}):
                return


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = sock.recv(min(count - len(parts), 2**20))
        except OSError as error:
            raise LinkError(_seen(error, sock)) from None
        if not part:
            raise LinkError("its connection closed")
        parts += part
    return bytes(parts)


def _seen(error: OSError, sock: socket.socket) -> str:
    if isinstance(error, TimeoutError):
        limit = sock.gettimeout()
        return f"nothing was heard from it for {limit:g} s" if limit else "nothing was heard from it"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "its connection closed"
    return f"its connection broke ({error.strerror or error})"
