"""Checks of lesson 01: picking devices, reading CUDA_VISIBLE_DEVICES, and one device for each rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from mgpu_utils.data import digits
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.visible_devices import parse_visible_devices

_VARIABLES = (
    ("1,2,0", 0),
    ("3,1", 0),
    ("3,1", 1),
    ("3,1", 2),
    ("0,1,2", 2),
    ("7", 0),
    (" 2, 0", 1),
    ("10,2", 0),
    ("1,-1,0", 0),
    ("1,-1,0", 1),
    ("1,-1,0", 2),
    ("-1", 0),
    ("", 0),
    ("2,2", 0),
    ("0,2,2", 0),
)


@exercise(
    "01/pick",
    minutes=6,
    difficulty=1,
    hints=[
        "There are two ways to be wrong: `wanted` is too small, or larger than `usable`. Look at both first.",
        '`raise ValueError(f"... {wanted} ... {usable} ...")` puts both numbers into the message.',
        '`torch.device("cuda", 1)` is `cuda:1`; so is the string `"cuda:1"`. Numbers start at 0.',
    ],
    explain="Whoever reads that error knows what was asked for and what there is, before anything has started.",
)
def pick(answer: Callable[[int, int], Any]) -> None:
    """`answer(wanted, usable)` gives cuda:0, cuda:1, ... or raises ValueError with both numbers."""
    for wanted, usable in ((1, 1), (2, 2), (2, 4), (8, 8)):
        _picked(answer(wanted, usable), wanted, usable)
    for wanted, usable in ((3, 2), (9, 8), (1, 0)):
        message = _refusal(answer, wanted, usable)
        named = {int(number) for number in re.findall(r"(?<![:\d])\d+", message)}
        if not {wanted, usable} <= named:
            raise Wrong(
                f"for {wanted} wanted and {usable} usable the message says: {message!r}; both numbers have to be in it"
            )
    for wanted in (0, -1):
        _refusal(answer, wanted, 2)


def _picked(devices: Any, wanted: int, usable: int) -> None:
    where = f"for {wanted} wanted and {usable} usable"
    if devices is None:
        raise Wrong(f"{where} pick_devices returned nothing: end it with `return`")
    if not isinstance(devices, list | tuple):
        raise Wrong(f"{where} it returned a {type(devices).__name__}; a list of devices is wanted")
    found = [_device(device, where) for device in devices]
    if len(found) != wanted:
        raise Wrong(f"{where} it returned {len(found)} devices")
    if any(device.type != "cuda" for device in found):
        raise Wrong(f"{where} it returned {', '.join(map(str, found))}; all of them have to be GPUs")
    numbers = [device.index for device in found]
    if None in numbers:
        raise Wrong("`cuda` without a number is whichever GPU is the current one; name each by its number")
    if len(set(numbers)) < wanted:
        raise Wrong(f"{where} one GPU is in the list more than once")
    if numbers != list(range(wanted)):
        raise Wrong(f"{where} it returned GPU {', '.join(map(str, numbers))}; numbers start at 0 and leave none out")


def _refusal(answer: Callable[[int, int], Any], wanted: int, usable: int) -> str:
    try:
        result = answer(wanted, usable)
    except ValueError as error:
        return str(error)
    except AssertionError:
        raise Wrong(
            "an `assert` disappears when Python runs with -O, and its error is no ValueError: use `raise`"
        ) from None
    if isinstance(result, list | tuple) and len(result) < wanted:
        raise Wrong(
            f"asked for {wanted} of {usable} it returned {len(result)}, and nobody is told; a smaller job than "
            "the one that was asked for has to be refused"
        )
    raise Wrong(f"asked for {wanted} of {usable} it raised no ValueError")


@exercise(
    "01/physical",
    minutes=10,
    difficulty=2,
    hints=[
        "Entry 0 of the list is what the process calls `cuda:0`. Which entry is `cuda:1`?",
        'Three things end or empty the list: an entry that is no number (or is negative), a repeat, an empty value. '
        'Try "1,-1,0", "2,2" and "".',
        "Collect the entries up to the first bad one. If two are equal, there is no device at all. Then look up "
        "`entries[number]`, if there is one.",
    ],
    explain="This is how CUDA reads it. `cuda:1` in a log is a number of that process, not of the machine.",
)  # fmt: skip
def physical(answer: Callable[[str, int], Any]) -> None:
    """`answer(value, number)` gives the machine's number of the GPU that the process calls `cuda:number`."""
    for value, number in _VARIABLES:
        entries = [int(entry) for entry in parse_visible_devices(value).entries]
        wanted = entries[number] if number < len(entries) else None
        try:
            found = answer(value, number)
        except (IndexError, ValueError, KeyError) as error:
            raise Wrong(f"for {value!r} and cuda:{number} your function stopped with {error!r}") from None
        if isinstance(found, str) and found.strip() == str(wanted):
            raise Wrong(f"for {value!r} and cuda:{number} you returned the text {found!r}; a number is wanted")
        if found == wanted and not isinstance(found, bool):
            continue
        _explain_number(value, number, found, wanted)


