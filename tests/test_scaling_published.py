"""The model against the published V100 table, and the networks it is about."""

from __future__ import annotations

import pytest

from mgpu_utils.resnet50 import ResNet50
from mgpu_utils.scaling.architectures import NETWORKS, layers
from mgpu_utils.scaling.published import FITTED, fit_v100, v100_findings, v100_workload, validate_v100

# Published in the papers' tables and by torchvision, in thousands.
PARAMETERS = {"ResNet-50": 25_557, "ResNet-101": 44_549, "ResNeXt-50 32x4d": 25_029, "ResNeXt-101 32x8d": 88_791}
# In units of 10^9 multiply-adds, as the papers' tables 1 and 7 and torchvision's pages give them.
WORK = {"ResNet-50": 4.1, "ResNet-101": 7.8, "ResNeXt-50 32x4d": 4.2, "ResNeXt-101 32x8d": 16.4}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_published_numbers_of_parameters_and_multiply_adds(name: str) -> None:
    made = layers(name)
    assert round(sum(layer.values for layer in made) / 1000) == PARAMETERS[name]
    assert sum(layer.work for layer in made) / 1e9 == pytest.approx(WORK[name], rel=0.02)


def test_resnet_50_has_the_parameters_of_the_real_module_in_the_same_order() -> None:
    assert [layer.shape for layer in layers("ResNet-50")] == [tuple(p.shape) for p in ResNet50().parameters()]


@pytest.mark.parametrize("network", NETWORKS)
def test_every_published_v100_row_is_predicted_within_10_per_cent_whichever_network_is_fitted(network: str) -> None:
    table = validate_v100(network)
    predicted = table[table["role"] == "predicted"]
    assert len(predicted) == 18
    assert predicted["error"].abs().max() < 0.10


def test_fitted_to_resnet_50_the_mean_error_is_below_2_per_cent() -> None:
    table = validate_v100()
    far = table[table["devices"] > 2]
    assert far["error"].abs().mean() < 0.02
    assert far["error"].abs().mean() < far["as_on_2_error"].abs().mean()


def test_the_fitted_rows_are_met_and_nothing_else_of_the_table_is_used() -> None:
    table = validate_v100()
    fitted = table[table["role"] == "fitted"]
    assert list(fitted["network"].unique()) == [FITTED]
    assert fitted["error"].abs().max() < 1e-6
    from mgpu_utils import reference_points

    known = reference_points.v100_table()
    only = known[(known["network"] == FITTED) & (known["devices"] <= 2)]
    assert fit_v100(only) == fit_v100(known)


def test_pytorch_1_4_sends_its_small_bucket_last_so_that_little_is_exposed() -> None:
    sizes = v100_workload("ResNet-50", 32, 329).buckets
    assert len(sizes) == 5
    assert sizes[-1] < 2 * 1024**2 < sizes[1]


def test_findings_name_the_baselines_and_admit_when_little_is_gained() -> None:
    table = validate_v100()
    said = "\n".join(v100_findings(table))
    assert "12 rows" in said
    assert "own published number on 2 GPUs" in said
    worse = table.assign(as_on_2_error=0.5)
    assert "adds little" in v100_findings(table.assign(as_on_2_error=table["error"]))[-1]
    assert "adds little" not in "\n".join(v100_findings(worse))


def test_an_unknown_network_gets_one_clear_sentence() -> None:
    with pytest.raises(ValueError, match=r"no network 'VGG'; choose one of ResNet-50, "):
        layers("VGG")
    with pytest.raises(ValueError, match=r"no 'VGG' on 1 and 2 GPUs; it has ResNet-50, "):
        validate_v100("VGG")
