"""What the DataParallel strategy wraps a model in: torch's own module and the threaded stand-in, with additions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mgpu_utils.scatter_gather import tensors_in
from mgpu_utils.split_preview import split_notice
from mgpu_utils.threaded_data_parallel import ThreadedDataParallel


class _Additions:
    """One scalar for scalars, and one warning about a batch that is too small for all devices."""

    module: nn.Module
    device_ids: list[int]
    _split_noticed = False

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> Any:
        counts = [_samples((args, kwarg)) for args, kwarg in zip(inputs, kwargs, strict=True)]
        self._notice_split(counts)
        outputs = super().parallel_apply(replicas, inputs, kwargs)  # type: ignore[misc]
        if not all(isinstance(output, Tensor) and output.dim() == 0 for output in outputs):
            return outputs
        total = sum(counts)
        if not total:
            return [output / len(outputs) for output in outputs]
        return [output * (count / total) for output, count in zip(outputs, counts, strict=True)]

    def gather(self, outputs: Any, output_device: Any) -> Any:
        if not all(isinstance(output, Tensor) and output.dim() == 0 for output in outputs):
            return super().gather(outputs, output_device)  # type: ignore[misc]
        shares = [output.view(1) for output in outputs]
        return super().gather(shares, output_device).sum()  # type: ignore[misc]

    def _notice_split(self, counts: Sequence[int]) -> None:
        if self._split_noticed:
            return
        batch_norm = any(isinstance(layer, _BatchNorm) and layer.training for layer in self.module.modules())
        notice = split_notice(counts, len(self.device_ids), batch_norm)
        if notice:
            self._split_noticed = True
            # From here over parallel_apply, forward and two frames of nn.Module to the line that called the module.
            warnings.warn(notice, stacklevel=6)


class OnThreads(_Additions, ThreadedDataParallel):
    """The threaded stand-in, with the course's additions."""

    def _get_name(self) -> str:
        return "ThreadedDataParallel"


class OnGpus(_Additions, nn.DataParallel):
    """`torch.nn.DataParallel`, with the course's additions."""

    def _get_name(self) -> str:
        return "DataParallel"


def _samples(arguments: Any) -> int:
    """The length of the first tensor among a replica's arguments; 0 where there is none."""
    first = next((tensor for tensor in tensors_in(arguments) if tensor.dim()), None)
    return 0 if first is None else len(first)
