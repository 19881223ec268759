"""Single device, DataParallel and DistributedDataParallel behind one small protocol."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mgpu_utils.data import CollateWithEmpty, ShardedBatchSampler
from mgpu_utils.data_parallel_modules import OnGpus, OnThreads
from mgpu_utils.threaded_data_parallel import ThreadedDataParallel

_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel, ThreadedDataParallel)


def unwrap(module: nn.Module) -> nn.Module:
    """The plain module inside a DataParallel, ThreadedDataParallel or DistributedDataParallel wrapper."""
    while isinstance(module, _WRAPPERS):
        module = module.module
    return module


@runtime_checkable
class Strategy(Protocol):
    """What a training loop needs to run unchanged on one device or on many.

    A class of your own may inherit from this one: as it stands, everything but `wrap` is right for one process, with
    no collective anywhere. A class that only has these names is a strategy as well.

    Attributes:
        name: one of "single", "data_parallel" and "ddp".
        implementation: "torch" or, for DataParallel on CPU threads, "threaded stand-in".
        world_size: how many devices share one step.
        processes: how many processes share one step; each loads its own share of a batch.
        rank: this process's number; 0 where there is only one process.
        device: where the loop puts its inputs.
        is_main: True on the one process that prints and saves.
    """

    name: str
    implementation: str = "torch"
    world_size: int = 1
    processes: int = 1
    rank: int = 0
    is_main: bool = True
    device: torch.device

    def __repr__(self) -> str:
        inside = f"{self.implementation}, " if self.implementation != "torch" else ""
        return f"{type(self).__name__}({inside}world_size={self.world_size}, device='{self.device}')"

    @abstractmethod
    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, moved to the device and ready to train with this strategy."""

    def unwrap(self, module: nn.Module) -> nn.Module:
        """The plain module inside, whose state dict has no `module.` prefix."""
        return unwrap(module)

    def loader(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        num_workers: int = 0,
    ) -> DataLoader[Any]:
        """Batches of `batch_size` samples over all devices together; this process's share of each.

        The order depends on `seed` and the epoch (`loader.batch_sampler.set_epoch`), never on the world size.
        Under DDP a rank's share of the last batch can be empty: it then yields a batch of length 0.
        """
        if not hasattr(dataset, "__len__"):
            raise TypeError("The dataset has no length: give one with __len__ and __getitem__.")
        sampler = ShardedBatchSampler(
            len(dataset), batch_size, self.rank, self.processes, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        return DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=CollateWithEmpty(dataset),
            num_workers=num_workers,
            pin_memory=self.device.type == "cuda",
            # Workers are seeded from here, differently on each rank, and the global random state stays as it is.
            generator=torch.Generator().manual_seed(seed * 1_000_003 + self.rank),
        )

    def scale_loss(self, loss_sum: Tensor, global_count: int) -> Tensor:
        """The mean loss over the global batch, given this process's sum."""
        return loss_sum / global_count

    def mean(self, value: float | Tensor, weight: float) -> float:
        """The mean of `value` over all ranks, weighted (one all-reduce under DDP); nan if all weights are 0."""
        weighted = float(value) * weight if weight else 0.0
        total, weights = self.sum(torch.tensor([weighted, weight], dtype=torch.float64)).tolist()
        return total / weights if weights else float("nan")

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks (one all-reduce under DDP), on the tensor's own device; the input is kept."""
        return tensor.clone()

    def main_buffers(self, module: nn.Module) -> AbstractContextManager[None]:
        """While it is entered, every rank's module holds rank 0's buffers (a broadcast each under DDP)."""
        return nullcontext()


