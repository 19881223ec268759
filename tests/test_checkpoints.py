"""Checkpoints: written by one rank, whole or not at all, and read by every rank with nothing left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mgpu_utils.checkpoints import load_checkpoint, save_checkpoint
from mgpu_utils.models import digits_cnn
from mgpu_utils.ranks import RankGroup
from mgpu_utils.strategies import DataParallel, DistributedDataParallel, SingleDevice, Strategy


def a_run(strategy: Strategy, seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = strategy.wrap(digits_cnn(seed=seed))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def a_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 1, 8, 8)).sum().backward()
    optimizer.step()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("strategies", [("single", "dp"), ("dp", "single")])
def test_a_checkpoint_goes_on_with_another_strategy_bit_by_bit(strategies: tuple[str, str], tmp_path: Path) -> None:
    made = {"single": SingleDevice("cpu"), "dp": DataParallel(2)}
    model, optimizer = a_run(made[strategies[0]])
    a_step(model, optimizer)
    save_checkpoint(tmp_path / "c.pt", model=model, optimizer=optimizer, epoch=2, batch=7)
    other, others_optimizer = a_run(made[strategies[1]], seed=5)
    assert load_checkpoint(tmp_path / "c.pt", model=other, optimizer=others_optimizer) == {"epoch": 2, "batch": 7}
    assert torch.equal(weights(model), weights(other))
    momenta = [[s["momentum_buffer"] for s in opt.state.values()] for opt in (optimizer, others_optimizer)]
    assert all(torch.equal(one, two) for one, two in zip(*momenta, strict=True))


def test_only_rank_0_writes(two_ranks: RankGroup, tmp_path: Path) -> None:
    def save(path: Path) -> int:
        from mgpu_utils import checkpoints

        written, real = [], checkpoints._write
        checkpoints._write = lambda *args: (written.append(args), real(*args))
        try:
            model, optimizer = a_run(DistributedDataParallel())
            checkpoints.save_checkpoint(path, model=model, optimizer=optimizer)
        finally:
            checkpoints._write = real
        return len(written)

    assert two_ranks.run(save, tmp_path / "c.pt") == [1, 0]


def test_ranks_write_one_file_and_each_gets_back_its_own_random_state(two_ranks: RankGroup, tmp_path: Path) -> None:
    def save(path: Path) -> Any:
        import torch.distributed as dist

        model, optimizer = a_run(DistributedDataParallel())
        a_step(model, optimizer)
        torch.manual_seed(100 + dist.get_rank())
        save_checkpoint(path, model=model, optimizer=optimizer, epoch=1)
        return path.is_file(), torch.rand(3), weights(model)

    def load(path: Path) -> Any:
        model, optimizer = a_run(DistributedDataParallel(), seed=7)
        told = load_checkpoint(path, model=model, optimizer=optimizer)
        return told, torch.rand(3), weights(model), len(optimizer.state)

    saved = two_ranks.run(save, tmp_path / "c.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]
    assert all(there for there, _, _ in saved)
    assert not torch.equal(saved[0][1], saved[1][1])
    for before, after in zip(saved, two_ranks.run(load, tmp_path / "c.pt"), strict=True):
        assert after[0] == {"epoch": 1}
        assert torch.equal(before[1], after[1])
        assert torch.equal(before[2], after[2])
        assert after[3] == 10


def test_a_rank_that_cannot_write_is_an_error_on_every_rank_and_nobody_waits(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    def save(path: Path, **progress: Any) -> str:
        model, optimizer = a_run(DistributedDataParallel())
        try:
            save_checkpoint(path, model=model, optimizer=optimizer, **progress)
        except OSError as error:
            return str(error)
        return "saved"

    for told in (
        two_ranks.run(save, tmp_path / "missing" / "c.pt"),
        two_ranks.run(save, tmp_path / "c.pt", callback=lambda: None),
    ):
        assert all("could not be written" in words for words in told)
    assert not list(tmp_path.iterdir())


def test_the_scale_of_the_scaler_is_kept(tmp_path: Path) -> None:
    model, optimizer = a_run(SingleDevice("cpu"))
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    scaler.scale(torch.zeros(()))
    save_checkpoint(tmp_path / "c.pt", model=model, optimizer=optimizer, scaler=scaler)
    fresh = torch.amp.GradScaler("cpu")
    load_checkpoint(tmp_path / "c.pt", model=model, optimizer=optimizer, scaler=fresh)
    assert fresh.get_scale() == 512.0
    save_checkpoint(tmp_path / "c.pt", model=model, optimizer=optimizer)
    with pytest.raises(ValueError, match="without a scaler"):
        load_checkpoint(tmp_path / "c.pt", model=model, scaler=fresh)


def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model, optimizer = a_run(SingleDevice("cpu"))
    save_checkpoint(tmp_path / "c.pt", model=model, optimizer=optimizer)
    other = nn.Sequential(nn.Linear(2, 2))
    before = weights(other)
    with pytest.raises(RuntimeError, match="does not fit the model"):
        load_checkpoint(tmp_path / "c.pt", model=other)
    assert torch.equal(weights(other), before)


def test_an_entry_may_not_take_a_name_of_the_checkpoint(tmp_path: Path) -> None:
    model, optimizer = a_run(SingleDevice("cpu"))
    with pytest.raises(ValueError, match="'rng'"):
        save_checkpoint(tmp_path / "c.pt", model=model, optimizer=optimizer, rng=3)
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_halfway_keeps_the_old_checkpoint_and_leaves_nothing(tmp_path: Path) -> None:
    model, optimizer = a_run(SingleDevice("cpu"))
    path = tmp_path / "c.pt"
    save_checkpoint(path, model=model, optimizer=optimizer, epoch=1)
    with pytest.raises(OSError, match="could not be written"):
        save_checkpoint(path, model=model, optimizer=optimizer, epoch=lambda: 2)
    assert load_checkpoint(path, model=model) == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_process_killed_while_it_saves_leaves_a_readable_checkpoint(tmp_path: Path) -> None:
    code = """
import sys, torch
from mgpu_utils.checkpoints import save_checkpoint
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10**6):
    save_checkpoint(sys.argv[1], model=model, optimizer=optimizer, epoch=epoch)
"""
    path = tmp_path / "c.pt"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)])
    try:
        deadline = time.monotonic() + 60
        while not path.is_file() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert load_checkpoint(path, model=nn.Linear(1000, 1000))["epoch"] >= 0
