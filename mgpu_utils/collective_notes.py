"""Have the public functions of `torch.distributed` note each call of this rank before they do their work.

Seen is what is called through `torch.distributed`, by the learner or by a library. Not seen: the all-reduces that
DistributedDataParallel starts from C++ (its training steps are counted instead), functional collectives, and `send`
and `recv`, which need no partner in every rank. A call with `async_op=True` counts as over when it returns.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .collective_log import LogWriter, What
from .learner_code import is_learner_file

DDP_STEP = "DDP training step"
_FRAMES = 60
_REMEMBERED = 1000
_LONGEST_SHAPE = 150


class _Arguments(NamedTuple):
    """Which arguments tell what a call is.

    `tensor`: whose shape and dtype are the same on all ranks, unless the tensors in the list `uneven` differ in
    shape, or one of `sizes` is given.
    """

    tensor: str = ""
    uneven: str = ""
    sizes: tuple[str, ...] = ()
    root: str = ""
    reduces: bool = False


_CALLS = {
    "all_reduce": _Arguments("tensor", reduces=True),
    "all_reduce_coalesced": _Arguments("tensors", reduces=True),
    "broadcast": _Arguments("tensor", root="src"),
    "reduce": _Arguments("tensor", root="dst", reduces=True),
    "all_gather": _Arguments("tensor", uneven="tensor_list"),
    "all_gather_into_tensor": _Arguments("input_tensor"),
    "all_gather_single": _Arguments("input_tensor"),
    "all_gather_coalesced": _Arguments("input_tensor_list"),
    "gather": _Arguments("tensor", root="dst"),
    "scatter": _Arguments("tensor", root="src"),
    "reduce_scatter": _Arguments("output", uneven="input_list", reduces=True),
    "reduce_scatter_tensor": _Arguments("input", reduces=True),
    "reduce_scatter_single": _Arguments("input", reduces=True),
    "all_to_all": _Arguments(),
    "all_to_all_single": _Arguments("input", sizes=("output_split_sizes", "input_split_sizes")),
    "barrier": _Arguments(),
    "monitored_barrier": _Arguments(),
    "all_gather_object": _Arguments(),
    "gather_object": _Arguments(root="dst"),
    "broadcast_object_list": _Arguments(root="src"),
    "scatter_object_list": _Arguments(root="src"),
}


class _Group:
    """A process group as far as it is noted: text that names it on all its ranks, these, and the calls so far."""

    def __init__(self, name: str, ranks: tuple[int, ...]) -> None:
        self.name, self.ranks, self.calls = name, ranks, 0


class _Inside(threading.local):
    call = False


class _Notes:
    """Where this process notes its calls; one that is made inside another is a part of it."""

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self.inside = _Inside()
        self._groups: dict[int, _Group] = {}
        self._packed: dict[Any, bytes] = {}
        self._forgotten = 0

    def forget_groups(self) -> None:
        """Start counting afresh: groups made from now on may have the names of those which are gone."""
        self._forgotten += 1
        self._groups.clear()

    def group(self, group: Any) -> _Group:
        """What is known of a process group (None: the default one)."""
        import torch.distributed as dist

        group = dist.group.WORLD if group is None else group
        found = self._groups.get(id(group))
        if found is None:
            ranks = tuple(dist.get_process_group_ranks(group))
            name = f"{self._forgotten}/{group.group_name}/{','.join(map(str, ranks))}"
            found = self._groups[id(group)] = _Group(name, ranks)
        return found

    def begin(self, operation: str, details: tuple[Any, ...], group: _Group) -> int:
        """Note a call; `details`: shape, dtype, reduce operation and root, each with a text of its own."""
        code, line = _learner_line()
        key = (operation, details, group.name, code, line)
        packed = self._packed.get(key)
        if packed is None:
            if len(self._packed) > _REMEMBERED:
                self._packed.clear()
            place = (code.co_filename, line, code.co_name) if code is not None else ("", 0, "")
            shape, dtype, reduce_op, root = map(_text, details)
            what = What(group.name, operation, shape, dtype, reduce_op, root, *place)
            packed = self._packed[key] = what.packed()
        group.calls += 1
        return self.writer.begin(group.calls, packed)


def note_collectives(memory: Any) -> None:
    """Note the calls of this process in `memory` from now on; call it once, before anybody imports them by name."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    notes = _Notes(LogWriter(memory))
    for name, arguments in _CALLS.items():
        function = getattr(c10d, name, None)
        if inspect.isfunction(function):
            wrapper = _noted(function, arguments, notes)
            for module in (c10d, dist):
                if getattr(module, name, None) is function:
                    setattr(module, name, wrapper)
    destroy = c10d.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        try:
            return destroy(*args, **kwargs)
        finally:
            notes.forget_groups()

    c10d.destroy_process_group = dist.destroy_process_group = destroy_process_group
    _note_ddp_steps(notes)


