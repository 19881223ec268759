"""The few models that the course and the benchmarks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgpu_utils.resnet50 import ResNet50
from mgpu_utils.small_gpt import CONTEXT, VOCABULARY, SmallGPT


class ModelSpec(NamedTuple):
    """How to build a model, and what it takes and gives: images, or tokens (whose classes are the vocabulary)."""

    builder: Callable[..., nn.Module]
    sample_shape: tuple[int, ...]
    classes: int
    takes: Literal["images", "tokens"] = "images"


def digits_cnn(seed: int | None = None) -> nn.Module:
    """A small convolutional network for the digits: (B, 1, 8, 8) in, (B, 10) logits out, 10,026 parameters.

    Its result does not depend on how a batch is split: GroupNorm looks at one sample at a time, and there is no
    BatchNorm and no Dropout. With a seed, the weights are the same everywhere, and the global random state is left
    as it was.
    """
    return _seeded(seed, _digits_cnn)


def _digits_cnn() -> nn.Module:
    # Smooth on purpose: with ReLU or max-pooling, a rounding difference of 1e-7 between two ways to split the same
    # batch can switch a unit on or off, and training then drifts apart by 1e-3 in 50 steps.
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GroupNorm(4, 32),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def small_resnet(classes: int = 10, norm: str = "batch", seed: int | None = None) -> nn.Module:
    """A residual network for small images: (B, 3, 32, 32) in, (B, classes) logits out.

    `norm` is "batch" (BatchNorm: its statistics depend on how the batch is split over devices) or "group"
    (GroupNorm: they do not). Source: He et al. 2015, "Deep Residual Learning", the CIFAR-10 variant.
    """
    if norm not in _NORMS:
        raise ValueError(f"norm must be one of {', '.join(map(repr, _NORMS))}, got {norm!r}.")
    return _seeded(seed, lambda: _SmallResNet(classes, _NORMS[norm]))


_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(8, channels),
}


class _ResidualBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = norm(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), norm(channels)
            )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = F.relu(self.norm1(self.conv1(x_BCHW)))
        y_BCHW = self.norm2(self.conv2(y_BCHW))
        return F.relu(y_BCHW + self.shortcut(x_BCHW))


class _SmallResNet(nn.Module):
    def __init__(self, classes: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), norm(16), nn.ReLU())
        self.stages = nn.Sequential(
            _ResidualBlock(16, 16, 1, norm),
            _ResidualBlock(16, 32, 2, norm),
            _ResidualBlock(32, 64, 2, norm),
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = self.stages(self.stem(x_BCHW))
        return self.head(y_BCHW.mean(dim=(2, 3)))


def _seeded(seed: int | None, builder: Callable[[], nn.Module]) -> nn.Module:
    if seed is None:
        return builder()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return builder()


def small_gpt(seed: int | None = None) -> nn.Module:
    """A small language model: (B, 64) token numbers in, (B, 64, 256) logits out; see `SmallGPT`."""
    return _seeded(seed, SmallGPT)


def resnet50(classes: int = 1000, seed: int | None = None) -> nn.Module:
    """ResNet-50 for (B, 3, 224, 224) images: the model of most published results, for GPUs; see `ResNet50`."""
    return _seeded(seed, lambda: ResNet50(classes))


MODELS: dict[str, ModelSpec] = {
    "digits_cnn": ModelSpec(digits_cnn, (1, 8, 8), 10),
    "small_resnet": ModelSpec(small_resnet, (3, 32, 32), 10),
    "small_gpt": ModelSpec(small_gpt, (CONTEXT,), VOCABULARY, takes="tokens"),
    "resnet50": ModelSpec(resnet50, (3, 224, 224), 1000),
}


def build(name: str, seed: int | None = None) -> nn.Module:
    """Build a model of the registry `MODELS` by its name; an unknown name raises ValueError with those known."""
    if name not in MODELS:
        raise ValueError(f"There is no model {name!r}; choose one of {', '.join(sorted(MODELS))}.")
    return MODELS[name].builder(seed=seed)
