"""Names that a function brings from the notebook while the rank has a name of its own with another value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

# What `join` puts on every rank, and what differs from rank to rank or from the notebook: a rank's own always counts.
OWN_NAMES = ("rank", "world_size", "local_rank", "device")

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.device, torch.dtype)
_MOST_ITEMS = 100
_MOST_NUMBERS = 1_000_000


def shadowed(brought: Mapping[str, Any], own: Mapping[str, Any], hidden: Collection[str] = ()) -> list[str]:
    """The names whose value in `brought`, a function's globals, is known to differ from the rank's `own`.

    Values that cannot be compared for little count as equal: a warning should be right. `hidden` are names of `own`
    that no learner has set.
    """
    return sorted(
        name
        for name in brought.keys() & own.keys()
        if not name.startswith("_")
        and name not in OWN_NAMES
        and name not in hidden
        and _differ(brought[name], own[name])
    )


def _differ(one: Any, two: Any) -> bool:
    if one is two:
        return False
    if type(one) is not type(two):
        # 1 and 1.0 are as good as equal; a list and a tensor are not.
        return not (isinstance(one, int | float) and isinstance(two, int | float) and one == two)
    if isinstance(one, float) and one != one:
        return bool(two == two)
    if isinstance(one, _PLAIN):
        return bool(one != two)
    if isinstance(one, Tensor):
        return _tensors_differ(one, two)
    if isinstance(one, nn.Module):
        return _differ(one.state_dict(), two.state_dict())
    if isinstance(one, FunctionType):
        return _codes_differ(one.__code__, two.__code__)
    if isinstance(one, type):
        return _differ(_functions_of(one), _functions_of(two))
    if isinstance(one, list | tuple):
        return len(one) != len(two) or any(map(_differ, one[:_MOST_ITEMS], two[:_MOST_ITEMS]))
    if isinstance(one, dict):
        return one.keys() != two.keys() or any(_differ(one[key], two[key]) for key in list(one)[:_MOST_ITEMS])
    return False


def _tensors_differ(one: Tensor, two: Tensor) -> bool:
    if (one.shape, one.dtype) != (two.shape, two.dtype):
        return True
    if one.is_meta or two.is_meta or one.numel() > _MOST_NUMBERS:
        return False
    return not torch.equal(one.detach().cpu(), two.detach().cpu())


def _codes_differ(one: CodeType, two: CodeType) -> bool:
    """Whether two functions do something else; the lines on which they stand do not count."""
    if (one.co_code, one.co_names, one.co_varnames) != (two.co_code, two.co_names, two.co_varnames):
        return True
    return len(one.co_consts) != len(two.co_consts) or any(
        _codes_differ(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else _differ(a, b)
        for a, b in zip(one.co_consts, two.co_consts, strict=True)
    )


def _functions_of(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if isinstance(value, FunctionType)}
