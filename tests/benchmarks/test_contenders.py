"""Every strategy that can be measured trains as it says, and a new one is a small class and one line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from made_up_records import plain_config

from mgpu_utils.benchmark.config import validate
from mgpu_utils.benchmark.contenders import CONTENDERS, Ddp
from mgpu_utils.benchmark.plan import configurations
from mgpu_utils.figures.style import STRATEGY_COLORS, STRATEGY_LABELS
from mgpu_utils.planning import Hardware

JOB: dict[str, Any] = {
    "model": "digits_cnn",
    "seed": 0,
    "world_size": 2,
    "per_device_batch": 8,
    "steps": 2,
    "warmup": 1,
}


def gradients_of(strategy: str, pieces: int = 1) -> tuple[list[Any], int]:
    """On a rank: the gradients of one step over 32 samples of its own, cut into so many micro-batches, and the bytes
    that it handed to collectives meanwhile."""
    from mgpu_utils.benchmark.worker import Training
    from mgpu_utils.benchmark.workload import samples
    from mgpu_utils.traffic import Traffic

    job = JOB | {"strategy": strategy, "per_device_batch": 32 // pieces, "accumulation": pieces}
    training = Training(job, torch.device("cpu"))
    inputs, targets = samples("digits_cnn", 32, seed=training.strategy.rank).tensors
    micro_batches = zip(inputs.chunk(pieces), targets.chunk(pieces), strict=True)
    training.next_batch = lambda: next(micro_batches)
    with Traffic() as traffic:
        training.step()
    return [parameter.grad.clone() for parameter in training.module.parameters()], traffic.nbytes


VARIANTS = ["ddp_static_graph", "ddp_bucket_view", "ddp_bf16_hook"]


@pytest.fixture(scope="module")
def measured(_two_ranks: Any) -> dict[str, Any]:
    return {name: _two_ranks.run(gradients_of, name) for name in ["ddp", *VARIANTS]}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_ddp_gives_the_same_gradients_on_all_ranks(measured: dict[str, Any], name: str) -> None:
    (first, _), (second, _) = measured[name]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("name", "tolerance"), [("ddp_static_graph", 0.0), ("ddp_bucket_view", 0.0), ("ddp_bf16_hook", 1e-2)]
)
def test_every_variant_of_ddp_computes_ddp_s_gradients(measured: dict[str, Any], name: str, tolerance: float) -> None:
    for plain, variant in zip(measured["ddp"][0][0], measured[name][0][0], strict=True):
        assert (plain - variant).abs().max() <= tolerance * plain.abs().max()


def test_the_bf16_hook_sends_half_the_bytes(measured: dict[str, Any]) -> None:
    assert 0 < measured["ddp_bf16_hook"][0][1] <= 0.51 * measured["ddp"][0][1]


def test_accumulation_gives_the_gradient_of_one_large_batch_with_one_all_reduce(
    measured: dict[str, Any], two_ranks: Any
) -> None:
    (accumulated, sent), _ = two_ranks.run(gradients_of, "ddp", pieces=4)
    (large, sent_at_once), _ = measured["ddp"]
    assert sent == sent_at_once
    for a, b in zip(accumulated, large, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("strategy", ["single", "data_parallel"])
def test_in_one_process_a_step_is_the_mean_over_the_whole_batch(strategy: str) -> None:
    from mgpu_utils.benchmark.worker import Training
    from mgpu_utils.benchmark.workload import loss_sum
    from mgpu_utils.models import build

    job = JOB | {"strategy": strategy, "world_size": 1 if strategy == "single" else 2, "accumulation": 2}
    training = Training(job, torch.device("cpu"))
    batches = [training.next_batch(), training.next_batch()]
    given = iter(batches)
    training.next_batch = lambda: next(given)
    training.step()
    model = build("digits_cnn", seed=0)
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert len(inputs) == 8 * job["world_size"] * 2
    (loss_sum(model(inputs), targets) / len(inputs)).backward()
    for mine, wanted in zip(training.module.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, wanted.grad)


def test_a_new_strategy_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Ddp):
        name, label, color = "mine", "DDP, mine", "#123456"

    monkeypatch.setitem(CONTENDERS, "mine", Mine())
    config = validate(plain_config(strategies=["single", "ddp"]), source="test")
    config = config.model_copy(update={"strategies": ["single", "mine"]})
    rows = {item.strategy: item for item in configurations(config, Hardware(cores=2), {})}
    assert (rows["mine"].backend, rows["mine"].processes, rows["mine"].world_size) == ("gloo", 2, 2)


def test_an_unknown_strategy_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"strategies\[0\] is 'ddp_static'.* \(did you mean ddp_static_graph\?\)"):
        validate(plain_config(strategies=["ddp_static"]), source="mine.yaml")


def test_the_lessons_and_the_benchmarks_show_a_strategy_alike() -> None:
    for name, color in STRATEGY_COLORS.items():
        assert CONTENDERS[name].color == color
        assert CONTENDERS[name].label == STRATEGY_LABELS[name]


def test_labels_and_colours_tell_the_strategies_apart() -> None:
    assert len({one.label for one in CONTENDERS.values()}) == len(CONTENDERS)
    assert len({one.color for one in CONTENDERS.values()}) == len(CONTENDERS)
