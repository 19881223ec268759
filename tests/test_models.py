"""The models that the course and the benchmarks share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mgpu_utils.models import MODELS, build, digits_cnn, small_resnet


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("batch", [0, 1, 5])
def test_every_model_of_the_registry_maps_its_samples_to_logits_for_any_batch(name: str, batch: int) -> None:
    spec = MODELS[name]
    if spec.takes == "tokens":
        logits = build(name, seed=0)(torch.randint(spec.classes, (batch, *spec.sample_shape)))
        assert logits.shape == (batch, *spec.sample_shape, spec.classes)
    else:
        channels, height, width = spec.sample_shape
        images = torch.rand(batch, channels, min(height, 64), min(width, 64))  # a 224 by 224 image takes a CPU long
        assert build(name, seed=0)(images).shape == (batch, spec.classes)


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = digits_cnn(seed=1), digits_cnn(seed=1), digits_cnn(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_without_a_seed_the_weights_follow_the_global_random_state() -> None:
    first, second = small_resnet(), small_resnet()
    assert not torch.equal(first.get_parameter("head.weight"), second.get_parameter("head.weight"))


def test_digits_cnn_holds_nothing_whose_result_depends_on_how_the_batch_is_split() -> None:
    model, x = digits_cnn(seed=0), torch.rand(6, 1, 8, 8)
    assert not list(model.buffers())
    torch.testing.assert_close(model(x), torch.cat([model(x[:2]), model(x[2:])]))
    assert sum(parameter.numel() for parameter in model.parameters()) == 10_026


def test_small_resnet_has_the_norm_it_is_asked_for() -> None:
    kinds = {norm: {type(m) for m in small_resnet(norm=norm).modules()} for norm in ("batch", "group")}
    assert nn.BatchNorm2d in kinds["batch"]
    assert nn.BatchNorm2d not in kinds["group"]
    assert nn.GroupNorm in kinds["group"]
    with pytest.raises(ValueError, match="'batch', 'group', got 'layer'"):
        small_resnet(norm="layer")


def test_an_unknown_model_is_refused_with_the_names_that_exist() -> None:
    known = "digits_cnn, resnet50, small_gpt, small_resnet"
    with pytest.raises(ValueError, match=f"no model 'resnet'; choose one of {known}"):
        build("resnet")


def test_resnet50_has_the_published_number_of_parameters() -> None:
    assert sum(parameter.numel() for parameter in build("resnet50").parameters()) == 25_557_032


def test_small_gpt_cannot_look_at_later_tokens() -> None:
    model = build("small_gpt", seed=0)
    tokens = torch.randint(256, (1, 64), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 40:] = 0
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[0, :40], after[0, :40])
    assert not torch.allclose(before[0, 40:], after[0, 40:])
