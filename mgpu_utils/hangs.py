"""Explain a group that does not finish: who stands where, who waits for whom, and what is usually wrong."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

from .learner_code import is_learner_file
from .rank_errors import Place, number_ranks

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*:$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
# The last line may be cut short: a rank can be ended while it writes.
_DUMP_NOISE = re.compile(
    r"""^(  F(i(le? ?)?)?|  File "[^"]*"?(, line \d*( in?)?)?|Fatal Python error: .*|  <no Python frame>|  \.\.\.|"""
    r"""  Garbage-collecting|Extension modules: .*|Current thread's C stack trace.*|  Binary file .*)$"""
)


@dataclass(frozen=True)
class StackFrame:
    """One frame of a stack as faulthandler prints it."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class RankState:
    """What one rank was doing when its group was given up.

    Attributes:
        rank: its number.
        state: `finished`, `failed`, `died` or `running`.
        waits_in: the collective it stands in, such as `all_reduce`; None if it is in none.
        place: the innermost line of the learner's code that it stands on, if it runs and could be asked.
        stopped: whether its process was stopped from outside, so that nothing runs in it.
    """

    rank: int
    state: str
    waits_in: str | None = None
    place: Place | None = None
    stopped: bool = False

    def __str__(self) -> str:
        if self.stopped:
            return f"rank {self.rank} is stopped (SIGSTOP), so nothing runs there"
        if self.state == "finished":
            return f"rank {self.rank} has finished the cell"
        if self.state != "running":
            return f"rank {self.rank} {self.state}"
        what = f"waits inside {self.waits_in}" if self.waits_in else "is still at work"
        if self.place is None:
            return f"rank {self.rank} {what} (it could not be asked for its line)"
        return f"rank {self.rank} {what}   {self.place}"


def split_report(text: str) -> tuple[str, str]:
    """Separate what a rank's process wrote into (stacks by faulthandler, everything else)."""
    stacks, rest = [], []
    in_dump = False
    for line in text.splitlines():
        if _THREAD.match(line) or _FRAME.match(line) or _DUMP_NOISE.match(line):
            stacks.append(line)
            in_dump = True
        elif line or not in_dump:
            rest.append(line)
            in_dump = False
    return "\n".join(stacks), "\n".join(rest)


