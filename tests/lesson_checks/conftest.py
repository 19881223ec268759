"""What the tests of every lesson's checks share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_HOME", str(tmp_path))
    monkeypatch.delenv("MGPU_STRICT", raising=False)
