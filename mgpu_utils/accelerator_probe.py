"""Name, memory and peer access of each accelerator, asked for in a short-lived process of its own.

These questions create a context on every GPU (hundreds of MB each, and no fork afterwards), so the learner's
process never asks them. Run as a file, this module prints one line of JSON.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

import torch

TIMEOUT = 60.0
_VISIBILITY = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def probe() -> dict[str, Any] | str:
    """Ask a child process; returns its answer, or one sentence that says why there is none.

    Remembered as long as the variables that choose visible devices stay the same.
    """
    return _remembered(tuple(os.environ.get(name) for name in _VISIBILITY))


@functools.lru_cache(maxsize=4)
def _remembered(visibility: tuple[str | None, ...]) -> dict[str, Any] | str:
    # -P: a learner's own torch.py in the working directory must not be imported instead of PyTorch.
    return ask([sys.executable, "-P", __file__], TIMEOUT)


def ask(command: list[str], timeout: float) -> dict[str, Any] | str:
    """Run `command`, which prints JSON on its last line; one sentence instead when it fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"The accelerators did not answer within {timeout:g} s, so their details are not known."
    except OSError as error:
        return f"The process that looks at the accelerators could not start ({error.strerror})."
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        answer = None
    if done.returncode == 0 and isinstance(answer, dict):
        return answer
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return f"The accelerators could not be opened: {last}"


def describe() -> dict[str, Any]:
    """What this process sees: {"devices": [{name, memory, free, capability, uuid}], "peers": [[bool]]}."""
    kind = torch.accelerator.current_accelerator()
    count = torch.accelerator.device_count()
    if kind is None or count == 0:
        return {"devices": [], "peers": []}
    devices = [_one(kind.type, index) for index in range(count)]
    peers = []
    if kind.type == "cuda":
        ids = range(count)
        peers = [[a == b or torch.cuda.can_device_access_peer(a, b) for b in ids] for a in ids]
    return {"devices": devices, "peers": peers}


def _one(kind: str, index: int) -> dict[str, Any]:
    if kind == "mps":
        memory = torch.mps.recommended_max_memory()
        return {"name": "Apple GPU", "memory": memory, "free": None, "capability": None, "uuid": None}
    module = torch.get_device_module(kind)
    properties = module.get_device_properties(index)
    free, memory = torch.accelerator.get_memory_info(index)
    capability = list(module.get_device_capability(index)) if kind == "cuda" else None
    uuid = getattr(properties, "uuid", None)
    return {
        "name": properties.name,
        "memory": memory,
        "free": free,
        "capability": capability,
        "uuid": None if uuid is None else str(uuid),
    }


if __name__ == "__main__":
    print(json.dumps(describe()))
