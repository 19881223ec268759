"""What pydantic found wrong with a configuration, said in one sentence a reader of the file can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

# What pydantic adds to a place for the arms of a union.
_ARMS = ("list[", "literal[", "int", "float", "constrained-")
_PLAIN = ("int", "float")


def sentences(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """Return what is wrong, one part a problem; `prefix` names the section that `model` describes."""
    found = dict.fromkeys(_sentence(dict(problem), model, prefix) for problem in _relevant(error))
    return "; ".join(found)


def unknown_key(wrong: str, allowed: Iterable[str], where: str = "") -> str:
    """Return the sentence for a key that must not be there, with the closest one that may."""
    fields = list(allowed)
    close = difflib.get_close_matches(wrong, fields, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown key {wrong}{f' in {where}' if where else ''} (allowed: {', '.join(fields)}){hint}"


def _relevant(error: ValidationError) -> list[Any]:
    """Drop what pydantic says of the other arm of `list or auto`: of auto for a list, of lists for the rest."""
    problems = error.errors(include_url=False)
    keep = []
    for problem in problems:
        arms = [str(part) for part in problem["loc"] if str(part).startswith(_ARMS)]
        if arms:
            arm, arm_at = arms[0], [str(part) for part in problem["loc"]].index(arms[0])
            inside_list = arm.startswith("list[") and len(problem["loc"]) > arm_at + 1
            given_list = isinstance(problem["input"], list) or inside_list
            if arm.startswith("list[") != given_list and any(
                str(part).startswith("list[") for other in problems for part in other["loc"]
            ):
                continue
            if arm.startswith(("int", "float", "constrained-")) and isinstance(problem["input"], str):
                continue
            if arm.startswith("literal[") and not isinstance(problem["input"], (str, list)):
                continue
        keep.append(problem)
    return keep or problems


def _sentence(problem: dict[str, Any], model: type[BaseModel], prefix: str) -> str:
    location, kind, given = problem["loc"], problem["type"], problem["input"]
    context = problem.get("ctx", {})
    parts = [part for part in location if not _is_arm(part)]
    key = _key([prefix, *parts] if prefix else parts)
    if kind == "extra_forbidden":
        return _misplaced(parts, model, prefix)
    if kind == "missing":
        return f"{key} is missing"
    either = _alternatives(model, parts)
    if kind == "literal_error":
        allowed = f"{either} or auto" if either else context["expected"].replace("'", "")
        return f"{key} is {_shown(given)}, but must be {allowed}{_closest(given, context['expected'])}"
    wanted = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "string_type": "a text",
        "list_type": "a list",
        "model_type": "a set of keys and values",
        "dict_type": "a set of keys and values",
        "greater_than_equal": f"at least {context.get('ge')}",
        "greater_than": f"more than {context.get('gt')}",
        "less_than_equal": f"at most {context.get('le')}",
        "less_than": f"less than {context.get('lt')}",
        "too_short": "a list with at least one entry",
    }.get(kind)
    if wanted is None:
        return f"{key} {problem['msg'].removeprefix('Value error, ')}"
    if kind in ("model_type", "dict_type"):
        inside = _model_at(model, parts)
        wanted += f" ({', '.join(inside.model_fields)})" if inside else ""
    return f"{key} is {_shown(given)}, but must be {wanted}"


def _is_arm(part: Any) -> bool:
    return isinstance(part, str) and (part.startswith(("list[", "literal[", "constrained-")) or part in _PLAIN)


def _misplaced(parts: list[Any], model: type[BaseModel], prefix: str) -> str:
    wrong, above = str(parts[-1]), parts[:-1]
    owner = _model_at(model, above) or model
    where = _key([prefix, *above] if prefix else above)
    sentence = unknown_key(wrong, owner.model_fields, where)
    elsewhere = _where_it_belongs(wrong, model, owner)
    return sentence.split("; did you mean")[0] + f"; it belongs {elsewhere}" if elsewhere else sentence


def _where_it_belongs(wrong: str, model: type[BaseModel], owner: type[BaseModel]) -> str | None:
    if owner is not model:
        return "at the top level" if wrong in model.model_fields else None
    for name, field in model.model_fields.items():
        inner = _inner_model(field.annotation)
        if inner is not None and wrong in inner.model_fields:
            return f"to an entry of {name}"
    return None


def _model_at(model: type[BaseModel], parts: list[Any]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    for part in parts:
        if isinstance(part, int):
            continue
        if found is None or part not in found.model_fields:
            return None
        found = _inner_model(found.model_fields[part].annotation)
    return found


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _inner_model(inner))), None)


def _alternatives(model: type[BaseModel], parts: list[Any]) -> str | None:
    """What a field that also takes `auto` holds otherwise."""
    owner = _model_at(model, parts[:-1])
    if owner is None or not parts or parts[-1] not in owner.model_fields:
        return None
    arms = get_args(owner.model_fields[parts[-1]].annotation)
    if any(str(arm).startswith("list[") for arm in arms):
        return "a list of whole numbers"
    whole = any(arm is int or int in get_args(arm) for arm in arms)
    return "a whole number" if whole else None


def _key(parts: list[Any]) -> str:
    key = ""
    for part in parts:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return key


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _closest(given: Any, expected: str) -> str:
    choices = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
    close = difflib.get_close_matches(str(given), choices, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
