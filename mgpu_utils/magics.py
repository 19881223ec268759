"""`%%ranks` and `%%rank N`: run a notebook cell on the ranks instead of in the notebook."""

from __future__ import annotations

from typing import Any

from .rank_errors import BadArgument


def register(shell: Any) -> None:
    """Add the cell magics `%%ranks` and `%%rank` to an IPython shell."""
    shell.register_magic_function(run_on_all, magic_kind="cell", magic_name="ranks")
    shell.register_magic_function(run_on_one, magic_kind="cell", magic_name="rank")
    if _with_a_body not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.insert(0, _with_a_body)


def _with_a_body(lines: list[str]) -> list[str]:
    """Give a rank cell that consists of its first line an empty one more.

    IPython does not call the magic of a cell without a body: code behind `%%ranks` would be dropped, with a sentence
    that does not say where it belongs.
    """
    return [*lines, "\n"] if len(lines) == 1 and lines[0].split()[:1] in (["%%ranks"], ["%%rank"]) else lines


def run_on_all(line: str, cell: str) -> None:
    """Run this cell on every rank at the same time."""
    from .ranks import current_group

    if line.strip():
        raise BadArgument(
            f"%%ranks takes nothing after it, but got {line.strip()!r}: write code on the lines below it; for one "
            "rank, begin the cell with `%%rank 0`."
        )
    current_group().execute(_numbered_as_in_notebook("%%ranks", cell))


def run_on_one(line: str, cell: str) -> None:
    """Run this cell on one rank: `%%rank 0`."""
    from .ranks import current_group

    number = line.strip()
    if not number.isdecimal():
        raise BadArgument(
            f"%%rank needs the number of one rank and nothing else, as in `%%rank 0`, but got {number!r}: write code "
            "on the lines below it."
        )
    current_group().execute(_numbered_as_in_notebook(f"%%rank {number}", cell), rank=int(number))


def _numbered_as_in_notebook(magic: str, cell: str) -> str:
    # One line stands for the magic's, so that line numbers in messages are those of the notebook cell.
    return cell if cell.startswith("%%") else f"# {magic}\n{cell}"
