"""The process that works through the faults of one world size, seen from the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fault_runner import Outcome


class Runner:
    """Starts the process for the faults of these names, in their order; its files go to `folder`."""

    def __init__(self, world_size: int, names: list[str], folder: Path) -> None:
        self._log = folder / "log"
        self._outcomes: dict[str, Outcome] = {}
        temporary = folder / "temporary"
        temporary.mkdir(parents=True)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fault_runner.py")), str(world_size), *names],
                env={**os.environ, "TMPDIR": str(temporary), "MGPU_LIVE": "0"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def outcome(self, name: str) -> Outcome:
        """What that fault came to; waits until it was made."""
        assert self.process.stdout is not None
        while name not in self._outcomes:
            line = self.process.stdout.readline()
            assert line, f"the process with the ranks ended: {self._log.read_text()[-3000:]}"
            found = Outcome(**json.loads(line))
            self._outcomes[found.fault] = found
        return self._outcomes[name]

    def end(self) -> None:
        """End it, and its ranks with it."""
        self.process.kill()
        self.process.communicate()
