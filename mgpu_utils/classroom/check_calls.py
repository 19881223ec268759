"""Tell the answer in a cell from the calls that check it, as text: nothing is executed."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

_CHECK_NAMES = ("check", "hint")
_LINE = re.compile(r"(?:mgpu(?:_utils)?\.)?(?:check|hint)\s*\(")
_NAMED = re.compile(r"\bcheck\s*\(\s*[rRuU]?[\"'](\d\d/[a-z0-9-]+)[\"']")


@dataclass(frozen=True)
class CheckCall:
    """One `mgpu.check("05/shapes", seen)`: the exercise's name, and its other arguments as source text."""

    name: str
    arguments: str


def take_checks(source: str) -> tuple[str, list[CheckCall]]:
    """A cell's source without its top-level calls of `check` and `hint`, and the calls of `check`.

    A cell that is not Python (a magic, a syntax error) loses the lines that look like such a call; what they
    check is not read then.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _without_check_lines(source), []
    lines = source.splitlines()
    calls = []
    for statement in reversed(body):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or _called(call.func) not in _CHECK_NAMES:
            continue
        if _shares_a_line(statement, body):
            continue
        del lines[statement.lineno - 1 : statement.end_lineno]
        if _called(call.func) == "check":
            found = _check_call(call)
            calls += [found] if found else []
    return "\n".join(lines).strip("\n"), calls[::-1]


def checked_names(source: str) -> list[str]:
    """The exercises that a cell says it checks, also where the cell is not Python."""
    return _NAMED.findall(source)


def same_text(one: str, other: str) -> bool:
    """Whether two cells are the same but for blank lines, indentation of comments and spaces at line ends."""
    return _bare(one) == _bare(other)


def _bare(source: str) -> list[str]:
    return [line.rstrip() for line in source.splitlines() if line.strip()]


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr if function.value.id in ("mgpu", "mgpu_utils") else ""
    return ""


def _check_call(call: ast.Call) -> CheckCall | None:
    if not call.args or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
        return None
    arguments = [ast.unparse(argument) for argument in call.args[1:]]
    arguments += [ast.unparse(keyword) for keyword in call.keywords]
    return CheckCall(call.args[0].value, ", ".join(arguments))


def _shares_a_line(statement: ast.stmt, body: list[ast.stmt]) -> bool:
    return any(
        other is not statement
        and other.lineno <= (statement.end_lineno or statement.lineno)
        and (other.end_lineno or other.lineno) >= statement.lineno
        for other in body
    )


def _without_check_lines(source: str) -> str:
    kept, depth = [], 0
    for line in source.splitlines():
        if depth > 0 or _LINE.match(line):
            depth = max(0, depth + line.count("(") - line.count(")"))
            continue
        kept.append(line)
    return "\n".join(kept).strip("\n")
