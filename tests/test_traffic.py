"""Collectives are counted with their bytes, in forward, backward and step, and nothing else is."""

from __future__ import annotations

from typing import Any

from mgpu_utils.ranks import RankGroup


def of_ddp_steps(**options: Any) -> list[list[tuple[str, int]]]:
    """The collectives of wrapping a model and of three backwards; runs on a rank."""
    import torch
    from torch import nn

    from mgpu_utils.traffic import Traffic

    seen = []
    with Traffic() as traffic:
        net = nn.parallel.DistributedDataParallel(nn.Linear(100, 50), **options)
    seen.append([(call.name, call.nbytes) for call in traffic.calls if call.nbytes > 1000])
    for _ in range(3):
        loss = net(torch.ones(2, 100)).sum()
        with Traffic() as traffic:
            loss.backward()
        seen.append([tuple(call) for call in traffic.calls])
    return seen


def test_ddp_broadcasts_the_model_once_and_sums_each_gradient_once_a_backward(two_ranks: RankGroup) -> None:
    size = 4 * (100 * 50 + 50)
    for wrapping, *backwards in two_ranks.run(of_ddp_steps):
        assert wrapping == [("broadcast", size)]
        assert backwards == [[("all_reduce", size)]] * 3


def of_single_calls() -> dict[str, str]:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    from mgpu_utils.traffic import Traffic

    world_size = dist.get_world_size()
    mine, held = torch.ones(8), torch.zeros(8 * world_size)
    calls = {
        "nothing": lambda: mine.add(1).sum(),
        "all_reduce": lambda: dist.all_reduce(mine),
        "broadcast": lambda: dist.broadcast(mine, 0),
        "all_gather": lambda: dist.all_gather(list(held.chunk(world_size)), mine),
        "all_gather_single": lambda: dist.all_gather_single(held, mine),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(mine, held),
        "functional": lambda: functional.all_reduce(mine, "sum", dist.group.WORLD).sum(),
    }
    shown = {}
    for name, call in calls.items():
        with Traffic() as traffic:
            call()
        shown[name] = str(traffic)
    return shown


def test_each_collective_is_named_and_its_input_measured(two_ranks: RankGroup) -> None:
    for shown in two_ranks.run(of_single_calls):
        assert shown == {
            "nothing": "no collective",
            "all_reduce": "1 all_reduce: 32 bytes",
            "broadcast": "1 broadcast: 32 bytes",
            "all_gather": "1 all_gather: 32 bytes",
            "all_gather_single": "1 all_gather: 32 bytes",
            "reduce_scatter_single": "1 reduce_scatter: 64 bytes",
            "functional": "1 all_reduce: 32 bytes",
        }
