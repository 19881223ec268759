"""Predictions from the records of a real run: what the table and the sentences say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu_utils.benchmark import records
from mgpu_utils.benchmark.predict import Predict

REFERENCE = Path(__file__).resolve().parents[2] / "benchmarks" / "reference"


@pytest.mark.parametrize("oversubscribed", [False, True])
def test_worlds_with_more_threads_than_cores_are_marked(oversubscribed: bool) -> None:
    found = records.read(next(REFERENCE.glob("cpu-*/predict/records.jsonl")))
    kind = Predict()
    table = kind.summarise([record | {"oversubscribed": oversubscribed} for record in found])
    assert table["oversubscribed"].eq(oversubscribed).all()
    said = " ".join(kind.findings(table))
    assert "predicted steps are off by" in said
    assert ("oversubscribed" in said) == oversubscribed
