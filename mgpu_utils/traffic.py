"""Count the collectives that a piece of code runs on this rank, and the bytes it hands to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The operators of PyTorch's dispatcher, without underscores at their ends, by the name that users call.
_OPERATORS = {
    "all_reduce": "allreduce allreduce_coalesced all_reduce all_reduce_coalesced",
    "all_gather": "allgather allgather_base allgather_coalesced allgather_into_tensor_coalesced "
    "all_gather_into_tensor all_gather_into_tensor_out all_gather_into_tensor_coalesced",
    "reduce_scatter": "reduce_scatter reduce_scatter_base reduce_scatter_tensor reduce_scatter_tensor_coalesced",
    "all_to_all": "alltoall alltoall_base all_to_all_single",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv recv_any_source",
    "barrier": "barrier",
}
_NAMES = {operator: name for name, operators in _OPERATORS.items() for operator in operators.split()}
# Their first argument is where the result goes, the second is what this rank gives.
_OUTPUT_FIRST = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}


class Call(NamedTuple):
    """One collective: its name as in `torch.distributed`, and the bytes this rank handed to it."""

    name: str
    nbytes: int


class Traffic(TorchDispatchMode):
    """While entered, notes each collective of this rank, in `forward`, `backward` and `step` alike.

    Seen is what goes through PyTorch's dispatcher on the threads of autograd and of the caller; a collective that
    starts in the callback of another one (the second half of PowerSGD) is not.

    Attributes:
        calls: the collectives so far, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @property
    def count(self) -> int:
        """Number of collectives so far."""
        return len(self.calls)

    @property
    def nbytes(self) -> int:
        """Bytes that this rank handed to them, all together."""
        return sum(call.nbytes for call in self.calls)

    def __repr__(self) -> str:
        if not self.calls:
            return "no collective"
        names = Counter(call.name for call in self.calls)
        listed = ", ".join(f"{count} {name}" for name, count in names.items())
        return f"{listed}: {self.nbytes:,} bytes"

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
            name = _NAMES.get(func._schema.name.split("::")[-1].strip("_"))
            if name is not None:
                in_place = func.namespace == "c10d"
                given = args[1] if in_place and name in _OUTPUT_FIRST and len(args) > 1 else args[0]
                self.calls.append(Call(name, _bytes_of(given)))
        return func(*args, **(kwargs or {}))


def _bytes_of(value: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.layout == torch.strided)
