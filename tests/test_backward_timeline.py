"""A backward pass is sorted into computing and communicating, from made-up profiles and from a real one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest

from mgpu_utils.backward_timeline import BackwardTimeline, Event, timeline_of
from mgpu_utils.ranks import RankGroup

ENGINE = "autograd::engine::evaluate_function: "


def flat(spans: Sequence[tuple[float, float]]) -> list[float]:
    return [moment for span in spans for moment in span]


def test_cpu_events_become_spans_in_seconds_since_the_start() -> None:
    line = timeline_of(
        [
            Event("gloo:barrier", False, 0, 900),
            Event("mgpu:backward", False, 1000, 5000),
            Event(ENGINE + "AddmmBackward0", False, 1000, 2000),
            Event(ENGINE + "torch::autograd::AccumulateGrad", False, 2000, 2500),
            Event("gloo:all_reduce", False, 1500, 3000),
            Event("gloo:all_reduce", False, 2500, 5200),
            Event("aten::mm", False, 1000, 2000),
        ]
    )
    assert line.compute == ((0.0, 0.001),)
    assert flat(line.communication) == pytest.approx([0.0005, 0.002, 0.0015, 0.0042])
    assert line.seconds == pytest.approx(0.0042)
    assert line.communicating == pytest.approx(0.0037)
    assert line.hidden == pytest.approx(0.0005)


def test_on_an_accelerator_its_own_kernels_count_and_not_what_the_host_did() -> None:
    line = timeline_of(
        [
            Event("mgpu:backward", False, 0, 100),
            Event("mgpu:backward", True, 0, 100),
            Event(ENGINE + "AddmmBackward0", False, 0, 10),
            Event("ampere_sgemm_128x64", True, 20, 60),
            Event("nccl:all_reduce", True, 30, 95),
            Event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True, 40, 90),
        ]
    )
    assert flat(line.compute) == pytest.approx([2e-5, 6e-5])
    assert flat(line.communication) == pytest.approx([4e-5, 9e-5])
    assert line.hidden == pytest.approx(2e-5)


def test_a_profile_without_a_backward_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no backward pass"):
        timeline_of([Event("aten::mm", False, 0, 1)])


def recorded(during: bool) -> BackwardTimeline:
    """A backward pass whose sums run after it, or start in its hooks; runs on a rank."""
    import torch
    import torch.distributed as dist
    from torch import nn

    from mgpu_utils.backward_timeline import record_backward

    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
    pending = []

    def start_sum(parameter: torch.Tensor) -> None:
        pending.append(dist.all_reduce(parameter.grad, async_op=True))
        if len(pending) == 1:
            # However busy the machine is, one sum runs before the next gradient is computed.
            pending[0].wait()

    if during:
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(start_sum)
    loss = net(torch.ones(64, 256)).sum()

    def step() -> None:
        loss.backward()
        for work in pending:
            work.wait()
        if not during:
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad)

    return record_backward(step)


def test_sums_after_backward_lie_after_it_and_sums_in_hooks_begin_during_it(two_ranks: RankGroup) -> None:
    for line in two_ranks.run(recorded, False):
        assert len(line.communication) == 8
        assert line.hidden == 0
        assert line.compute[-1][1] <= line.communication[0][0]
    for line in two_ranks.run(recorded, True):
        assert len(line.communication) == 8
        assert line.communication[0][0] < line.compute[-1][1]
        assert line.seconds >= line.communication[-1][1]


def test_the_profiler_writes_nothing_into_a_cell(two_ranks: RankGroup) -> None:
    code = """
        from mgpu_utils.backward_timeline import record_backward
        x = torch.ones(2, requires_grad=True)
        line = record_backward(lambda: x.sum().backward())
        print("done")"""
    assert [result.text.strip() for result in two_ranks.execute(textwrap.dedent(code))] == ["done", "done"]