def _explain_number(value: str, number: int, found: Any, wanted: int | None) -> None:
    where = f"for {value!r} and cuda:{number}"
    numbers = [int(entry) for entry in value.split(",") if entry.strip().lstrip("-").isdigit()]
    if wanted is None and value == "":
        raise Wrong(f"{where} you returned {found!r}; an empty value hides every GPU")
    if wanted is None and len(set(numbers)) < len(numbers):
        raise Wrong(f"{where} you returned {found!r}, but one GPU is named twice there; what does CUDA do then?")
    if wanted is None and any(entry < 0 for entry in numbers):
        raise Wrong(f"{where} you returned {found!r}; the list ends at the first entry that is no GPU")
    if wanted is None:
        raise Wrong(f"{where} you returned {found!r}, but this process has only {len(numbers)} devices")
    if found is None:
        raise Wrong(f"{where} you returned None, but the process has this device")
    if number in numbers and found == numbers.index(number):
        raise Wrong(
            f"{where} you returned {found!r}: that is the other direction, from the machine's number to the process's"
        )
    if found == number:
        raise Wrong(f"{where} you returned {found!r}, the process's own number; the variable renumbers the GPUs")
    if wanted >= 10 and str(found) in str(wanted):
        raise Wrong(f"{where} you returned {found!r}; a GPU's number can have two digits")
    raise Wrong(f"{where} you returned {found!r}")


@exercise(
    "01/device",
    minutes=8,
    difficulty=2,
    hints=[
        "Machine 2 of a job with 4 GPUs each has the ranks 4 to 7. What are its GPUs called there?",
        "On each machine GPUs are numbered from 0, and so is `local_rank`.",
        "Three cases: `gpus` is 0; `local_rank` is one of the GPUs; it is not.",
    ],
    explain="Each rank has a device of its own, on the first machine and on every other, and the total is right.",
)
def device(answer: Callable[[int, int, int], Any], ranks: Any) -> None:
    """`answer(rank, local_rank, gpus)` gives each rank a device of its own; then the ranks use it."""
    for machine, gpus in ((0, 2), (0, 4), (1, 4), (2, 2)):
        for local_rank in range(gpus):
            number = machine * gpus + local_rank
            _own_gpu(answer(number, local_rank, gpus), number, local_rank, gpus)
    for rank in (0, 3):
        found = _device(answer(rank, rank, 0), "without GPUs")
        if found.type != "cpu":
            raise Wrong(f"without GPUs rank {rank} got {found}, which is not there")
    try:
        shared = answer(2, 2, 2)
    except ValueError:
        shared = None
    if shared is not None:
        raise Wrong(
            f"with 2 GPUs and 3 ranks on one machine, local rank 2 got {shared}; no GPU is left for it, and "
            "two ranks on one GPU do not work with nccl"
        )
    _use(answer, ranks)


def _own_gpu(given: Any, rank: int, local_rank: int, gpus: int) -> None:
    where = f"rank {rank} (local rank {local_rank}, {gpus} GPUs)"
    found = _device(given, where)
    if found == torch.device("cuda", local_rank):
        return
    if found.type == "cpu":
        raise Wrong(f"{where} got the CPU, although there is a GPU for it")
    if found.index is None:
        raise Wrong(f"{where} got `cuda` without a number, which is the same GPU for every rank")
    if found.index >= gpus:
        raise Wrong(f"{where} got {found}, and its machine has no such GPU: numbers start at 0 on each machine")
    raise Wrong(f"{where} got {found}, which belongs to another rank of its machine")


def _use(answer: Callable[[int, int, int], Any], ranks: Any) -> None:
    images = digits(train=True).tensors[0]
    gpus = ranks.world_size if ranks.device == "cuda" else 0
    results = ranks.run(sum_on_device, answer, images, gpus)
    for rank, (_, where, trouble) in enumerate(results):
        if trouble:
            raise Wrong(f"rank {rank} could not add up its share of the digits on {where}: {trouble}")
    wanted = float(images.sum(dtype=torch.float64))
    for rank, (total, where, _) in enumerate(results):
        if abs(total - wanted) > 1e-3:
            raise Wrong(f"rank {rank} on {where} found the total {total:.3f}, one process finds {wanted:.3f}")


def sum_on_device(
    answer: Callable[[int, int, int], Any], images: torch.Tensor, gpus: int
) -> tuple[float, str, str | None]:
    """Add up this rank's share of the images on the answer's device, then over all ranks; runs on a rank."""
    import torch.distributed as dist

    rank, world_size = dist.get_rank(), dist.get_world_size()
    where, total, trouble = "its device", torch.zeros((), dtype=torch.float64), None
    try:
        where = str(answer(rank, rank, gpus))
        total += images.tensor_split(world_size)[rank].to(where).sum(dtype=torch.float64).cpu()
    except Exception as error:
        # The others wait in the collective, so this rank joins it before anything is said.
        trouble = f"{type(error).__name__}: {error}"
    dist.all_reduce(total)
    return float(total), where, trouble


def _device(given: Any, where: str) -> torch.device:
    if given is None:
        raise Wrong(f"{where} nothing was returned: end your function with `return`")
    if isinstance(given, bool | int):
        raise Wrong(f"{where} the number {given} was returned; a device such as `cuda:1` is wanted")
    try:
        return torch.device(given)
    except (RuntimeError, TypeError):
        raise Wrong(f"{where} {given!r} was returned, which is not the name of a device") from None
