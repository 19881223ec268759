"""Commit to an answer before seeing the result, and see both side by side. Nothing here is marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from mgpu_utils import progress
from mgpu_utils.result_cards import Card


def predict(
    key: str,
    kind: Sequence[str] | type[Any] = float,
    question: str = "",
    *,
    unit: str = "",
    answer: object = None,
) -> Card:
    """Store what the learner expects; `answer` left as `...` is fine and stores nothing.

    `kind` is a list of options, or `int`, `float` or `str`. Once `reveal` has shown the result, the answer
    given before stays. An answer that is none of the options, or no number, is not stored; the card says so.
    """
    options = _options(key, kind)
    kept = progress.read()["predictions"].get(key, {})
    asked = (question,) if question else ()
    if kept.get("revealed") and "answer" in kept:
        given = _show(kept["answer"], unit)
        return Card("prediction", key, (*asked, f"You said {given} before you saw the result, and that stays."))
    if answer is None or answer is ...:
        how = f'`answer="{options[0]}"`' if options else '`answer="..."`' if kind is str else "`answer=3`"
        choice = "Choose one of: " + ", ".join(options) + "." if options else ""
        foot = f"Write your answer into this cell, as in {how}, and run it again. Nobody marks it."
        return Card("unanswered", key, (*asked, *([choice] if choice else [])), foot)
    value, complaint = _read_answer(answer, kind, options)
    if complaint:
        return Card("unanswered", key, (*asked, complaint))
    saved = progress.record("predictions", key, {"answer": value, "unit": unit})
    foot = "Run on to see." if saved else "Kept until this kernel ends: the folder here cannot be written to."
    return Card("prediction", key, (*asked, f"You say {_show(value, unit)}."), foot)


def reveal(key: str, actual: object, text: str = "", *, unit: str = "") -> Card:
    """Show the result beside what was predicted under `key`; with no prediction, the result alone."""
    kept = progress.read()["predictions"].get(key, {})
    unit = unit or str(kept.get("unit", ""))
    result = f"The result: {_show(actual, unit)}."
    told = (text,) if text else ()
    if "answer" not in kept:
        return Card("compared", key, (result, *told), word="The result")
    given = kept["answer"]
    if not kept.get("revealed"):
        progress.update("predictions", key, lambda entry: {**kept, **entry, "revealed": True})
    return Card("compared", key, (f"You said {_show(given, unit)}. {result}{_distance(given, actual)}", *told))


def _options(key: str, kind: Sequence[str] | type[Any]) -> list[str]:
    if isinstance(kind, type):
        if kind not in (int, float, str):
            raise ValueError(f"predict({key!r}): a prediction is a list of options, int, float or str, not {kind!r}.")
        return []
    options = [str(option) for option in kind]
    if isinstance(kind, str) or len(options) < 2 or len(set(options)) < len(options):
        raise ValueError(f"predict({key!r}): give at least two different options, or int, float or str.")
    return options


def _read_answer(answer: object, kind: object, options: Sequence[str]) -> tuple[Any, str]:
    if options:
        for option in options:
            if str(answer).strip().casefold() == option.casefold():
                return option, ""
        return None, f"`{answer}` is none of the options: {', '.join(options)}."
    if kind is str:
        return str(answer), ""
    try:
        number = float(str(answer))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (kind is int and number != int(number)):
        return None, f"`{answer}` is not a {'whole ' if kind is int else ''}number; write it like `answer=3`."
    return (int(number) if kind is int else number), ""


def _show(value: object, unit: str) -> str:
    shown = (
        f"{float(value):.3g}"
        if isinstance(value, Real) and not isinstance(value, Integral) and abs(float(value)) < 1000
        else str(value)
    )
    return f"{shown} {unit}".strip()


def _distance(given: object, actual: object) -> str:
    if isinstance(given, Real) and isinstance(actual, Real):
        if float(given) == float(actual):
            return " Exactly."
        guess, truth = float(given), float(actual)
        if guess > 0 and truth > 0:
            return f" You were off by a factor of {max(guess / truth, truth / guess):.2g}."
        return f" The difference is {abs(guess - truth):.3g}."
    return " The same." if str(given).casefold() == str(actual).casefold() else ""