def main_stack(text: str) -> list[StackFrame]:
    """The frames of the thread that runs cells, innermost first; empty if the text holds none."""
    threads: list[list[StackFrame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            threads[-1].append(StackFrame(found["file"], int(found["line"]), found["name"]))
    for wanted in (_runs_cell, _has_learner_code):
        for frames in reversed(threads):
            if wanted(frames):
                return frames
    return []


def _runs_cell(frames: list[StackFrame]) -> bool:
    return any(frame.name == "run_code" and "interactiveshell" in frame.file for frame in frames)


def _has_learner_code(frames: list[StackFrame]) -> bool:
    return any(is_learner_file(frame.file) for frame in frames)


def locate(frames: list[StackFrame], place_of: Callable[[StackFrame], Place | None]) -> tuple[str | None, Place | None]:
    """Which collective a stack waits in, and the learner's innermost line, from frames innermost first."""
    waits_in = None
    for frame in frames:
        if is_learner_file(frame.file) and (place := place_of(frame)):
            return waits_in, place
        path = frame.file.replace("\\", "/")
        if path.endswith("torch/distributed/distributed_c10d.py") and not frame.name.startswith("_"):
            waits_in = frame.name
        elif path.endswith("torch/nn/parallel/distributed.py"):
            waits_in = "DistributedDataParallel"
        elif path.endswith("torch/autograd/graph.py") and frame.name == "_engine_run_backward":
            waits_in = "backward"
    return waits_in, None


def waits_for_work(frames: list[StackFrame], place: Place) -> bool:
    """Whether a stack stands in the `wait()` of a collective that was called with `async_op=True`.

    That is compiled code, so the learner's own line is the innermost frame; other `wait`s have one of Python's below.
    """
    return bool(frames) and is_learner_file(frames[0].file) and ".wait(" in place.text


def explain(states: list[RankState]) -> str:
    """Why these ranks cannot finish, and what is usually wrong, in one or two sentences."""
    waiting = [state for state in states if state.state == "running" and state.waits_in]
    busy = [state for state in states if state.state == "running" and not state.waits_in]
    gone = [state for state in states if state.state in ("finished", "failed", "died")]
    if not waiting and not busy:
        return "All ranks came to their end while they were asked where they stand."
    if not waiting:
        who = number_ranks([state.rank for state in busy])
        if stopped := [state.rank for state in busy if state.stopped]:
            return f"Somebody stopped {number_ranks(stopped)} (SIGSTOP). It is no fault of your code."
        return f"{who.capitalize()} had more work than the time allows, or an endless loop."
    who = number_ranks([state.rank for state in waiting])
    if stopped := [state.rank for state in busy if state.stopped]:
        return (
            f"{who.capitalize()} cannot go on without {number_ranks(stopped)}, which somebody stopped (SIGSTOP). "
            "It is no fault of your code."
        )
    verb = "waits" if len(waiting) == 1 else "wait"
    calls = sorted({str(state.waits_in) for state in waiting})
    rule = "Every rank must call the same collectives, in the same order, equally often."
    if gone:
        others = number_ranks([state.rank for state in gone])
        did = "has already finished" if len(gone) == 1 else "have already finished"
        if any(state.state == "failed" for state in gone):
            did = "stopped with an error"
        return (
            f"{who.capitalize()} {verb} inside {' and '.join(calls)} for {others}, which {did} and will never join. "
            f"{rule} Usually the call stands under a condition such as `if rank == 0:`, or the ranks take a "
            "different number of steps."
        )
    if busy:
        others = number_ranks([state.rank for state in busy])
        return (
            f"{who.capitalize()} {verb} inside {' and '.join(calls)} for {others}, still busy elsewhere. {rule} "
            f"Either {others} had more work than the time allows, or it is in a loop that does not end."
        )
    if len(calls) > 1:
        return (
            f"The ranks wait in different collectives ({', '.join(calls)}), so neither call can complete. {rule} "
            "Usually two calls are swapped on one rank, or one rank skips a call."
        )
    return (
        f"All ranks wait inside {calls[0]}, but their calls do not match. Usually the tensors differ in shape or "
        "dtype, or one rank is a step ahead of the other."
    )


def describe_exit(code: int, said: str, memory_kills: int | None = None) -> str:
    """What ended a rank's process, from its exit status and its last words.

    Args:
        code: as `subprocess.Popen.returncode`: negative for a signal.
        said: text the process wrote outside its output channel, without stacks.
        memory_kills: processes that the system ended meanwhile for lack of memory; None where it does not say.
    """
    mismatch = "collective mismatch" in said or "EnforceNotMet" in said or "op.preamble" in said
    if code >= 0:
        return f"ended itself with exit code {code} (`os._exit`, or a library that calls it)"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    why = {
        "SIGKILL": "somebody killed it, or the machine ran out of memory",
        "SIGSEGV": "C++ code used memory that is not its own",
        "SIGABRT": "C++ code gave up",
    }.get(name, "")
    if name == "SIGKILL" and memory_kills:
        why = "the machine, or the container, ran out of memory"
    elif name == "SIGKILL" and memory_kills == 0:
        why = "somebody killed it; there was no lack of memory"
    if mismatch:
        why = "the ranks called a collective with tensors of different size or dtype, or different collectives"
    return f"was ended by signal {-code} ({name})" + (f": {why}" if why else "")


def memory_hint(message: str) -> str | None:
    """What to do about an exception which says that memory ran out; None for every other."""
    if not re.search(
        r"^MemoryError|can't allocate memory|out of memory|std::bad_alloc|Cannot allocate memory", message
    ):
        return None
    return "Memory ran out on that rank. Usual cures: fewer ranks, a smaller batch, or a smaller model."
