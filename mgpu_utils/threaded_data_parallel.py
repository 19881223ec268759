"""`nn.DataParallel`'s algorithm with CPU threads for devices."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import ExceptionWrapper
from torch.autograd import Function

from mgpu_utils.scatter_gather import gather, map_tensors, scatter, tensors_in


class ThreadedDataParallel(nn.Module):
    """A stand-in for `nn.DataParallel` where there are not two GPUs: the same algorithm on CPU threads.

    Each forward scatters the inputs along `dim` (`torch.chunk` sizes; fewer replicas for a small batch), copies the
    module once per replica, runs the replicas in parallel threads, and gathers their outputs into one. Backward
    runs the replicas in parallel threads too, and sums their gradients into the one master copy, `module`.
    Each replica's thread computes with one intra-op thread; scatter, copy, gather and sum run in the caller.

    What the real class does holds here: replica 0 shares the master's buffers, so only its in-place updates stay;
    attributes set in `forward` are lost with the replica; a scalar output becomes a vector, with a warning; tensors
    and the tuples, lists and dicts that hold them are scattered, anything else is handed to every replica as it
    is; a parameter that no replica used gets a gradient of zeros. What differs: there is one CPU random number
    generator, from which the replicas draw in no fixed order, and gradients reach only the module's parameters
    and the tensors passed to `forward`, not tensors which it finds elsewhere.

    Args:
        module: the master copy, on the CPU.
        num_devices: how many threads play a device.
        dim: the dimension along which inputs are scattered and outputs gathered.

    Raises:
        ValueError: `num_devices` is below 1.
        RuntimeError: the module is not on the CPU, at the first forward.
        The replica's own exception type, with "Caught ... in replica 1 on device cpu:1" before its traceback.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
    """

    def __init__(self, module: nn.Module, num_devices: int = 2, dim: int = 0) -> None:
        super().__init__()
        if num_devices < 1:
            raise ValueError(f"ThreadedDataParallel needs at least one device, got num_devices={num_devices}.")
        if any(isinstance(child, torch.jit.ScriptModule) for child in module.modules()):
            raise TypeError("ThreadedDataParallel cannot copy a TorchScript module: pass the plain nn.Module.")
        self.module = module
        self.num_devices = num_devices
        self.dim = dim
        self.device_ids = list(range(num_devices))
        self.output_device = 0

    def extra_repr(self) -> str:
        return f"threaded stand-in for nn.DataParallel, num_devices={self.num_devices}"

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._require_cpu()
        scattered, scattered_kwargs = self.scatter(inputs, kwargs, self.device_ids)
        if not scattered and not scattered_kwargs:
            scattered, scattered_kwargs = ((),), ({},)
        if self.num_devices == 1:
            return self.module(*scattered[0], **scattered_kwargs[0])
        replicas = self.replicate(self.module, self.device_ids[: len(scattered)])
        outputs = self.parallel_apply(replicas, scattered, scattered_kwargs)
        return self.gather(outputs, self.output_device)

    def scatter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any], device_ids: Sequence[int]
    ) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
        """One tuple of positional and one dict of keyword arguments for each replica which has work to do."""
        for_each = scatter(inputs, len(device_ids), self.dim) if inputs else []
        kwargs_for_each = scatter(kwargs, len(device_ids), self.dim) if kwargs else []
        missing = len(kwargs_for_each) - len(for_each)
        for_each.extend(() for _ in range(missing))
        kwargs_for_each.extend({} for _ in range(-missing))
        return tuple(for_each), tuple(kwargs_for_each)

    def replicate(self, module: nn.Module, device_ids: Sequence[int]) -> list[nn.Module]:
        """Copies of the module whose parameters are no leaves: their gradients are summed into the module's."""
        return _replicate(module, len(device_ids), detach=not torch.is_grad_enabled())

    def parallel_apply(
        self, replicas: Sequence[nn.Module], inputs: Sequence[Any], kwargs: Sequence[dict[str, Any]]
    ) -> list[Any]:
        """Each replica's output for its own inputs, computed in one thread a replica."""
        run_as_here = _thread_settings()

        def job(i: int) -> Any:
            with run_as_here():
                return replicas[i](*inputs[i], **kwargs[i])

        outputs = _in_threads(len(replicas), job, "in replica")
        if not torch.is_grad_enabled():
            return outputs
        entries = [
            _requiring_grad([*_parameter_copies(replica), *tensors_in(args), *tensors_in(kwarg)])
            for replica, args, kwarg in zip(replicas, inputs, kwargs, strict=True)
        ]
        return _join_graphs(outputs, entries)

    def gather(self, outputs: Sequence[Any], output_device: int) -> Any:
        """One output from the replicas' outputs: tensors are concatenated along `dim`, inside any containers."""
        return gather(outputs, self.dim)

    def _require_cpu(self) -> None:
        if all(t.is_cpu for t in chain(self.module.parameters(), self.module.buffers())):
            return
        for kind, named in (("parameter", self.module.named_parameters), ("buffer", self.module.named_buffers)):
            for name, tensor in named():
                if tensor.device.type != "cpu":
                    raise RuntimeError(
                        f"ThreadedDataParallel runs on CPU threads, but {kind} {name!r} is on {tensor.device}: "
                        "move the module with .to('cpu'), or use nn.DataParallel on two or more GPUs."
                    )