def _noted(function: Callable[..., Any], arguments: _Arguments, notes: _Notes) -> Callable[..., Any]:
    from torch.compiler import is_compiling

    operation, inside, writer = function.__name__, notes.inside, notes.writer
    details = _details(function, arguments)
    group_at = list(inspect.signature(function).parameters).index("group")

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if inside.call or is_compiling():
            return function(*args, **kwargs)
        try:
            group = notes.group(args[group_at] if len(args) > group_at else kwargs.get("group"))
            at = notes.begin(operation, details(group, args, kwargs), group)
        except Exception:
            # An odd argument is the function's own to refuse; a call of a rank outside the group is none.
            return function(*args, **kwargs)
        inside.call = True
        try:
            result = function(*args, **kwargs)
        except (TypeError, ValueError):
            group.calls -= 1
            writer.refuse(at)
            raise
        finally:
            inside.call = False
        writer.end(at)
        return result

    return noted


def _details(function: Callable[..., Any], arguments: _Arguments) -> Callable[..., tuple[Any, ...]]:
    """A function that finds shape, dtype, reduce operation and root in the arguments of a call."""
    places = {name: place for place, name in enumerate(inspect.signature(function).parameters)}
    tensor_at, op_at = places.get(arguments.tensor, 99), places.get("op", 99)

    simple = bool(arguments.tensor) and not (arguments.root or arguments.uneven or arguments.sizes)

    def details(group: _Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if simple and tensor_at < len(args) and hasattr(args[tensor_at], "dtype"):
            # The commonest calls, in the fewest steps: a loop may make thousands of them a second.
            used = "" if not arguments.reduces else args[op_at] if op_at < len(args) else kwargs.get("op", "SUM")
            return args[tensor_at].shape, args[tensor_at].dtype, used, ""

        def given(name: str) -> Any:
            place = places.get(name, 99)
            return args[place] if place < len(args) else kwargs.get(name)

        tensor: Any
        shape: Any = ""
        dtype: Any = ""
        reduce_op: Any = ""
        root = ""
        if arguments.tensor:
            tensor = args[tensor_at] if tensor_at < len(args) else kwargs.get(arguments.tensor)
            if isinstance(tensor, list | tuple):
                shape, dtype = tuple(each.shape for each in tensor), tensor[0].dtype
            else:
                shape, dtype = tensor.shape, tensor.dtype
            uneven = given(arguments.uneven) if arguments.uneven else None
            if (uneven and len({each.shape for each in uneven}) > 1) or any(given(name) for name in arguments.sizes):
                shape = ""
        if arguments.reduces:
            reduce_op = args[op_at] if op_at < len(args) else kwargs.get("op", "SUM")
        if arguments.root:
            number = given(arguments.root)
            root = str(number if number is not None else group.ranks[given(f"group_{arguments.root}") or 0])
        return shape, dtype, reduce_op, root

    return details


def _text(detail: Any) -> str:
    """A shape, a dtype, a reduce operation or a root in words; the same on all ranks, or empty."""
    if isinstance(detail, str):
        return detail
    if isinstance(detail, tuple):
        shape = str(tuple(tuple(each) if isinstance(each, tuple) else each for each in detail))
        return shape if len(shape) <= _LONGEST_SHAPE else f"{shape[:_LONGEST_SHAPE]}... ({len(detail)} tensors)"
    return getattr(detail, "name", "") or str(detail).partition("torch.")[2].partition(" ")[0]


def _learner_line() -> tuple[Any, int]:
    """Code and line of the learner's innermost frame; (None, 0) where there is none."""
    frame: Any = sys._getframe(3)
    for _ in range(_FRAMES):
        if frame is None:
            break
        if is_learner_file(frame.f_code.co_filename):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None, 0


def _note_ddp_steps(notes: _Notes) -> None:
    """Count the training steps of DDP models: their all-reduces start in C++ and cannot be seen from here."""
    import torch
    from torch.compiler import is_compiling
    from torch.nn.parallel import DistributedDataParallel

    forward = DistributedDataParallel.forward
    steps = _Group("", ())

    @functools.wraps(forward)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling() and self.training and torch.is_grad_enabled() and self.require_backward_grad_sync:
            notes.writer.end(notes.begin(DDP_STEP, ("",) * 4, steps))
        return forward(self, *args, **kwargs)

    DistributedDataParallel.forward = noted  # type: ignore[method-assign]
