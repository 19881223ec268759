"""The exceptions that end a cell on the ranks: who, where, why, and what to do next."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .collective_log import What
from .collective_match import Mismatch
from .hangs import RankState, explain, memory_hint
from .rank_errors import (
    Place,
    RankError,
    RankFailure,
    RankTimeout,
    notebook_only,
    number_ranks,
    shown_places,
)
from .troubleshooting_links import more

if TYPE_CHECKING:
    from .ranks import RankGroup

_FOLLOW_UP_ERRORS = ("Connection closed by peer", "Connection reset by peer", "Socket Timeout", "Broken pipe")


def rank_error(group: RankGroup, failures: list[RankFailure], states: list[RankState], history: Any) -> RankError:
    """One or more ranks raised an exception or died."""
    # A lost connection is what the others see when one rank is gone; it is not the cause.
    ordered = sorted(failures, key=lambda f: (f.kind != "died", _is_echo(f), f.rank))
    first = ordered[0]
    same = [f.rank for f in ordered if (f.summary, f.places) == (first.summary, first.places)]
    summary = first.summary
    if len(same) > 1:
        summary = summary.replace("was ended", "were ended", 1).replace("ended itself", "ended themselves", 1)
    lines = [f"{number_ranks(sorted(same))} {summary}", *shown_places(first.places)]
    lines += _also(f for f in ordered if f.rank not in same)
    failed = {f.rank for f in ordered}
    lines += [f"  meanwhile: {s}" for s in states if s.state == "running" and s.rank not in failed]
    about = "died" if first.kind == "died" else "echo" if _is_echo(first) else None
    if first.name == "NameError" and (hint := notebook_only(first.message)):
        lines.append(hint)
        about = "name"
    if "Default process group has not been initialized" in first.message:
        lines.append("The process group of these ranks was destroyed; `ranks.restart()` makes a new one.")
        about = "no group"
    if "initialize the default process group twice" in first.message:
        lines.append("These ranks have a process group already, made for them at their start: leave that call out.")
    if first.message.startswith("the value returned by"):
        about = "not sent"
    if hint := memory_hint(f"{first.name}: {first.message}"):
        lines.append(hint)
        about = "died"
    if group._lost:
        lines.append(after(group))
    if about:
        lines.append(more(about))
    pictured = first.kind == "died" or any(state.waits_in for state in states)
    return RankError("\n".join(lines), tuple(ordered), history if pictured else ())


def mismatch_error(
    group: RankGroup,
    mismatch: Mismatch,
    failures: list[RankFailure],
    place: Callable[[What], Place | None],
    history: Any,
) -> RankError:
    """The ranks called collectives that do not belong together."""
    found = []
    fewest = list(mismatch.alike.values())[-1]
    for rank, call in sorted(mismatch.calls.items(), key=lambda item: (item[0] not in fewest, item[0])):
        where = place(call.what)
        found.append(RankFailure(rank, "mismatched", f"called {call.what}", (where,) if where else ()))
    lines = mismatch.lines(place)
    lines += _also(f for f in failures if not _is_echo(f))
    lines += [after(group), more("mismatch")]
    return RankError("\n".join(lines), tuple([*found, *failures]), history)


def uneven_error(group: RankGroup, counts: dict[int, int], last: dict[int, str], history: Any) -> RankError:
    """All ranks have finished, but not with the same number of collectives."""
    told = ", ".join(f"rank {rank} made {count}" for rank, count in counts.items())
    lines = [f"the ranks finished this cell with unequal numbers of collectives: {told}."]
    lines += [f"  the last of rank {rank}: {call}" for rank, call in last.items()]
    lines.append(
        "Why: a rank that only sends does not wait, so nothing hung; the next collective would meet the wrong partner. "
        "Usually the ranks take different numbers of steps, or a call stands under a condition such as `if rank == 0:`."
    )
    lines += [after(group), more("mismatch")]
    most = max(counts.values())
    failures = tuple(
        RankFailure(rank, "mismatched", f"made {count} collectives, another rank {most}")
        for rank, count in counts.items()
        if count < most
    )
    return RankError("\n".join(lines), failures, history)


def timeout_error(
    group: RankGroup, seconds: float, states: list[RankState], told: list[str], history: Any
) -> RankTimeout:
    """Not all ranks finished in time; `told`: what their log adds."""
    lines = [f"the ranks did not finish within {seconds:g} s."]
    lines += [f"  {state}" for state in states]
    if sys.platform == "win32":
        lines.append("Windows has no way to ask a rank for its line; on Linux and macOS it would stand here.")
    lines.append(f"Why: {explain(states)}")
    lines += told
    if not any(state.waits_in for state in states):
        lines.append("If the work simply takes longer, allow more time: `ranks.timeout = 600`.")
    lines += [after(group), more("timeout")]
    return RankTimeout("\n".join(lines), tuple(states), history)


def interrupt_text(group: RankGroup, states: list[RankState]) -> str:
    """The cell was stopped: where the ranks stood, and why they could not go on where one had left the others."""
    frozen = any(state.waits_in for state in states) and any(state.state != "running" for state in states)
    lines = ["stopped."] + [f"  {state}" for state in states if frozen or state.state == "running"]
    if frozen:
        lines.append(f"Why it did not end: {explain(states)}")
    return "\n".join([*lines, after(group)])


def not_started(rank: int, error: OSError) -> str:
    """The process of a rank could not be made: what is missing, and where."""
    said = f"rank {rank} could not be started: {error.strerror or error}."
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"{said} The folder for temporary files ({tempfile.gettempdir()}) is full: free some space there."
        case errno.EROFS | errno.EACCES | errno.ENOENT:
            return f"{said} A writable folder for temporary files is needed: set TMPDIR to one, and restart the kernel."
        case errno.EMFILE | errno.ENFILE:
            return f"{said} Too many files are open: restart the notebook's kernel, or raise the limit (`ulimit -n`)."
        case errno.EAGAIN | errno.ENOMEM:
            return f"{said} The machine allows no more processes or has no memory left: start fewer ranks."
    return said


def after(group: RankGroup) -> str:
    """Whether the group can still be used."""
    if group._lost:
        return "Call `ranks.restart()` for a fresh group (names defined on the ranks are gone)."
    return "The ranks are still alive and can be used."


def _is_echo(failure: RankFailure) -> bool:
    return any(text in failure.message for text in _FOLLOW_UP_ERRORS)


def _also(failures: Any) -> list[str]:
    return [f"  also: rank {f.rank} {(f.summary.splitlines() or [''])[0]}" for f in failures]
