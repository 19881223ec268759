"""What the tests of several machines start on a machine: ``lead`` or ``follow``, as `mgpu bench` would.

The lead takes one run a line as JSON on its standard input, and answers each with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

from mgpu_utils import torchrun
from mgpu_utils.benchmark.follower import follow
from mgpu_utils.machine_crew import Crew
from mgpu_utils.machine_lead import Lead
from mgpu_utils.machines import MachinesError, parse, route

SAME = {"configuration": "one and the same"}


def lead(endpoint: str, silence: float) -> int:
    machines = parse(2, 0, endpoint)
    assert machines is not None
    with Lead(machines, route(machines), SAME, {}, silence=silence) as leading:
        leading.gather(60)
        os.environ.update(leading.environment())
        crew = Crew.from_environment()
        assert crew is not None
        with torchrun.Launcher(crew) as launcher:
            print(json.dumps({"ready": True}), flush=True)
            for line in sys.stdin:
                run = json.loads(line)
                if run.pop("wait_for_others", False):
                    wait_for_others(crew, 60)
                started = time.monotonic()
                result = launcher.run(**run)
                answer = {"reason": result.reason, "delivered": result.delivered, "stdout": result.stdout}
                print(json.dumps(answer | {"seconds": time.monotonic() - started}), flush=True)
        leading.close(0)
    return 0


def wait_for_others(crew: Crew, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while crew.missing(2) and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> int:
    role, endpoint, silence = sys.argv[1], sys.argv[2], float(sys.argv[3])
    try:
        if role == "lead":
            return lead(endpoint, silence)
        machines = parse(2, 1, endpoint)
        assert machines is not None
        return follow(machines, route(machines), SAME, {}, join_seconds=60)
    except MachinesError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
