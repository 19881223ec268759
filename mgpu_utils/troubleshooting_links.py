"""Where `docs/troubleshooting.md` has more on what went wrong with a group of ranks."""

from __future__ import annotations

PAGE = "docs/troubleshooting.md"
HEADINGS = {
    "timeout": "RankTimeout: the ranks did not finish within ... s",
    "died": "RankError: rank ... was ended by signal 9 (SIGKILL)",
    "mismatch": "Received data size doesn't match expected size / collective mismatch",
    "echo": "Connection closed by peer / Connection reset by peer",
    "name": "NameError: name '...' is not defined (on a rank)",
    "not sent": "... of ranks.run cannot be sent to the ranks: cannot pickle",
    "no group": "Default process group has not been initialized / DistributedDataParallel needs a process group",
}


def more(about: str) -> str:
    """The line that ends an explanation: the page and the heading to look under."""
    return f'More: {PAGE}, under "{HEADINGS[about]}".'