def _requiring_grad(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list({id(tensor): tensor for tensor in tensors if tensor.requires_grad}.values())


class _Broadcast(Function):
    """Copies of tensors for each replica forward; the sum of the copies' gradients backward."""

    @staticmethod
    def forward(ctx: Any, replicas: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.count = len(tensors)
        copies = [copy for replica in _copies(tensors, replicas) for copy in replica]
        fixed = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if not needed]
        ctx.mark_non_differentiable(*(copies[r * len(tensors) + i] for r in range(replicas) for i in fixed))
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        sums = [sum(grads[i + ctx.count :: ctx.count], start=grads[i]) for i in range(ctx.count)]
        return None, *(grad if need else None for grad, need in zip(sums, ctx.needs_input_grad[1:], strict=True))


def _copies(tensors: Sequence[Tensor], replicas: int) -> list[list[Tensor]]:
    """The tensors themselves for replica 0, and views of one flat copy per type for each other replica."""
    by_type: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        by_type.setdefault(tensor.dtype, []).append(i)
    everyone = [list(tensors)]
    for _ in range(replicas - 1):
        copies = list(tensors)
        for indices in by_type.values():
            flat = torch.cat([tensors[i].detach().reshape(-1) for i in indices])
            pieces = flat.split([tensors[i].numel() for i in indices])
            for i, piece in zip(indices, pieces, strict=True):
                copies[i] = piece.view(tensors[i].shape).detach()
        everyone.append(copies)
    return everyone


def _replicate(network: nn.Module, replicas: int, detach: bool) -> list[nn.Module]:
    parameters, buffers = list(network.parameters()), list(network.buffers())
    tracked = [] if detach else [tensor for tensor in (*parameters, *buffers) if tensor.requires_grad]
    tracked_ids = {id(tensor) for tensor in tracked}
    plain = [tensor for tensor in (*parameters, *buffers) if id(tensor) not in tracked_ids]
    copies_of: dict[int, list[Tensor]] = {}
    if tracked:
        flat = _Broadcast.apply(replicas, *tracked)
        copies_of |= {id(tensor): list(flat[i :: len(tracked)]) for i, tensor in enumerate(tracked)}
    for tensor, *copies in zip(plain, *_copies([tensor.detach() for tensor in plain], replicas), strict=True):
        copies_of[id(tensor)] = copies

    modules = list(network.modules())
    index = {module: i for i, module in enumerate(modules)}
    result = []
    for r in range(replicas):
        copied: list[Any] = [module._replicate_for_data_parallel() for module in modules]
        for module, copy in zip(modules, copied, strict=True):
            former = copy.__dict__["_former_parameters"] = OrderedDict()
            # nn.Module's own __setattr__ would only end here, after ten times the work; some modules have their own.
            plain_attributes = type(copy).__setattr__ is nn.Module.__setattr__
            for name, child in module._modules.items():
                copy._modules[name] = None if child is None else copied[index[child]]
            for name, parameter in module._parameters.items():
                if parameter is None:
                    copy._parameters[name] = None
                else:
                    # A plain attribute: a replica's parameters are copies with a history, and no leaves.
                    former[name] = copies_of[id(parameter)][r]
                    if plain_attributes:
                        copy.__dict__[name] = former[name]
                    else:
                        setattr(copy, name, former[name])
            for name, buffer in module._buffers.items():
                copy._buffers[name] = None if buffer is None else copies_of[id(buffer)][r]
        result.append(copied[0])
    return result


def _parameter_copies(replica: nn.Module) -> Iterator[Tensor]:
    for module in replica.modules():
        former: Any = getattr(module, "_former_parameters", {})
        yield from former.values()
        yield from (buffer for buffer in module._buffers.values() if buffer is not None)


class _JoinGraphs(Function):
    """Hides the replicas' graphs from the autograd engine, to run their backwards in parallel threads.

    The engine gives all CPU work of one backward to one thread. Here the engine sees a single node; that node
    runs each replica's own graph, from its outputs to the copies of parameters and inputs, in its own thread.
    """

    @staticmethod
    def forward(ctx: Any, outputs: list[list[Tensor]], entries: list[list[Tensor]], *_: Tensor) -> Any:
        ctx.outputs, ctx.entries = outputs, entries
        ctx.set_materialize_grads(False)
        return tuple(output.detach() for replica in outputs for output in replica)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        create_graph = torch.is_grad_enabled()
        retain_graph = torch._C._autograd._get_current_graph_task_keep_graph()
        remaining = iter(grads)
        grads_of = [[next(remaining) for _ in outputs] for outputs in ctx.outputs]

        def job(i: int) -> Sequence[Tensor | None]:
            reached = [pair for pair in zip(ctx.outputs[i], grads_of[i], strict=True) if pair[1] is not None]
            if not reached or not ctx.entries[i]:
                return [None] * len(ctx.entries[i])
            outputs, grad_outputs = zip(*reached, strict=True)
            return torch.autograd.grad(
                outputs,
                ctx.entries[i],
                grad_outputs,
                retain_graph=retain_graph,
                create_graph=create_graph,
                allow_unused=True,
            )

        results = _in_threads(len(ctx.outputs), job, "in the backward of replica")
        return None, None, *(grad for result in results for grad in result)


def _join_graphs(outputs: list[Any], entries: list[list[Tensor]]) -> list[Any]:
    differentiable = [_requiring_grad(list(tensors_in(output))) for output in outputs]
    if not any(differentiable) or not any(entries):
        return outputs
    joined = _JoinGraphs.apply(differentiable, entries, *(entry for replica in entries for entry in replica))
    sources = [output for replica in differentiable for output in replica]
    replacement = {id(source): output for source, output in zip(sources, joined, strict=True)}
    return map_tensors(outputs, lambda tensor: replacement.get(id(tensor), tensor))


def _thread_settings() -> Callable[[], Any]:
    """What a new thread does not inherit: grad mode, inference mode and CPU autocast of the calling thread."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def enter() -> ExitStack:
        stack = ExitStack()
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(grad))
        stack.enter_context(torch.autocast("cpu", dtype=dtype, enabled=autocast))
        return stack

    return enter


def _in_threads(count: int, job: Callable[[int], Any], where: str) -> list[Any]:
    """`job(0)` to `job(count - 1)`, each in its own thread with one intra-op thread."""
    results: list[Any] = [None] * count

    def work(i: int) -> None:
        torch.set_num_threads(1)
        try:
            results[i] = job(i)
        except Exception:
            results[i] = ExceptionWrapper(where=f"{where} {i} on device cpu:{i}")

    callers_threads = torch.get_num_threads()
    threads = [threading.Thread(target=work, args=(i,), name=f"replica-{i}") for i in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        # set_num_threads in one thread is also the default of threads that start later: give the caller's back.
        torch.set_num_threads(callers_threads)
    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results
