"""What a request asks of one rank, and what has come back from it so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from .hangs import split_report
from .rank_errors import RankFailure
from .rank_kernel import RankKernel
from .rank_output import cut_mark

# A learner's C code or child process can write without end: the first and last characters are kept.
_HEAD = _TAIL = 100_000


class Report:
    """What a rank's process wrote past its output channel: stacks, messages of C++ code, output of children."""

    def __init__(self) -> None:
        self._head = self._tail = ""
        self._parts: list[str] = []
        self._waiting = self._cut = 0

    def add(self, text: str) -> None:
        """Take more text; of very much only the beginning and the end are kept."""
        self._parts.append(text)
        self._waiting += len(text)
        if self._waiting > 2 * _TAIL:
            self._gather()

    def _gather(self) -> None:
        text, self._parts, self._waiting = self._tail + "".join(self._parts), [], 0
        if len(self._head) < _HEAD:
            room = _HEAD - len(self._head)
            self._head, text = self._head + text[:room], text[room:]
        self._tail = text[-_TAIL:]
        self._cut += len(text) - len(self._tail)

    @property
    def text(self) -> str:
        """What was kept, with a mark for what was not."""
        self._gather()
        return self._head + (cut_mark(self._cut) if self._cut else "") + self._tail


@dataclass(frozen=True)
class Request:
    """Source code for one rank, with binary data that it may ask for."""

    code: str
    buffers: list[bytes] = field(default_factory=list)


@dataclass
class Outcome:
    """What has come back from one rank so far."""

    rank: int
    kernel: RankKernel
    message_id: str
    sent_at: float
    replied: bool = False
    idle: bool = False
    result: bytes = b""
    failure: RankFailure | None = None
    report: Report = field(default_factory=Report)
    stacks: Report | None = None
    seconds: float = 0.0
    ended_at: float | None = None
    text: str = ""

    @property
    def running(self) -> bool:
        """Whether an answer is still to come."""
        return not self.finished and not self.dead

    @property
    def finished(self) -> bool:
        """Whether the rank has answered and is idle."""
        return self.replied and self.idle

    @property
    def dead(self) -> bool:
        """Whether its process has ended."""
        return self.failure is not None and self.failure.kind == "died"

    @property
    def said(self) -> str:
        """What the process wrote, without stacks."""
        return split_report(self.report.text)[1]

    def take_report(self) -> None:
        """Read what the process wrote meanwhile."""
        text = self.kernel.read_report()
        if text:
            self.report.add(text)
            if self.stacks is not None:
                self.stacks.add(text)
