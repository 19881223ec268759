"""Compute capabilities and the code that a build of PyTorch holds for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_GIB = 2**30


def runs_on(capability: Sequence[int], architectures: Sequence[str]) -> bool:
    """Whether code for one of `architectures` (torch.cuda.get_arch_list) runs on a GPU of this (major, minor).

    `sm_86` is machine code: it runs on the same major version with the same or a later minor one. `compute_90`
    is compiled by the driver: it runs on every later GPU. Code for `sm_90a` runs on exactly that capability.
    Source: NVIDIA CUDA C++ programming guide, "Compute capability" and "Application compatibility".
    """
    wanted = (capability[0], capability[1])
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if match is None:
            continue
        has = (int(match[2]), int(match[3]))
        if match[4] == "a":
            fits = has == wanted
        elif match[1] == "compute" and not match[4]:
            fits = has <= wanted
        else:
            fits = has[0] == wanted[0] and has[1] <= wanted[1]
        if fits:
            return True
    return False


def describe_gpu(device: Mapping[str, Any]) -> str:
    """Name, memory and compute capability of one device."""
    parts = [str(device["name"])]
    if device["memory"]:
        free = "" if device["free"] is None else f" ({device['free'] / _GIB:.1f} GiB free)"
        parts.append(f"{device['memory'] / _GIB:.1f} GiB{free}")
    if device["capability"]:
        parts.append(f"compute capability {device['capability'][0]}.{device['capability'][1]}")
    return ", ".join(parts)