class SingleDevice(Strategy):
    """One process on one device: the baseline that the other strategies are compared with.

    Args:
        device: where to run; by default the accelerator if there is one, else the CPU.
    """

    name = "single"

    def __init__(self, device: str | torch.device | None = None) -> None:
        if device is None:
            from mgpu_utils.devices import plan

            device = plan().single_device
        self.device = torch.device(device)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The plain model, moved to the device (in place)."""
        return unwrap(model).to(self.device)


class DataParallel(Strategy):
    """One process that splits each batch over several devices.

    With two or more GPUs this is `nn.DataParallel` (`implementation` is "torch"). Elsewhere the real class would
    silently call the plain module, so this is `ThreadedDataParallel`, the same algorithm on CPU threads
    (`implementation` is "threaded stand-in"). Added to both are two things that `nn.DataParallel` alone lacks:

    - A model that returns a scalar gets one scalar back, the mean of the replicas' values weighted by their numbers
      of samples, not a vector.
    - The first batch that leaves a device with nothing, or with one sample, is told of in one warning a module.

    RNN, LSTM and GRU need no care: each replica puts its weights in one piece of memory, as cuDNN wants them, by
    itself (`flatten_parameters`, which `nn.RNNBase` calls when its weights have changed).

    Args:
        devices: how many; by default all GPUs, or 2 threads where there are not two GPUs.

    Raises:
        ValueError: a number of devices that makes no sense here.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
    """

    name = "data_parallel"

    def __init__(self, devices: int | None = None) -> None:
        from mgpu_utils.devices import plan

        self._use(plan(devices).rank_devices)

    def _use(self, devices: tuple[torch.device, ...]) -> None:
        self.devices = devices
        self.device = devices[0]
        self.world_size = len(devices)
        self.implementation = "threaded stand-in" if self.device.type == "cpu" else "torch"

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, moved to the first device (in place), inside nn.DataParallel or its threaded stand-in."""
        placed = unwrap(model).to(self.device)
        if self.implementation != "torch":
            return OnThreads(placed, num_devices=self.world_size)
        module = OnGpus(placed, device_ids=list(self.devices))
        if not module.device_ids:
            raise RuntimeError("nn.DataParallel sees no GPU here and would run the plain module: refusing to.")
        return module


class DistributedDataParallel(Strategy):
    """One process (rank) a device, each with its own copy of the model and its own shard of each batch.

    Made inside each rank, where a default process group exists. Wrapping broadcasts rank 0's parameters and
    buffers; each backward all-reduces the gradients to their mean.

    Args:
        device: this rank's device; by default the GPU of its local rank under nccl, else the CPU.
        ddp_kwargs: handed to `torch.nn.parallel.DistributedDataParallel`.

    Raises:
        RuntimeError: there is no process group.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    """

    name = "ddp"

    def __init__(self, device: str | torch.device | None = None, **ddp_kwargs: Any) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "DistributedDataParallel needs a process group, and this process has none: use it inside a rank "
                "(ranks.run(...), %%ranks or torchrun with init_process_group)."
            )
        if device is None:
            on_gpu = "nccl" in str(dist.get_backend())
            local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
            device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
        self.device = torch.device(device)
        self.rank = dist.get_rank()
        self.world_size = self.processes = dist.get_world_size()
        self.is_main = self.rank == 0
        self.ddp_kwargs = ddp_kwargs

    def __repr__(self) -> str:
        return f"DistributedDataParallel(rank={self.rank}, world_size={self.world_size}, device='{self.device}')"

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, moved to this rank's device (in place), inside torch's DistributedDataParallel."""
        if isinstance(model, nn.parallel.DistributedDataParallel):
            return model
        placed = unwrap(model).to(self.device)
        device_ids = None if self.device.type == "cpu" else [self.device]
        return nn.parallel.DistributedDataParallel(placed, device_ids=device_ids, **self.ddp_kwargs)

    def scale_loss(self, loss_sum: Tensor, global_count: int) -> Tensor:
        """This rank's summed loss, such that DDP's mean of gradients is that of the mean over all samples."""
        return loss_sum * (self.world_size / global_count)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks (one all-reduce), on the tensor's own device; the input is kept."""
        total = tensor.detach().to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    @contextmanager
    def main_buffers(self, module: nn.Module) -> Iterator[None]:
        """While it is entered, every rank's module holds rank 0's buffers (one broadcast a buffer)."""
        buffers = list(module.buffers())
        own = [buffer.clone() for buffer in buffers]
        try:
            with torch.no_grad():
                for buffer in buffers:
                    dist.broadcast(buffer, src=0)
            yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(buffers, own, strict=True):
                    buffer.copy_(before)
