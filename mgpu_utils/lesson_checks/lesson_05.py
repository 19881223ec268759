"""Checks of lesson 05: scatter and gather, the shapes replicas see, and the gradient of the master copy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mgpu_utils.data import digits, split_sizes
from mgpu_utils.exercises import Wrong, exercise
from mgpu_utils.models import digits_cnn
from mgpu_utils.threaded_data_parallel import ThreadedDataParallel

_SPLITS = ((64, 2), (10, 4), (9, 4), (36, 7), (3, 4), (1, 2))
_TOLERANCE = 1e-5


@exercise(
    "05/scatter",
    minutes=8,
    difficulty=1,
    hints=[
        "How many samples does a full piece hold, for 10 samples and 4 devices? One size fits all but the last.",
        "Round up: `-(-10 // 4)` is 3. Then cut `batch[0:3]`, `batch[3:6]`, ... until nothing is left.",
        "PyTorch has this as a method of tensors: `batch.chunk(count)`. Its opposite is `torch.cat`.",
    ],
    explain="These are the pieces that nn.DataParallel makes, also where the batch does not divide.",
)
def scatter(cut: Callable[[Tensor, int], Sequence[Tensor]], join: Callable[[Any], Tensor]) -> None:
    """`cut(batch, count)` has to give the real pieces; `join(pieces)` the batch again, with its gradient."""
    for samples, count in _SPLITS:
        batch = torch.arange(2.0 * samples).view(samples, 2).requires_grad_()
        pieces = _check_pieces(cut(batch, count), batch, count)
        _check_joined(join(pieces), batch)


@exercise(
    "05/shapes",
    minutes=4,
    difficulty=1,
    hints=[
        "No sample is dropped and none is used twice. What do your numbers add up to?",
        "All pieces but the last have one size, the smallest for which four pieces are enough.",
        "Let PyTorch tell you: `[len(piece) for piece in torch.zeros(10, 1, 8, 8).chunk(4)]`.",
    ],
    explain="Replica 3 does a third of the others' work, and all wait for the slowest.",
)
def shapes(answer: Sequence[Any]) -> None:
    """The number of samples, or the whole shape, that each of four replicas sees of a batch of ten."""
    sizes = _sizes(answer)
    seen = _seen_by_replicas(10, 4)
    if sizes == seen:
        return
    listed = ", ".join(map(str, sizes))
    if sizes == [10] * len(sizes):
        raise Wrong("each replica gets a piece of the batch, not the whole of it")
    if sum(sizes) != 10:
        raise Wrong(f"{listed} make {sum(sizes)}; the batch holds 10 samples, each of which is used once")
    if 0 in sizes:
        raise Wrong("a replica with nothing to do would not be made, and here each one gets something")
    if len(sizes) != len(seen):
        raise Wrong(f"you named {len(sizes)} of the replicas; all {len(seen)} have work here")
    if sorted(sizes) == sorted(seen):
        raise Wrong("the numbers are right, but not their order: pieces are cut from the front")
    if max(sizes) - min(sizes) <= 1:
        raise Wrong(f"{listed} is as even as it can be; scatter does not even things out like that")
    if sizes[-1] > sizes[0]:
        raise Wrong("what is left over makes the last piece smaller, never larger than the first")
    raise Wrong(f"{listed} adds up to 10, but all pieces except the last have the same size")


@exercise(
    "05/gradients",
    minutes=12,
    difficulty=2,
    hints=[
        "The four steps are above in this lesson: scatter, replicate, forward, gather. Then one loss, once.",
        "After `backward()` each replica has gradients in its own parameters. The model itself has none yet.",
        "For each parameter of the model, its gradient is the sum of the replicas' gradients of the same "
        "parameter; `zip(model.parameters(), *(r.parameters() for r in replicas))` brings them together.",
    ],
    explain="Two replicas gave the gradient of one device, for even and for uneven pieces.",
)
def gradients(answer: Callable[[nn.Module, Tensor, Tensor], object]) -> None:
    """After `answer(model, images, labels)` the model holds the single-device gradient of the mean loss."""
    for samples, seed in ((64, 0), (64, 1), (9, 2)):
        images, labels = digits(train=True)[100 * seed : 100 * seed + samples]
        model, sizes = _recorded(digits_cnn(seed=seed))
        before = [parameter.detach().clone() for parameter in model.parameters()]
        answer(model, images, labels)
        _check_replicas(sizes, samples)
        if any(not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)):
            raise Wrong("the parameters of the model changed; only its gradients were to be computed")
        if any(parameter.grad is None for parameter in model.parameters()):
            raise Wrong(
                "the model's own parameters have no gradient (`.grad` is None): those of the replicas were not "
                "brought back to it"
            )
        found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        _compare(found, seed, images, labels)


def _check_pieces(given: Any, batch: Tensor, count: int) -> list[Tensor]:
    where = f"for {len(batch)} samples on {count} devices"
    if given is None:
        raise Wrong("scatter returned nothing: end it with `return`")
    if isinstance(given, Tensor) or not isinstance(given, list | tuple):
        raise Wrong(f"scatter returned a {type(given).__name__}; a list of tensors is wanted, one a device")
    pieces = list(given)
    if any(not isinstance(piece, Tensor) for piece in pieces):
        raise Wrong("each piece has to be a tensor")
    sizes = [len(piece) for piece in pieces]
    if len(pieces) > count:
        raise Wrong(f"{where} there are {len(pieces)} pieces; there is at most one a device")
    if 0 in sizes:
        raise Wrong(f"{where} a piece is empty; a device without work gets no piece at all")
    if sum(sizes) != len(batch):
        raise Wrong(f"{where} the pieces hold {sum(sizes)} samples together")
    if any(piece.shape[1:] != batch.shape[1:] for piece in pieces):
        raise Wrong("only the first dimension is cut; the others have to stay as they are")
    if not torch.equal(torch.cat(pieces), batch):
        raise Wrong(f"{where} the samples are all there, but not in the order of the batch")
    if sizes != split_sizes(len(batch), count):
        raise Wrong(f"{where} your pieces have the sizes {sizes}; all but the last should have one size")
    return pieces


def _check_joined(joined: Any, batch: Tensor) -> None:
    if not isinstance(joined, Tensor):
        kind = "nothing" if joined is None else f"a {type(joined).__name__}"
        raise Wrong(f"gather returned {kind}; one tensor is wanted")
    if joined.shape != batch.shape:
        raise Wrong(f"gather made a tensor of shape {tuple(joined.shape)} from pieces of {tuple(batch.shape)}")
    if not torch.equal(joined, batch):
        raise Wrong("gather changed the order or the values of the samples")
    if not joined.requires_grad:
        raise Wrong("no gradient can flow back through your gather, so the replicas could not learn")


def _sizes(answer: Any) -> list[int]:
    if not isinstance(answer, list | tuple):
        raise Wrong("write a list with one entry a replica")
    sizes = []
    for entry in answer:
        if isinstance(entry, int) and not isinstance(entry, bool):
            sizes.append(entry)
        elif isinstance(entry, list | tuple) and len(entry) > 0:
            if tuple(entry[1:]) not in ((), (1, 8, 8)):
                raise Wrong(f"only the first dimension is cut, so {tuple(entry)} cannot be what a replica sees")
            sizes.append(int(entry[0]))
        else:
            raise Wrong(f"{entry!r} is neither a number of samples nor a shape; samples come whole")
    return sizes


def _recorded(model: nn.Module) -> tuple[nn.Module, list[int]]:
    """The model in a module that notes how many samples each call of it, or of a copy, was given."""
    sizes: list[int] = []
    lock = threading.Lock()

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        with lock:
            sizes.append(len(inputs[0]))

    model.register_forward_pre_hook(note)
    return model, sizes


def _seen_by_replicas(samples: int, devices: int) -> list[int]:
    model, sizes = _recorded(digits_cnn(seed=0))
    with torch.no_grad():
        ThreadedDataParallel(model, devices)(digits(train=True)[:samples][0])
    return sorted(sizes, reverse=True)


def _check_replicas(sizes: list[int], samples: int) -> None:
    wanted = split_sizes(samples, 2)
    if not sizes:
        raise Wrong("no copy of the model was called")
    if sizes == [samples]:
        raise Wrong(f"the model ran once, on all {samples} samples; two replicas have to share them")
    if sorted(sizes, reverse=True) != wanted:
        raise Wrong(f"for {samples} samples the replicas were given {sizes}, not {wanted}")


def _compare(found: Tensor, seed: int, images: Tensor, labels: Tensor) -> None:
    wanted = _gradient(seed, images, labels)
    if torch.allclose(found, wanted, atol=_TOLERANCE):
        return
    first, second = split_sizes(len(labels), 2)
    parts = [
        _gradient(seed, images[:first], labels[:first]),
        _gradient(seed, images[first:], labels[first:]),
    ]
    if torch.allclose(found, 2 * wanted, atol=2 * _TOLERANCE) or torch.allclose(
        found, parts[0] + parts[1], atol=2 * _TOLERANCE
    ):
        raise Wrong("your gradient is twice too large: each replica's mean was taken over its own piece only")
    if torch.allclose(found, wanted / 2, atol=_TOLERANCE / 2):
        raise Wrong("your gradient is half as large as it has to be: replicas' gradients of one loss are added")
    if first != second and torch.allclose(found, (parts[0] + parts[1]) / 2, atol=_TOLERANCE):
        raise Wrong(
            f"right for equal pieces, wrong for {first} and {second} samples: the mean of two means counts a "
            "sample of the smaller piece for more"
        )
    for share, name in (
        (parts[0], "first"),
        (parts[1], "second"),
        (parts[0] * first / (first + second), "first"),
        (parts[1] * second / (first + second), "second"),
    ):
        if torch.allclose(found, share, atol=_TOLERANCE):
            raise Wrong(f"only the {name} replica's gradient has reached the model")
    difference = float((found - wanted).abs().max())
    raise Wrong(f"the gradient differs from that of one device by up to {difference:.2g}")


def _gradient(seed: int, images: Tensor, labels: Tensor) -> Tensor:
    model = digits_cnn(seed=seed)
    cross_entropy(model(images), labels).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
