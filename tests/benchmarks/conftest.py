"""Fixtures of the benchmark tests."""

from __future__ import annotations

import pytest
from made_up_records import plain_config

from mgpu_utils.benchmark.config import BenchmarkConfig, validate


@pytest.fixture
def config() -> BenchmarkConfig:
    return validate(plain_config(), source="test.yaml")
