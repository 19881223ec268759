"""stdout and stderr of a rank: of a flood, the middle is cut out before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipykernel.iostream import OutStream

from .rank_output import cut_middle

# At most this much of one `write`, and of what gathers between two messages (0.2 s): a notebook keeps less.
_MOST = 200_000


class RankStream(OutStream):
    """ipykernel's stream for a process that must not fill the memory of the notebook it writes to."""

    def write(self, string: str) -> int | None:
        """Take text; of one that is too long the middle is dropped and counted."""
        if not isinstance(string, str) or len(string) <= _MOST:
            return super().write(string)
        super().write(cut_middle(string, _MOST))
        return len(string)

    def _flush_buffers(self) -> Iterator[tuple[dict[str, Any], str]]:
        for parent, data in super()._flush_buffers():
            yield parent, cut_middle(data, _MOST)
