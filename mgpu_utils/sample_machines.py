"""Made-up machines with GPUs, to reason about hardware that is not here: what is in them, and what PyTorch counts."""

from __future__ import annotations

from dataclasses import dataclass

from mgpu_utils.planning import Hardware
from mgpu_utils.visible_devices import parse_visible_devices


@dataclass(frozen=True)
class Gpu:
    """One GPU: compute capability (major, minor) and free memory in GiB."""

    capability: tuple[int, int] = (8, 6)
    free_gib: float = 22.0


@dataclass(frozen=True)
class Machine:
    """A machine and the PyTorch installed on it.

    Attributes:
        gpus: what is plugged in, in the driver's order.
        built_for: compute capabilities that this PyTorch holds code for; empty for a CPU-only build.
        nccl: whether this PyTorch was built with nccl.
        variable: the value of CUDA_VISIBLE_DEVICES, None where it is not set.
        note: what is special here, in a few words.
    """

    gpus: tuple[Gpu, ...]
    built_for: tuple[tuple[int, int], ...] = ((7, 5), (8, 0), (8, 6), (9, 0))
    nccl: bool = True
    variable: str | None = None
    note: str = ""

    @property
    def visible(self) -> list[Gpu]:
        """The GPUs that this process may see, in its own numbering."""
        if self.variable is None:
            return list(self.gpus)
        numbers = [int(entry) for entry in parse_visible_devices(self.variable).entries]
        kept = []
        for number in numbers:
            # CUDA stops at the first number that no GPU has.
            if number >= len(self.gpus):
                break
            kept.append(self.gpus[number])
        return kept

    @property
    def counted(self) -> int:
        """What `torch.cuda.device_count()` says there: a build without CUDA counts 0."""
        return len(self.visible) if self.built_for else 0

    def hardware(self, usable: int) -> Hardware:
        """What the course decides on, when `usable` of the GPUs can be used."""
        return Hardware("cuda" if usable else None, usable, cores=16, nccl=self.nccl)


def runs_on(capability: tuple[int, int], built_for: tuple[tuple[int, int], ...]) -> bool:
    """Whether code built for one of these capabilities runs on a GPU: same major version, minor not above its own.

    Source: CUDA C++ programming guide, "Binary compatibility". A build may also hold PTX, which newer GPUs compile.
    """
    return any(major == capability[0] and minor <= capability[1] for major, minor in built_for)


MACHINES: dict[str, Machine] = {
    "workstation": Machine((Gpu(), Gpu()), note="nothing wrong"),
    "shared server": Machine((Gpu(), Gpu(free_gib=0.4)), note="another job fills GPU 1"),
    "old card": Machine((Gpu(), Gpu((3, 7), 11.0)), note="PyTorch holds no code for GPU 1"),
    "Windows PC": Machine((Gpu(), Gpu()), nccl=False, note="no nccl, so no ranks on GPUs"),
    "wrong wheel": Machine((Gpu(), Gpu()), built_for=(), note="PyTorch was built for CPUs only"),
    "cluster job": Machine((Gpu(),) * 4, variable="2,3", note="CUDA_VISIBLE_DEVICES=2,3"),
    "typing error": Machine((Gpu(),) * 4, variable="2,2", note="CUDA_VISIBLE_DEVICES=2,2"),
    "big server": Machine((Gpu((9, 0), 79.0),) * 4, note="nothing wrong"),
}
