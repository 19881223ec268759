"""Send functions, arguments and results between the notebook and the ranks by value.

By value means: what arrives is a copy. torch's own way of passing CPU tensors to other processes shares
their memory, so that a model given to N ranks would get N updates a step.
"""

from __future__ import annotations

import io
import os
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle

from .rank_errors import CannotSend
from .troubleshooting_links import more


def _rebuild_code(build: Callable[..., types.CodeType], args: tuple[Any, ...], file: str) -> types.CodeType:
    return build(*args).replace(co_filename=file)


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    # cloudpickle drops the file name; without it no message could name the learner's line.
    build, args = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    file = os.path.abspath(code.co_filename) if os.path.isfile(code.co_filename) else code.co_filename
    return _rebuild_code, (build, args, file)


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar[Any] = ChainMap({types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)


class _ToCpuPickler(_Pickler):
    """Moves tensors from an accelerator to the CPU: the receiver may not have that device."""

    def reducer_override(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta"):
            return value.detach().cpu().__reduce_ex__(cloudpickle.DEFAULT_PROTOCOL)
        return super().reducer_override(value)


def dumps(value: Any, to_cpu: bool = False) -> bytes:
    """Pickle `value`, functions and classes of a notebook or script included; read it with `pickle.loads`."""
    file = io.BytesIO()
    (_ToCpuPickler if to_cpu else _Pickler)(file).dump(value)
    return file.getvalue()


def dump_call(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Pickle a call that the ranks are to make.

    Raises:
        TypeError: it cannot be sent; names the function or the argument, and the cure.
    """
    if not callable(fn):
        raise CannotSend(f"ranks.run needs a function to call, not {type(fn).__name__} {fn!r}.")
    try:
        return dumps((fn, args, kwargs))
    except Exception as whole:
        named = {"the function": fn} | {f"argument {i + 1}": value for i, value in enumerate(args)}
        named |= {f"argument `{name}`": value for name, value in kwargs.items()}
        for what, value in named.items():
            try:
                dumps(value)
            except Exception as error:
                raise CannotSend(
                    f"{what} of ranks.run cannot be sent to the ranks: {error}. Create such an object inside the "
                    f"function, on each rank.\n{more('not sent')}"
                ) from None
        raise CannotSend(f"this call cannot be sent to the ranks: {whole}.\n{more('not sent')}") from None


def dump_result(result: Any, source: str) -> bytes:
    """Pickle what `source` returned on a rank, with tensors moved to the CPU.

    Raises:
        TypeError: it cannot be sent; says what may be returned instead.
    """
    try:
        return dumps(result, to_cpu=True)
    except Exception as error:
        raise TypeError(
            f"the value returned by {source} (a {type(result).__name__}) cannot be sent to the notebook: {error}. "
            "Return tensors, numbers, strings, or lists and dicts of them."
        ) from None
