"""Run notebooks under strict nbval, each in a process of its own with a hard time limit."""

from __future__ import annotations

import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from mgpu_utils.notebook_execution import notebook_environment, run_bounded

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 240.0


@dataclass(frozen=True)
class NbvalRun:
    """What strict nbval found: cells run, cells that failed (with the reason), seconds, and the whole log."""

    status: int | None
    seconds: float
    cells: int
    failures: dict[str, str] = field(default_factory=dict)
    log: str = ""

    @property
    def passed(self) -> bool:
        return self.status == 0 and self.cells > 0 and not self.failures


def run_nbval(notebook: Path, scratch: Path, *, limit: float = LIMIT) -> NbvalRun:
    """Run every cell of a notebook where it lies and compare the stored outputs; `limit` in seconds."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "pytest.ini").write_text("[pytest]\n")
    report = scratch / "report.xml"
    command = [sys.executable, "-m", "pytest", "-c", str(scratch / "pytest.ini"), "-p", "no:cacheprovider"]
    command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={limit:.0f}", "-q", f"--junitxml={report}"]
    started = time.monotonic()
    status, log = run_bounded(
        [*command, str(notebook)], cwd=notebook.parent, env=notebook_environment(scratch), timeout=limit
    )
    seconds = time.monotonic() - started
    if not report.is_file():
        return NbvalRun(status, seconds, 0, log=log)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failures = {
        str(case.get("name")): str(problem.text)
        for case in cases
        for problem in (*case.findall("failure"), *case.findall("error"))
    }
    return NbvalRun(status, seconds, len(cases), failures, log)
