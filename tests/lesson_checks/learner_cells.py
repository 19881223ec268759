"""Functions as a learner's notebook cell defines them."""

from __future__ import annotations

import linecache
import textwrap
from itertools import count
from typing import Any

_numbers = count()


class LearnerCell:
    """Defines functions in `__main__`, with a lesson's imports, and with a source that `inspect` can read.

    Args:
        imports: the import statements that the lesson has run before.
    """

    def __init__(self, imports: str) -> None:
        self.imports = imports

    def function(self, code: str) -> Any:
        """The one function that this code defines."""
        code = textwrap.dedent(code).strip() + "\n"
        file = f"<answer {next(_numbers)}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        cell: dict[str, Any] = {"__name__": "__main__"}
        exec(self.imports, cell)
        names = set(cell)
        exec(compile(code, file, "exec"), cell)
        (found,) = (value for name, value in cell.items() if name not in names and callable(value))
        return found

    def answer(self, header: str, lines: str) -> Any:
        """A function with these lines; the header is its arguments alone, or its name with them, as in `f(x)`."""
        header = header if "(" in header else f"answer({header})"
        return self.function(f"def {header}:\n" + textwrap.indent(textwrap.dedent(lines).strip(), "    "))
