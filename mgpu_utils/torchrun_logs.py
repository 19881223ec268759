"""Read what the ranks of a torchrun launch wrote, and find the exception which explains a failure."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path

# What a rank says when another one has gone: a consequence, never the cause.
_ECHOES = (
    *("connection closed by peer", "connection reset", "broken pipe", "peer closed", "recvvalue failed"),
    *("remote process exited", "connection refused", "closed the connection"),
)
_EXCEPTION_LINE = re.compile(r"^[A-Za-z_][\w.]*(:|$)")
_LONGEST_REASON = 300


@dataclass(frozen=True)
class RankLog:
    """One rank's output, and its exception in one line ("ValueError: ...") when it ended with one."""

    rank: int
    stdout: str
    stderr: str
    exception: str | None


def read(logs: Path, ranks: range) -> list[RankLog]:
    """Return the logs which torchrun's ``--log-dir`` holds of this machine's ``ranks``, in rank order."""
    return [_read_rank(logs, rank, local_rank) for local_rank, rank in enumerate(ranks)]


def merged(ranks: list[RankLog], stream: str) -> str:
    """Return one stream of all ranks in rank order, each line marked with its rank."""
    lines = [
        f"[rank {log.rank}] {line}\n" for log in ranks for line in getattr(log, stream).splitlines() if line.strip()
    ]
    return "".join(lines)


def failure(ranks: list[RankLog], agent_log: str, returncode: int) -> str:
    """Return why a launch failed in one line: the first failing rank's own exception, else its signal."""
    failed = [log for log in ranks if log.exception is not None]
    # A rank which lost its peer names the peer's death; the peer names the cause.
    causes = [log for log in failed if not is_echo(log.exception or "")] or failed
    first = _first_failure(agent_log)
    for log in causes:
        if log.rank == first:
            return f"rank {log.rank}: {log.exception}"
    if first is not None and (not causes or all(is_echo(log.exception or "") for log in causes)):
        ended = _how_it_ended(agent_log)
        if ended:
            return f"rank {first}: {ended}"
    if causes:
        return f"rank {causes[0].rank}: {causes[0].exception}"
    last = [line for line in agent_log.splitlines() if line.strip()]
    said = f": {last[-1].strip()[:_LONGEST_REASON]}" if last else ""
    return f"the launcher ended with exit code {returncode} and no rank delivered a result{said}"


def is_echo(text: str) -> bool:
    """Whether a rank's exception, or a reason made of one, only says that another rank or machine has gone."""
    return any(echo in text.lower() for echo in _ECHOES)


def _read_rank(logs: Path, rank: int, local_rank: int) -> RankLog:
    folders = sorted(logs.glob(f"*/attempt_*/{local_rank}"), key=lambda folder: folder.stat().st_mtime)
    if not folders:
        return RankLog(rank, "", "", None)
    stdout, stderr = (text(folders[-1] / f"{name}.log") for name in ("stdout", "stderr"))
    return RankLog(rank, stdout, stderr, _recorded(folders[-1] / "error.json") or _last_exception(stderr))


def text(path: Path) -> str:
    """Return a log file's text, empty where there is none; bytes that are no text are shown as such."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _recorded(path: Path) -> str | None:
    """Return the exception which torch's ``@record`` wrote, in one line."""
    try:
        message = json.loads(text(path) or "null")
    except json.JSONDecodeError:
        return None
    if isinstance(message, dict):
        message = message.get("message")
    if isinstance(message, dict):
        message = message.get("message")
    return _one_line(message) if isinstance(message, str) else None


def _last_exception(stderr: str) -> str | None:
    if "Traceback (most recent call last)" not in stderr:
        return None
    after = stderr.rsplit("Traceback (most recent call last)", 1)[1].splitlines()[1:]
    for line in after:
        # Frames are indented; the first line that is not, is the exception (torchrun marks lines "[rank0]:").
        bare = re.sub(r"^\[rank\d+\]: ?", "", line)
        if bare and not bare[0].isspace():
            return _one_line(bare) if _EXCEPTION_LINE.match(bare) else None
    return None


def _one_line(message: str) -> str:
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 3] + "..."


def _first_failure(agent_log: str) -> int | None:
    """Return the rank that torchrun saw fail first."""
    found = re.search(r"Root Cause \(first observed failure\):.*?rank\s*:\s*(\d+)", agent_log, re.DOTALL)
    return int(found.group(1)) if found else None


def _how_it_ended(agent_log: str) -> str | None:
    found = re.search(r"Root Cause \(first observed failure\):.*?exitcode\s*:\s*(-?\d+)", agent_log, re.DOTALL)
    if not found:
        return None
    code = int(found.group(1))
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
