"""`%%ranks` and `%%rank N`: run a notebook cell on the ranks instead of in the notebook."""

from __future__ import annotations

from typing import Any

from .rank_errors import BadArgument


def register(shell: Any) -> None:
    """Add the cell magics `%%ranks` and `%%rank` to an IPython shell."""
    shell.register_magic_function(run_on_all, magic_kind="cell", magic_name="ranks")
    shell.register_magic_function(run_on_one, magic_kind="cell", magic_name="rank")


def run_on_all(line: str, cell: str) -> None:
    """Run this cell on every rank at the same time."""
    from .ranks import current_group

    if line.strip():
        raise BadArgument(f"%%ranks takes nothing after it, but got {line.strip()!r}; for one rank use `%%rank 0`.")
    current_group().execute(_numbered_as_in_notebook("%%ranks", cell))


def run_on_one(line: str, cell: str) -> None:
    """Run this cell on one rank: `%%rank 0`."""
    from .ranks import current_group

    number = line.strip()
    if not number.isdecimal():
        raise BadArgument(f"%%rank needs the number of one rank, as in `%%rank 0`, but got {number!r}.")
    current_group().execute(_numbered_as_in_notebook(f"%%rank {number}", cell), rank=int(number))


def _numbered_as_in_notebook(magic: str, cell: str) -> str:
    # One line stands for the magic's, so that line numbers in messages are those of the notebook cell.
    return cell if cell.startswith("%%") else f"# {magic}\n{cell}"
