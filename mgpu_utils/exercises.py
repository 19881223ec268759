"""Check a learner's answer and say what is wrong without giving it away; hints, one at a time.

The checks of lesson 05 are functions in `mgpu_utils/lesson_checks/lesson_05.py`:

    @exercise("05/split", minutes=5, difficulty=1, hints=["How many samples ...?", "`torch.chunk` ..."])
    def split(sizes: list[int]) -> None:
        if sum(sizes) != 10:
            raise Wrong(f"your shares add up to {sum(sizes)}; the batch holds 10 samples")

A check that returns is passed. `Wrong` or a failed `assert` with a message is the learner's mistake; any
other exception is shown as one that the learner's code raised. `NotAttempted`, and an answer that is still
`...` or None, is neither right nor wrong.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mgpu_utils import progress
from mgpu_utils.predictions import predict, reveal
from mgpu_utils.rank_errors import BadArgument
from mgpu_utils.result_cards import Card

__all__ = ["CheckFailed", "NotAttempted", "Wrong", "check", "exercise", "hint", "predict", "reveal"]

Check = TypeVar("Check", bound=Callable[..., object])
STRICT = "MGPU_STRICT"


class Wrong(Exception):
    """The answer is wrong; the message says in what respect, and not what would be right."""


class NotAttempted(Exception):
    """Raised by a check that sees that nothing was tried."""


class Misuse(BadArgument):
    """`check` or `hint` was called with arguments that make no sense; says what would."""


class CheckFailed(AssertionError):
    """A check was not green although MGPU_STRICT asked for that."""


@dataclass(frozen=True)
class Exercise:
    """One registered exercise; `difficulty` runs from 1 to 3, `explain` is shown when it is right."""

    name: str
    run: Callable[..., object]
    minutes: int
    difficulty: int
    hints: tuple[str, ...]
    explain: str


_registry: dict[str, Exercise] = {}


def exercise(
    name: str, *, minutes: int, difficulty: int, hints: Sequence[str] = (), explain: str = ""
) -> Callable[[Check], Check]:
    """Register a check under `LESSON/NAME`, as in "05/split"."""
    if not re.fullmatch(r"\d\d/[a-z0-9-]+", name):
        raise ValueError(f"an exercise is called like '05/split', not {name!r}.")
    if difficulty not in (1, 2, 3):
        raise ValueError(f"exercise {name}: difficulty is 1, 2 or 3, not {difficulty!r}.")

    def register(run: Check) -> Check:
        _registry[name] = Exercise(name, run, minutes, difficulty, tuple(hints), explain)
        return run

    return register


def registered() -> tuple[str, ...]:
    """The names of the exercises known so far; those of a lesson are, once its checks are imported."""
    return tuple(_registry)


def check(name: str, *answers: object, **context: object) -> Card:
    """Check an answer and draw the result: right, not yet (and why), or not attempted yet.

    Raises nothing for a wrong or missing answer, unless the variable MGPU_STRICT is set: then CheckFailed.
    """
    wanted = _find(name)
    if any(unattempted(answer) for answer in answers):
        card = _not_attempted(wanted)
    else:
        _check_call(wanted, answers, context)
        card = _run(wanted, answers, context)
    _remember(wanted, card.kind)
    if card.kind != "right" and os.environ.get(STRICT, "") not in ("", "0"):
        raise CheckFailed(f"{name}: {card.word or card.kind}: {' '.join(card.lines)}")
    return card


def hint(name: str, number: int | None = None) -> Card:
    """Show one hint, the gentlest first: the next one not seen yet, or the one with this number (from 1)."""
    wanted = _find(name)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise Misuse(f"hints are numbered from 1, so ask for `mgpu.hint({name!r}, 1)`, not {number!r}.")
    kept = progress.read()["checks"].get(name, {})
    count = len(wanted.hints)
    if not count:
        return Card("hint", name, ("There is no hint for this one.",))
    seen = _count(kept, "hints")
    number = min(seen + 1, count) if number is None else number
    if not 1 <= number <= count:
        return Card("hint", name, (f"Hints are numbered from 1 to {count}.",))
    shown = number
    progress.update("checks", name, lambda entry: {**entry, "hints": max(_count(entry, "hints"), shown)})
    foot = f'One more: `mgpu.hint("{name}")`' if number < count else "That was the last one."
    return Card("hint", name, (wanted.hints[number - 1],), foot, word=f"Hint {number} of {count}")


def unattempted(answer: object) -> bool:
    """Whether an answer is what the notebook came with: `...`, None, or a function or class with `...`."""
    if answer is None or answer is ... or answer is NotImplemented:
        return True
    if isinstance(answer, list | tuple | set):
        return any(item is ... for item in answer)
    if isinstance(answer, dict):
        return any(item is ... for item in answer.values())
    if inspect.isfunction(answer) or inspect.isclass(answer):
        try:
            source = inspect.getsource(answer)
        except (OSError, TypeError):
            return False
        # Code below the dots is an answer, even where the learner left them standing.
        end = r"" if inspect.isclass(answer) else r"(#.*\s*)*\Z"
        return re.search(r"^\s*# YOUR CODE HERE\n\s*\.\.\.\s*" + end, source, re.MULTILINE) is not None
    return False


def _check_call(wanted: Exercise, answers: tuple[object, ...], context: dict[str, object]) -> None:
    """Tell a call with the wrong arguments from an answer that is wrong."""
    signature = inspect.signature(wanted.run)
    try:
        signature.bind(*answers, **context)
    except TypeError as error:
        given = [name if name not in ("ranks",) else "ranks=ranks" for name in signature.parameters]
        call = ", ".join([f'"{wanted.name}"', *given])
        raise Misuse(f"mgpu.check({call}) is how this exercise is checked; this call: {error}.") from None


def _find(name: str) -> Exercise:
    if not isinstance(name, str):
        raise Misuse(f"an exercise is named like '05/scatter', not {name!r}.")
    if name not in _registry and re.match(r"\d\d/", name):
        module = f"mgpu_utils.lesson_checks.lesson_{name[:2]}"
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    if name not in _registry:
        close = difflib.get_close_matches(name, _registry, n=1, cutoff=0.4)
        meant = f"; did you mean {close[0]!r}?" if close else "; names look like '05/scatter'."
        raise Misuse(f"there is no exercise {name!r}{meant}")
    return _registry[name]


def _run(wanted: Exercise, answers: tuple[object, ...], context: dict[str, object]) -> Card:
    try:
        wanted.run(*answers, **context)
    except (NotAttempted, NotImplementedError):
        return _not_attempted(wanted)
    except Wrong as error:
        return _wrong(wanted, str(error))
    except AssertionError as error:
        return _wrong(wanted, str(error) or "the check does not hold")
    except Exception as error:
        lines = (f"`{type(error).__name__}: {error}`", *_own_line(error))
        return Card("error", wanted.name, lines, _help(wanted))
    return Card("right", wanted.name, (wanted.explain,) if wanted.explain else ())


def _not_attempted(wanted: Exercise) -> Card:
    effort = f"About {wanted.minutes} minutes, difficulty {wanted.difficulty} of 3."
    return Card("open", wanted.name, (effort,), _help(wanted))


def _wrong(wanted: Exercise, message: str) -> Card:
    sentence = message[:1].upper() + message[1:]
    return Card("wrong", wanted.name, (sentence if sentence[-1:] in ".?!" else sentence + ".",), _help(wanted))


def _help(wanted: Exercise) -> str:
    return f'Stuck? `mgpu.hint("{wanted.name}")`' if wanted.hints else ""


def _own_line(error: BaseException) -> tuple[str, ...]:
    package = os.path.dirname(__file__)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        inside = frame.filename.startswith(package) or f"{os.sep}site-packages{os.sep}" in frame.filename
        if not inside and frame.line:
            return (f"in your `{frame.name}`, at `{frame.line}`",)
    return ()


def _remember(wanted: Exercise, kind: str) -> None:
    if kind == "open":
        return

    def attempt(entry: dict[str, Any]) -> dict[str, Any]:
        changed = {**entry, "attempts": _count(entry, "attempts") + 1, "done": entry.get("done") is True}
        if kind == "right" and not changed["done"]:
            changed |= {"done": True, "solved": progress.now()}
        return changed

    progress.update("checks", wanted.name, attempt)


def _count(entry: dict[str, Any], what: str) -> int:
    return entry[what] if isinstance(entry.get(what), int) else 0
