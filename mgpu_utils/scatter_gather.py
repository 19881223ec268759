"""Split nested values over devices and put them together again, by the rules of `nn.DataParallel`.

Source: torch/nn/parallel/scatter_gather.py, whose behaviour this mirrors for devices that are CPU threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

_SCALAR_WARNING = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; "
    "will instead unsqueeze and return a vector."
)


def _is_namedtuple(obj: Any) -> bool:
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(obj: Any, devices: int, dim: int) -> list[Any]:
    """Pieces of `obj` for at most `devices` devices; fewer where a tensor inside it gives fewer chunks.

    Tensors are cut along `dim`, tuples, lists and dicts are cut item by item, anything else is handed to everyone.
    """
    if isinstance(obj, Tensor):
        first, *others = obj.chunk(devices, dim)
        # Only the first piece stays where it is: a real device transfer copies the others.
        return [first, *(piece.clone() for piece in others)]
    if _is_namedtuple(obj):
        parts = (scatter(item, devices, dim) for item in obj)
        return [type(obj)(*part) for part in zip(*parts, strict=False)]
    if isinstance(obj, tuple) and obj:
        return list(zip(*(scatter(item, devices, dim) for item in obj), strict=False))
    if isinstance(obj, list) and obj:
        return [list(part) for part in zip(*(scatter(item, devices, dim) for item in obj), strict=False)]
    if isinstance(obj, dict) and obj:
        parts = (scatter(item, devices, dim) for item in obj.items())
        return [type(obj)(part) for part in zip(*parts, strict=False)]
    return [obj] * devices


def gather(outputs: Sequence[Any], dim: int) -> Any:
    """One value from the devices' values of the same form, with the tensors in it concatenated along `dim`.

    Scalars give a vector, with a warning. Raises TypeError for values that cannot be put together, ValueError for
    dicts of different lengths.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        if dim == 0 and all(output.dim() == 0 for output in outputs):
            warnings.warn(_SCALAR_WARNING, stacklevel=2)
            outputs = [output.view(1) for output in outputs]
        return torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(output) != len(first) for output in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([output[key] for output in outputs], dim)) for key in first)
    if not isinstance(first, tuple | list):
        raise TypeError(
            f"The replicas returned {type(first).__name__} objects, which cannot be gathered: return tensors, "
            "or tuples, lists and dicts of tensors."
        )
    gathered = (gather(items, dim) for items in zip(*outputs, strict=True))
    kind: Any = type(first)
    return kind._make(gathered) if _is_namedtuple(first) else kind(gathered)


def map_tensors(obj: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested value with each tensor changed."""
    if isinstance(obj, Tensor):
        return change(obj)
    if isinstance(obj, dict):
        return type(obj)((key, map_tensors(value, change)) for key, value in obj.items())
    if _is_namedtuple(obj):
        return type(obj)._make(map_tensors(item, change) for item in obj)
    if isinstance(obj, tuple | list):
        return type(obj)(map_tensors(item, change) for item in obj)
    return obj


def tensors_in(obj: Any) -> Iterator[Tensor]:
    """All tensors inside nested tuples, lists and dicts."""
    if isinstance(obj, Tensor):
        yield obj
    elif isinstance(obj, dict):
        for value in obj.values():
            yield from tensors_in(value)
    elif isinstance(obj, tuple | list):
        for item in obj:
            yield from tensors_in(item)
