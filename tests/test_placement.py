"""A model that lies elsewhere is named before it is used."""

from __future__ import annotations

import pytest
from torch import nn

from mgpu_utils.models import digits_cnn
from mgpu_utils.placement import require_device


def test_a_model_on_its_device_passes() -> None:
    require_device(digits_cnn(), "cpu")
    require_device(digits_cnn().to("meta"), "meta")


def test_the_first_tensor_elsewhere_is_named_with_both_devices_and_the_number_of_others() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).to("meta"))
    with pytest.raises(RuntimeError) as caught:
        require_device(model, "cpu")
    words = str(caught.value)
    assert "parameter '1.weight' is on meta, but has to be on cpu, and 4 more" in words
    assert "to_empty" in words
    with pytest.raises(RuntimeError, match=r"'0.weight' is on cpu, but has to be on meta.*module.to\("):
        require_device(model, "meta")


def test_a_buffer_counts_as_well() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("scale", nn.Linear(1, 1, device="meta").weight.detach())
    with pytest.raises(RuntimeError, match=r"buffer 'scale' is on meta, but has to be on cpu\. Move"):
        require_device(model, "cpu")
