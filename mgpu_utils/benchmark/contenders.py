"""The strategies that the benchmarks compare: one small class each, and one line in `CONTENDERS`.

To add one, write a class below (often only a name, a label, a colour and the options of DDP) and add it to the tuple
at the end. Configuration files, tables and figures then know it by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mgpu_utils.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mgpu_utils.strategies import Strategy

Processes = Literal["one", "one a device"]


class Contender:
    """One way to train that can be measured.

    Attributes:
        name: what configuration files and records call it.
        label: what figures and tables call it.
        color: its colour in figures.
        processes: whether one process drives all devices, or each device has its own.
        on_one_device: the baseline, which has one device only, however many the others use.
        communicates: its processes exchange gradients; they join a process group of the course's backend.
        is_limit: it shows what the machine could do; tables give the others as a share of it.
    """

    name: str
    label: str
    color: str
    processes: Processes = "one a device"
    on_one_device = False
    communicates = False
    is_limit = False

    def processes_on(self, devices: int) -> int:
        """How many processes a run on so many devices has."""
        return 1 if self.processes == "one" else devices

    def build(self, devices: int, device: torch.device, options: dict[str, Any]) -> Strategy:
        """The course's strategy for this process; `options` hold `bucket_cap_mb` where that is set."""
        raise NotImplementedError

    def wrap(self, strategy: Strategy, model: nn.Module) -> nn.Module:
        """The model, ready to train."""
        return strategy.wrap(model)


class Single(Contender):
    """One process on one device: the baseline."""

    name, label, color = "single", "single", GREY
    processes: Processes = "one"
    on_one_device = True

    def build(self, devices: int, device: torch.device, options: dict[str, Any]) -> Strategy:
        """See `Contender.build`."""
        from mgpu_utils.strategies import SingleDevice

        return SingleDevice(device=device)


class OneProcessForAll(Contender):
    """`nn.DataParallel`, or its threaded stand-in where there are not two GPUs."""

    name, label, color = "data_parallel", "DataParallel", ORANGE
    processes: Processes = "one"

    def build(self, devices: int, device: torch.device, options: dict[str, Any]) -> Strategy:
        """See `Contender.build`."""
        from mgpu_utils.strategies import DataParallel

        return DataParallel(devices=devices)


class Ddp(Contender):
    """`DistributedDataParallel` as it comes; its variants below change its options."""

    name, label, color = "ddp", "DDP", BLUE
    communicates = True
    ddp_options: Mapping[str, Any] = MappingProxyType({})

    def build(self, devices: int, device: torch.device, options: dict[str, Any]) -> Strategy:
        """See `Contender.build`."""
        from mgpu_utils.strategies import DistributedDataParallel

        return DistributedDataParallel(device=device, **self.ddp_options, **options)


class DdpStaticGraph(Ddp):
    """DDP told that every step uses the same parameters in the same order."""

    name, label, color = "ddp_static_graph", "DDP, static_graph", SKY
    ddp_options = MappingProxyType({"static_graph": True})


class DdpBucketView(Ddp):
    """DDP whose gradients are views into its buckets, which saves one copy of them all."""

    name, label, color = "ddp_bucket_view", "DDP, gradient_as_bucket_view", PURPLE
    ddp_options = MappingProxyType({"gradient_as_bucket_view": True})


class DdpBf16Hook(Ddp):
    """DDP that sends gradients as bfloat16: half the bytes, about three significant digits.

    Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
    """

    name, label, color = "ddp_bf16_hook", "DDP, bf16 hook", VERMILION

    def wrap(self, strategy: Strategy, model: nn.Module) -> nn.Module:
        """See `Contender.wrap`."""
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        from mgpu_utils.benchmark.bf16_hook import mean_in_bf16

        module: Any = strategy.wrap(model)
        # PyTorch's own hook refuses gloo, which can add up bfloat16 all the same.
        over_nccl = "nccl" in str(dist.get_backend())
        module.register_comm_hook(None, bf16_compress_hook if over_nccl else mean_in_bf16)
        return module


class Independent(Contender):
    """N single-device jobs at once that never talk: what the machine allows."""

    name, label, color = "independent", "independent", GREEN
    is_limit = True

    def build(self, devices: int, device: torch.device, options: dict[str, Any]) -> Strategy:
        """See `Contender.build`."""
        from mgpu_utils.strategies import SingleDevice

        return SingleDevice(device=device)


_ALL = (Single(), OneProcessForAll(), Ddp(), DdpStaticGraph(), DdpBucketView(), DdpBf16Hook(), Independent())
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _ALL}
