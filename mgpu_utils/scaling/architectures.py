"""Parameter shapes and work of the four networks of the published table, written from their papers.

Sources: He et al. 2015, "Deep Residual Learning", https://arxiv.org/abs/1512.03385, table 1; Xie et al. 2016,
"Aggregated Residual Transformations", https://arxiv.org/abs/1611.05431, table 1. Order of registration and biases as
in https://docs.pytorch.org/vision/stable/models/resnet.html.
"""

from __future__ import annotations

import math
from typing import NamedTuple

CLASSES = 1000
_IMAGE = 224


class Layer(NamedTuple):
    """One parameter: its shape, and the multiply-adds that a forward of one sample does with it."""

    shape: tuple[int, ...]
    work: float

    @property
    def values(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class Network(NamedTuple):
    """Blocks in each stage, groups of the 3 by 3 convolution, channels of one group in the first stage."""

    blocks: tuple[int, int, int, int]
    groups: int
    width: int


NETWORKS = {
    "ResNet-50": Network((3, 4, 6, 3), 1, 64),
    "ResNet-101": Network((3, 4, 23, 3), 1, 64),
    "ResNeXt-50 32x4d": Network((3, 4, 6, 3), 32, 4),
    "ResNeXt-101 32x8d": Network((3, 4, 23, 3), 32, 8),
}


def layers(name: str) -> list[Layer]:
    """Return the parameters of a network for 224 by 224 images, in the order of registration.

    Raises: ValueError for a name that is not one of `NETWORKS`.
    """
    if name not in NETWORKS:
        raise ValueError(f"There is no network {name!r}; choose one of {', '.join(NETWORKS)}.")
    blocks, groups, width = NETWORKS[name]
    made: list[Layer] = []

    def convolution(c_in: int, c_out: int, kernel: int, side: int, groups: int = 1) -> None:
        shape = (c_out, c_in // groups, kernel, kernel)
        made.append(Layer(shape, float(c_out * (c_in // groups) * kernel**2 * side**2)))
        # A batch norm's weight and bias: its work is small beside the convolution's.
        made.extend([Layer((c_out,), float(c_out * side**2))] * 2)

    side = _IMAGE // 2
    convolution(3, 64, 7, side)
    side, channels = side // 2, 64
    for stage, count in enumerate(blocks):
        inner, outer = groups * width * 2**stage, 256 * 2**stage
        for block in range(count):
            before = side
            if block == 0 and stage > 0:
                side //= 2
            convolution(channels, inner, 1, before)
            convolution(inner, inner, 3, side, groups)
            convolution(inner, outer, 1, side)
            if block == 0:
                convolution(channels, outer, 1, side)
            channels = outer
    made.append(Layer((CLASSES, channels), float(CLASSES * channels)))
    made.append(Layer((CLASSES,), float(CLASSES)))
    return made
