"""Published numbers: each with its source, and as published."""

from __future__ import annotations

import re

import pytest

from mgpu_utils import reference_points

V100 = {
    "ResNet-50": {1: (329, 319), 2: (329, 310), 4: (329, 310), 8: (329, 307), 16: (329, 306)},
    "ResNet-101": {1: (197, 187), 2: (197, 182), 4: (197, 182), 8: (197, 179), 16: (197, 178)},
    "ResNeXt-50 32x4d": {1: (220, 217), 2: (220, 209), 4: (220, 208), 8: (220, 204), 16: (220, 203)},
    "ResNeXt-101 32x8d": {1: (77, 75), 2: (77, 73), 4: (77, 72), 8: (77, 71), 16: (77, 71)},
}
# source, devices -> single, data_parallel, ddp
OTHERS = {
    ("HFAiLab/pytorch_distributed, result.png", 8): (1786.8, 984.6, 239.4),
    ("huggingface/transformers, perf_train_gpu_many.md", 2): (None, 110.6, 101.9),
    ("rentainhe/pytorch-distributed-training, README", 4): (None, 20.0, 16.0),
    ("rasbt/LLMs-from-scratch, ch05/10", 4): (142156.0, None, 419259.0),
    ("Goyal et al. 2017, arXiv 1706.02677, abstract", 256): (None, None, 0.9),
}


def test_every_number_has_a_source_with_an_address_and_a_year() -> None:
    table = reference_points.load()
    assert len(table) == 27
    assert all(len(source) > 5 for source in table["source"])
    assert all(re.match(r"https://\S+$", url) for url in table["url"])
    assert table["year"].between(2015, 2026).all()
    assert table[["hardware", "workload", "metric"]].notna().all(axis=None)


def test_columns_have_types_to_compute_with() -> None:
    types = reference_points.load().dtypes
    assert types["devices"] == types["year"] == "int64"
    assert types["single"] == types["data_parallel"] == types["ddp"] == "float64"


def test_the_v100_table_is_the_published_one() -> None:
    table = reference_points.v100_table()
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for row in table.to_dict("records"):
        assert row["batch"] == 32
        found.setdefault(row["network"], {})[row["devices"]] = (row["single"], row["ddp"])
    assert found == V100


def test_the_other_numbers_are_the_published_ones() -> None:
    table = reference_points.load()
    for (source, devices), values in OTHERS.items():
        rows = table[(table["source"] == source) & (table["devices"] == devices)]
        found = rows.iloc[0][["single", "data_parallel", "ddp"]]
        assert [None if value != value else value for value in found] == list(values), source


def test_a_row_without_a_source_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    text = (reference_points.resources.files("mgpu_utils") / "reference_points.csv").read_text(encoding="utf-8")
    head, first, *_ = text.splitlines()
    nameless = "," + first.split('",', 1)[1]
    folder = tmp_path / "somewhere"  # type: ignore[operator]
    folder.mkdir()
    (folder / "reference_points.csv").write_text(f"{head}\n{nameless}\n", encoding="utf-8")
    monkeypatch.setattr(reference_points.resources, "files", lambda _: folder)
    with pytest.raises(ValueError, match="row 1 has no source"):
        reference_points.load()


def test_what_stands_beside_a_readers_results_leaves_out_the_table_that_is_drawn() -> None:
    assert reference_points.V100_SOURCE not in set(reference_points.beside()["source"])
    assert len(reference_points.beside()) == 7
