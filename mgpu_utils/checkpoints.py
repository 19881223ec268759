"""Save a training run once, whole or not at all, and resume it on every rank."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from mgpu_utils.state_dicts import load_state
from mgpu_utils.strategies import unwrap

_OWN = ("model", "optimizer", "scaler", "rng")


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
    **progress: Any,
) -> None:
    """Write one file: the plain model, the optimizer, the scaler, each rank's random state, and `progress`.

    Call it on every rank. Rank 0 alone writes, into a file beside `path` that then takes its place, so that a
    reader finds the old checkpoint or the new one and never a part of one. Collectives: one object gather of the random
    states before, and one of the outcome after, so that no rank goes on before the file is there.

    Args:
        progress: what else a resumed run has to know, such as `epoch=1, batch=8`.

    Raises:
        ValueError: `progress` uses a name that the checkpoint has itself.
        OSError: rank 0 could not write; raised on every rank, with the reason.
    """
    taken = sorted(set(progress) & set(_OWN))
    if taken:
        raise ValueError(f"a checkpoint keeps {taken[0]!r} itself: give your own entry another name.")
    rng = _gathered(_random_state())
    problem = failure = None
    if _rank() == 0:
        content = {"model": unwrap(model).state_dict(), "optimizer": optimizer.state_dict(), "rng": rng, **progress}
        if scaler is not None:
            content["scaler"] = scaler.state_dict()
        try:
            _write(Path(path), content)
        except Exception as error:
            # Whatever it is, the other ranks wait to be told.
            failure, problem = error, f"the checkpoint {os.fspath(path)} could not be written: {error}"
    problem = _gathered(problem)[0]
    if problem:
        raise OSError(problem) from failure


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: torch.amp.GradScaler | None = None,
) -> dict[str, Any]:
    """Read a checkpoint into this rank's model, optimizer and scaler; returns what was given as `progress`.

    Call it on every rank: DDP sends rank 0's parameters to the others when it wraps a model, and never the state of an
    optimizer. The model may be wrapped or plain; every tensor must find its place. The random states are put
    back where the run has as many ranks as the one that was saved. No collective.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it was saved without the scaler that is to be loaded.
        RuntimeError: it is no checkpoint of this model.
    """
    # Read to the CPU: the file remembers rank 0's device. Loading copies to where the model and optimizer are.
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if scaler is not None and "scaler" not in saved:
        raise ValueError(f"{os.fspath(path)} was saved without a scaler; pass scaler=None to resume without its scale.")
    load_state(model, saved["model"])
    if optimizer is not None:
        optimizer.load_state_dict(saved["optimizer"])
    if scaler is not None:
        scaler.load_state_dict(saved["scaler"])
    if len(saved.get("rng", ())) == _world_size():
        _restore_random_state(saved["rng"][_rank()])
    return {name: value for name, value in saved.items() if name not in _OWN}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _in_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _rank() -> int:
    return dist.get_rank() if _in_group() else 0


def _world_size() -> int:
    return dist.get_world_size() if _in_group() else 1


def _gathered(value: Any) -> list[Any]:
    """This value of every rank, in rank order."""
    values = [value]
    if _in_group():
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
    return values


def _random_state() -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _restore_random_state(state: Mapping[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
