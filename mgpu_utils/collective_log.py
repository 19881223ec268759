"""What each rank calls on `torch.distributed`, kept in memory that the notebook reads at any time.

A rank and the notebook share one block of memory without a name in any folder, so nothing is left behind and no
other user can open it. Writing takes microseconds, sends nothing and waits for nobody; what a rank wrote can
still be read when it is stuck or dead. A block holds the last `SLOTS` calls.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
import struct
import sys
import tempfile
import time
import zlib
from typing import Any, NamedTuple

SLOTS = 1024
_SLOT = 512
# A slot: the number of the call (from 1, written last), its end, start and sequence number, length and check of a text.
_NUMBER, _END, _HEAD, _CHECK = (struct.Struct(fields) for fields in ("<Q", "<d", "<QddI", "<II"))
_CHECK_AT = _HEAD.size
_TEXT_AT = _CHECK_AT + _CHECK.size
_ROOM = _SLOT - _TEXT_AT
_RUNNING, _REFUSED = 0.0, -1.0


class What(NamedTuple):
    """What is called, and where; the same for all rounds of a loop.

    Attributes:
        group: text that is the same on all ranks of one process group; empty where calls cannot be compared.
        operation: name of the function, such as `all_reduce`.
        shape, dtype: of the tensor, as text; empty where ranks may differ in it.
        reduce_op, root: `SUM` and the like, and the rank that sends or receives; empty where there is none.
        file, line, function: the learner's line; an empty file if the call came from elsewhere.
    """

    group: str
    operation: str
    shape: str = ""
    dtype: str = ""
    reduce_op: str = ""
    root: str = ""
    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the group, by their numbers in the default group."""
        return tuple(int(rank) for rank in self.group.rpartition("/")[2].split(",")) if self.group else ()

    def __str__(self) -> str:
        root = f"root rank {self.root}" if self.root else ""
        details = [f"shape {self.shape}" if self.shape else "", self.dtype, self.reduce_op, root]
        listed = ", ".join(detail for detail in details if detail)
        return f"{self.operation} ({listed})" if listed else self.operation

    def packed(self) -> bytes:
        """As bytes that fit a slot; of one that is too long the line, or everything, is left out."""
        for what in (self, self._replace(file="", line=0, function=""), What("", self.operation)):
            data = "\t".join(map(str, what)).encode(errors="replace")
            if len(data) <= _ROOM:
                break
        return _CHECK.pack(len(data), zlib.crc32(data)) + data


class CollectiveCall(NamedTuple):
    """One call of a rank.

    Attributes:
        number: of all the calls noted by this rank, from 1.
        sequence: of the calls in this group, from 1.
        start: seconds on the machine's monotonic clock.
        signature: of `what`, all that must be the same on the ranks of the group.
    """

    number: int
    sequence: int
    start: float
    what: What
    signature: tuple[str, ...]


def shared_memory() -> int | None:
    """A descriptor of a new block that a child process can be given; None where there is no such thing."""
    if sys.platform == "win32":
        return None
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("mgpu-collectives", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, SLOTS * _SLOT)
    except OSError:
        return None
    return descriptor


def mapped(descriptor: int) -> mmap.mmap:
    """The block behind a descriptor, which is closed."""
    try:
        return mmap.mmap(descriptor, SLOTS * _SLOT)
    finally:
        os.close(descriptor)


class LogWriter:
    """The rank's end: notes the start and the end of calls."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._numbers = itertools.count(1)

    def begin(self, sequence: int, packed: bytes) -> int:
        """Note a call (`packed`: see `What.packed`); returns where it stands."""
        number = next(self._numbers)
        at = (number - 1) % SLOTS * _SLOT
        entry = _HEAD.pack(0, _RUNNING, time.monotonic(), sequence) + packed
        self._memory[at : at + len(entry)] = entry
        _NUMBER.pack_into(self._memory, at, number)
        return at

    def end(self, at: int) -> None:
        """Note that the call at `at` is over."""
        _END.pack_into(self._memory, at + 8, time.monotonic())

    def refuse(self, at: int) -> None:
        """Take a call back: its arguments were wrong, so nothing was sent."""
        _END.pack_into(self._memory, at + 8, _REFUSED)


class LogReader:
    """The notebook's end of one rank's block."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._next = 1
        self._last: dict[str, CollectiveCall] = {}
        self._known: dict[bytes, tuple[What, tuple[str, ...]]] = {}

    def new(self) -> list[CollectiveCall]:
        """The calls since the last look, oldest first; those that were written over meanwhile are missing."""
        calls = []
        # A rank may write faster than this reads: one look ends after one round.
        for _ in range(2 * SLOTS):
            at = (self._next - 1) % SLOTS * _SLOT
            (number,) = _NUMBER.unpack_from(self._memory, at)
            if number < self._next:
                break
            if number > self._next:
                self._next = number - SLOTS + 1
                continue
            call = self._read(at, number)
            if call is not None:
                calls.append(call)
                self._last[call.what.group] = call
            self._next += 1
        return calls

    def made(self) -> dict[str, int]:
        """How many calls were made in each group, those that were refused left out."""
        return {group: call.sequence - self.refused(call) for group, call in self._last.items()}

    def refused(self, call: CollectiveCall) -> bool:
        """Whether the call was taken back for its arguments."""
        return math.isnan(self.end_of(call) or 0.0)

    def end_of(self, call: CollectiveCall) -> float | None:
        """When the call ended, on its clock; None while it runs; NaN for one that was refused."""
        at = (call.number - 1) % SLOTS * _SLOT
        (end,) = _END.unpack_from(self._memory, at + 8)
        if _NUMBER.unpack_from(self._memory, at)[0] != call.number:
            return call.start
        return None if end == _RUNNING else float("nan") if end == _REFUSED else end

    def close(self) -> None:
        """Let the block go."""
        self._memory.close()

    def _read(self, at: int, number: int) -> CollectiveCall | None:
        slot = self._memory[at : at + _SLOT]
        _, _, start, sequence = _HEAD.unpack_from(slot)
        length, check = _CHECK.unpack_from(slot, _CHECK_AT)
        data = slot[_TEXT_AT : _TEXT_AT + length]
        if (known := self._known.get(data)) is None:
            if len(self._known) > SLOTS:
                self._known.clear()
            # Written over while it was read?
            if zlib.crc32(data) != check or _NUMBER.unpack_from(self._memory, at)[0] != number:
                return None
            group, operation, shape, dtype, reduce_op, root, file, line, function = data.decode().split("\t")
            what = What(group, operation, shape, dtype, reduce_op, root, file, int(line), function)
            known = self._known[data] = (what, what[1:6])
        return CollectiveCall(number, sequence, start, *known)
