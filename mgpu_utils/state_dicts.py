"""Load a checkpoint whoever wrapped the model that it was saved from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from mgpu_utils.strategies import unwrap

PREFIX = "module."


def load_state(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a state dict saved from the plain model or from any wrapper into a model, wrapped or plain.

    `module.` is taken off the keys only when every key has it and the plain model has other names. Every tensor
    must find its place: nothing is skipped.

    Raises:
        RuntimeError: the checkpoint is not one of this model; names the first key that does not fit.
    """
    plain = unwrap(module)
    wanted = set(plain.state_dict())
    names = {key: key for key in state}
    while set(names.values()) != wanted and names and all(name.startswith(PREFIX) for name in names.values()):
        names = {key: name.removeprefix(PREFIX) for key, name in names.items()}
    found = set(names.values())
    if found != wanted:
        missing, extra = sorted(wanted - found), sorted(found - wanted)
        told = [f"it lacks {missing[0]!r} ({len(missing)} in all)"] if missing else []
        told += [f"the model has no {extra[0]!r} ({len(extra)} in all)"] if extra else []
        raise RuntimeError(f"This checkpoint does not fit the model: {' and '.join(told)}. Nothing was loaded.")
    plain.load_state_dict({name: state[key] for key, name in names.items()})
