"""ThreadedDataParallel behaves as nn.DataParallel does on GPUs."""

from __future__ import annotations

import copy
import io
import threading
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import scatter_gather as torch_scatter_gather

from mgpu_utils.data import split_sizes
from mgpu_utils.models import digits_cnn, small_resnet
from mgpu_utils.scatter_gather import gather
from mgpu_utils.threaded_data_parallel import ThreadedDataParallel

Pair = namedtuple("Pair", ["left", "right"])


class Recorder(nn.Module):
    """Runs a function as its forward, on whatever it is given."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([2.0]))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class FirstItem(nn.Module):
    def forward(self, items: tuple[Tensor, ...]) -> Tensor:
        return items[0]


class KeepsItsWeight(nn.Module):
    """Notices when its weight is set, and computes with what it noticed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.5, 2.5]))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            self.__dict__["kept"] = value
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> KeepsItsWeight:
        return KeepsItsWeight()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept


def parallel(function: Callable[..., Any], num_devices: int = 2) -> ThreadedDataParallel:
    return ThreadedDataParallel(Recorder(function), num_devices)


@pytest.fixture
def torch_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own scatter and gather, with the two copies between GPUs replaced by what they do to the data."""

    class Scatter:
        @staticmethod
        def apply(devices: list[int], sizes: None, dim: int, tensor: Tensor) -> tuple[Tensor, ...]:
            return tensor.chunk(len(devices), dim)

    class Gather:
        @staticmethod
        def apply(device: int, dim: int, *tensors: Tensor) -> Tensor:
            return torch.cat([tensor.view(1) if tensor.dim() == 0 else tensor for tensor in tensors], dim)

    monkeypatch.setattr(torch_scatter_gather, "Scatter", Scatter)
    monkeypatch.setattr(torch_scatter_gather, "Gather", Gather)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


X = torch.arange(20.0).view(10, 2)


@pytest.mark.usefixtures("torch_on_cpu")
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X,), {}),
        ((X[:2],), {}),
        ((X, X[:3]), {"mask": X}),
        ((), {"x": X, "flag": True}),
        ((X[:2],), {"x": X}),
        ((), {}),
        (("word", None, 3), {}),
        (([X, {"a": X, "b": (X, "c")}], Pair(X, 1), OrderedDict(x=X), (), [], {}), {"scale": 2.0}),
    ],
)
def test_scatter_gives_each_replica_what_torch_gives_it(args: Any, kwargs: Any, devices: int) -> None:
    expected = torch_scatter_gather.scatter_kwargs(args, kwargs, list(range(devices)))
    module = ThreadedDataParallel(nn.Identity(), devices)
    assert same(module.scatter(args, kwargs, list(range(devices))), expected)


@pytest.mark.usefixtures("torch_on_cpu")
@pytest.mark.parametrize(
    "outputs",
    [
        [X, X[:1]],
        [None, None],
        [(X, None), (X, None)],
        [[X, [X]], [X, [X]]],
        [Pair(X, X), Pair(X, X)],
        [{"a": X, "b": (X,)}, {"b": (X[:1],), "a": X}],
        [OrderedDict(a=X), OrderedDict(a=X)],
    ],
)
def test_gather_puts_outputs_together_as_torch_does(outputs: list[Any]) -> None:
    assert same(gather(outputs, 0), torch_scatter_gather.gather(outputs, 0))


def test_gather_refuses_dicts_of_different_lengths_and_outputs_that_are_no_tensors() -> None:
    with pytest.raises(ValueError, match="same number of keys"):
        gather([{"a": X}, {"a": X, "b": X}], 0)
    with pytest.raises(TypeError, match="returned float objects, which cannot be gathered: return tensors"):
        parallel(lambda self, x: 1.0)(X)


@pytest.mark.parametrize(("batch", "devices"), [(10, 4), (9, 4), (2, 4), (1, 2), (8, 2), (36, 7)])
def test_replicas_see_torchs_chunks_and_a_small_batch_uses_fewer_replicas(batch: int, devices: int) -> None:
    shapes, lock = [], threading.Lock()

    def forward(self: Recorder, x: Tensor) -> Tensor:
        with lock:
            shapes.append(len(x))
        return x * self.weight

    x = torch.rand(batch, 3)
    assert torch.equal(parallel(forward, devices)(x), x * 2)
    assert sorted(shapes, reverse=True) == split_sizes(batch, devices)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_gradients_equal_those_of_the_plain_module(devices: int) -> None:
    plain = small_resnet(norm="group", seed=0).double()
    module = ThreadedDataParallel(copy.deepcopy(plain), devices)
    x, y = torch.randn(10, 3, 32, 32).double(), torch.randint(10, (10,))
    F.cross_entropy(plain(x), y).backward()
    F.cross_entropy(module(x), y).backward()
    for (name, one), two in zip(plain.named_parameters(), module.module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-12, msg=name)
    before = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
    F.cross_entropy(module(x), y).backward()
    for old, parameter in zip(before, module.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, 2 * old, rtol=1e-9, atol=1e-12)


def test_gradients_reach_inputs_through_nested_outputs_used_twice() -> None:
    def forward(self: Recorder, pair: Any, *, scale: Tensor) -> Any:
        a, b = pair["a"], pair["b"]
        return {"sum": (a + b) * self.weight, "parts": [a * scale, (b * b, scale.argmax())], "same": a}

    def loss(module: nn.Module, a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        out = module({"a": a, "b": b}, scale=scale)
        half, square = out["sum"], out["parts"][1][0]
        return (half * half).sum() + (square * half).sum() + out["parts"][0].sum() + (3 * out["same"]).sum()

    grads = []
    for wrap in (lambda module: module, lambda module: ThreadedDataParallel(module, 3)):
        # The second input depends on the first, so that cutting the graph in the wrong place counts it twice.
        leaf = torch.arange(1.0, 8.0, requires_grad=True)
        scale = torch.linspace(0, 1, 7, requires_grad=True)
        module = Recorder(lambda self, pair, scale: _without_argmax(forward(self, pair, scale=scale)))
        loss(wrap(module), leaf * 1.0, leaf.exp(), scale).backward()
        grads.append((leaf.grad, scale.grad, module.weight.grad))
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one, two)


def _without_argmax(out: dict[str, Any]) -> dict[str, Any]:
    out["parts"][1] = (out["parts"][1][0],)
    return out


def test_outputs_that_need_no_gradient_come_back_beside_those_that_do() -> None:
    module = parallel(lambda self, x: (x * self.weight, x.argmax(dim=1)))
    values, indices = module(X)
    assert values.requires_grad
    assert torch.equal(indices, X.argmax(dim=1))
    values.sum().backward()
    assert torch.equal(module.module.weight.grad, X.sum().view(1))


def test_part_of_the_output_can_be_used_alone_and_backward_twice_needs_retain_graph() -> None:
    module = parallel(lambda self, x: (x * self.weight).exp())
    x = torch.full((4, 1), 0.5)
    module(x)[:1].sum().backward()
    torch.testing.assert_close(module.module.weight.grad, torch.tensor([0.5]) * torch.e)
    out = module(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_second_derivatives_equal_those_of_the_plain_module() -> None:
    results = []
    for wrap in (lambda module: module, ThreadedDataParallel):
        module = Recorder(lambda self, x: (x * self.weight) ** 3)
        x = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        (slope,) = torch.autograd.grad(wrap(module)(x).sum(), x, create_graph=True)
        (slope**2).sum().backward()
        results.append((module.weight.grad, x.grad))
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)


def test_a_parameter_no_replica_used_gets_zeros_and_a_frozen_one_gets_nothing() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.frozen = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.frozen(self.used(x))

    module = ThreadedDataParallel(Partly())
    module(X).sum().backward()
    assert module.module.used.weight.grad.abs().sum() > 0
    assert torch.equal(module.module.unused.weight.grad, torch.zeros(2, 2))
    assert module.module.frozen.weight.grad is None


def test_replica_parameters_are_copies_with_a_history_and_no_leaves() -> None:
    seen: dict[str, Any] = {}

    def forward(self: Recorder, x: Tensor) -> Tensor:
        seen[threading.current_thread().name] = (self.weight.is_leaf, self.weight.data_ptr())
        return x * self.weight

    module = parallel(forward)
    module(X)
    master = module.module.weight.data_ptr()
    assert seen["replica-0"] == (False, master)
    assert seen["replica-1"][0] is False
    assert seen["replica-1"][1] != master


def test_only_replica_0_changes_the_masters_buffers() -> None:
    norm = nn.BatchNorm1d(1, momentum=0.1)
    module = ThreadedDataParallel(norm)
    first, second = torch.tensor([[-1.0], [1.0]]), torch.tensor([[9.0], [11.0]])
    module(torch.cat([second, first]))
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean, torch.tensor([1.0]))
    assert norm.num_batches_tracked == 1


def test_only_the_first_piece_of_an_input_shares_memory_with_the_callers() -> None:
    x = torch.zeros(4, 1)
    parallel(lambda self, x: x.add_(1) * self.weight)(x)
    assert x.flatten().tolist() == [1, 1, 0, 0]


def test_train_and_eval_reach_the_replicas() -> None:
    module = ThreadedDataParallel(nn.BatchNorm1d(2)).eval()
    module(X)
    assert module.module.num_batches_tracked == 0
    dropped = ThreadedDataParallel(nn.Dropout(0.5))
    assert (dropped(torch.ones(64, 4)) == 0).any()
    assert torch.equal(dropped.eval()(X), X)


def test_attributes_set_in_forward_are_lost_and_the_module_is_left_as_it_was() -> None:
    def forward(self: Recorder, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return x * self.weight

    module = parallel(forward)
    before = dict(module.module.__dict__)
    module(X)
    assert not hasattr(module.module, "calls")
    assert module.module.__dict__ == before
    assert isinstance(module.module.weight, nn.Parameter)


def test_scalar_outputs_become_a_vector_with_torchs_warning() -> None:
    module = parallel(lambda self, x: (x * self.weight).mean())
    with pytest.warns(UserWarning, match="gather along dimension 0, but all input tensors were scalars"):
        out = module(X)
    torch.testing.assert_close(out, torch.stack([X[:5].mean() * 2, X[5:].mean() * 2]))
    out.sum().backward()
    torch.testing.assert_close(module.module.weight.grad, (X[:5].mean() + X[5:].mean()).view(1))


def test_an_exception_in_a_replica_keeps_its_type_and_names_the_replica() -> None:
    def forward(self: Recorder, x: Tensor) -> Tensor:
        if x[0, 0] >= 10:
            raise ValueError("this half is bad")
        return x * self.weight

    module = parallel(forward)
    threads = torch.get_num_threads()
    with pytest.raises(ValueError, match=r"Caught ValueError in replica 1 on device cpu:1[\s\S]*this half is bad"):
        module(X)
    assert torch.get_num_threads() == threads
    assert torch.equal(module(X[:4]), X[:4] * 2)


def test_an_exception_in_backward_names_the_replica() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.bad = bool(x[0, 0] >= 10)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            if ctx.bad:
                raise ArithmeticError("no gradient here")
            return grad

    module = parallel(lambda self, x: Bad.apply(x * self.weight / 2))
    with pytest.raises(ArithmeticError, match="in the backward of replica 1 on device cpu:1"):
        module(X).sum().backward()


def test_replicas_and_their_backwards_run_at_the_same_time_with_one_thread_each() -> None:
    forward_barrier, backward_barrier = threading.Barrier(2, timeout=20), threading.Barrier(2, timeout=20)
    budgets = []

    class Meet(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            forward_barrier.wait()
            budgets.append(torch.get_num_threads())
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            backward_barrier.wait()
            budgets.append(torch.get_num_threads())
            return grad

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        # A barrier that one thread alone would reach breaks after its timeout.
        parallel(lambda self, x: Meet.apply(x * self.weight))(X).sum().backward()
        assert budgets == [1] * 4
        assert torch.get_num_threads() == 3
        in_new_thread: list[int] = []
        thread = threading.Thread(target=lambda: in_new_thread.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert in_new_thread == [3]
    finally:
        torch.set_num_threads(before)


def test_grad_mode_inference_mode_and_autocast_reach_the_threads() -> None:
    modes = []

    def forward(self: Recorder, x: Tensor) -> Tensor:
        modes.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        return x.mT @ x * self.weight if x.dim() == 3 else x * self.weight

    module = parallel(forward)
    with torch.no_grad():
        assert not module(X).requires_grad
    with torch.inference_mode():
        assert module(X).is_inference()
    assert modes == [(False, False)] * 2 + [(False, True)] * 2
    linear = ThreadedDataParallel(nn.Linear(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(X).dtype == torch.bfloat16
    assert linear(X).dtype == torch.float32


@pytest.mark.parametrize("kind", ["lstm", "weight norm", "shared weights", "own setattr", "no parameters"])
def test_unusual_modules_give_the_plain_modules_result_and_gradients(kind: str) -> None:
    torch.manual_seed(0)
    if kind == "lstm":
        # The hidden state holds the batch in its second dimension, so it could not be gathered along the first.
        plain: nn.Module = nn.Sequential(nn.LSTM(2, 3, batch_first=True), FirstItem())
    elif kind == "weight norm":
        plain = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    elif kind == "shared weights":
        layer = nn.Linear(2, 2)
        plain = nn.Sequential(layer, nn.Tanh(), layer)
    elif kind == "own setattr":
        plain = KeepsItsWeight()
    else:
        plain = nn.Tanh()
    x = torch.rand(5, 4, 2, requires_grad=True)
    results = []
    for module in (plain, ThreadedDataParallel(copy.deepcopy(plain))):
        x.grad = None
        out = module(x)
        out.square().sum().backward()
        results.append([out, x.grad, *(parameter.grad for parameter in module.parameters())])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)


def test_state_dict_keys_carry_the_prefix_and_the_module_can_be_copied_and_saved() -> None:
    module = ThreadedDataParallel(digits_cnn(seed=0))
    assert all(key.startswith("module.") for key in module.state_dict())
    file = io.BytesIO()
    torch.save(copy.deepcopy(module), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(loaded(x), module(x))


def test_forward_without_inputs_runs_once_and_with_one_device_runs_the_module_itself() -> None:
    assert torch.equal(parallel(lambda self: self.weight.expand(3))(), torch.full((3,), 2.0))
    module = parallel(lambda self, x: x.mean() + int(threading.current_thread() is threading.main_thread()), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module(X) == X.mean() + 1


def test_it_says_that_it_is_a_stand_in() -> None:
    assert "threaded stand-in for nn.DataParallel, num_devices=2" in repr(ThreadedDataParallel(nn.Linear(1, 1)))


def test_what_it_cannot_run_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="at least one device, got num_devices=0"):
        ThreadedDataParallel(nn.Linear(1, 1), 0)
    with pytest.raises(RuntimeError, match="parameter 'weight' is on meta"):
        ThreadedDataParallel(nn.Linear(2, 2, device="meta"))(X)
