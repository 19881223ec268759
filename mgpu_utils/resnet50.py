"""The residual network that most published results on several GPUs are about."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class ResNet50(nn.Module):
    """ResNet-50: (B, 3, H, W) images in, (B, classes) logits out; 25,557,032 parameters with 1,000 classes.

    The stride of a block is in its 3x3 convolution ("v1.5"), as in the published measurements. Source: He et al. 2015,
    "Deep Residual Learning for Image Recognition".
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels_in = 64
        for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for number in range(depth):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(_Bottleneck(channels_in, width, stride))
                channels_in = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels_in, classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of the classes."""
        return self.head(self.blocks(self.stem(x_BCHW)).mean(dim=(2, 3)))


class _Bottleneck(nn.Module):
    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return F.relu(self.layers(x_BCHW) + self.shortcut(x_BCHW))
