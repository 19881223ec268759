"""What the suite itself costs: DDP measured through it, beside a plain hand-written torchrun script.

Run it with ``python -m mgpu_utils.benchmark.overhead --rounds 5``. Both do the same steps; rounds are
interleaved and ratios are taken within a round. The machine's limit (independent jobs) is measured in the
same rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mgpu_utils import torchrun
from mgpu_utils.benchmark.config import BenchmarkConfig, ModelConfig
from mgpu_utils.benchmark.measure import measure_one
from mgpu_utils.benchmark.plan import Configuration
from mgpu_utils.benchmark.settings import settle
from mgpu_utils.rendezvous import loopback_interface
from mgpu_utils.timing import Interval, median_interval

PLAIN_SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "plain_ddp.py"
_TIMEOUT_SECONDS = 300.0


def compare(configurations: dict[str, Configuration], rounds: int) -> dict[str, list[float]]:
    """Return samples per second of "ddp", "independent" and "plain", one value a round."""
    ddp = configurations["ddp"]
    with torchrun.Launcher() as launcher:

        def suite(configuration: Configuration) -> Callable[[int], float]:
            def once(number: int) -> float:
                record = measure_one(configuration, number, launcher=launcher, seed=0, timeout=_TIMEOUT_SECONDS)
                if record["status"] != "ok":
                    raise RuntimeError(f"{configuration.strategy} failed: {record['reason']}")
                return float(record["samples_per_second"])

            return once

        ways = {name: suite(configuration) for name, configuration in configurations.items()}
        ways["plain"] = lambda number: run_plain(ddp)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            for name in random.Random(number).sample(sorted(ways), len(ways)):
                rates[name].append(ways[name](number))
            print(f"round {number + 1} of {rounds} measured", file=sys.stderr, flush=True)
    return rates


def run_plain(ddp: Configuration) -> float:
    """Return samples per second of the hand-written script, started by torchrun's own command line."""
    environment = os.environ | {"OMP_NUM_THREADS": str(ddp.threads_per_process)}
    interface = loopback_interface()
    if interface is not None:
        environment["GLOO_SOCKET_IFNAME"] = interface
    said = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ddp.world_size}", str(PLAIN_SCRIPT), "--model", ddp.model),
            *("--batch", str(ddp.per_device_batch), "--steps", str(ddp.steps), "--warmup", str(ddp.warmup)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    # The result counts, not the exit code: a correct gloo run may abort while its interpreter shuts down.
    found = re.search(r"RESULT (\{.*\})", said.stdout)
    if found is None:
        raise RuntimeError(f"the plain script gave no result: {said.stderr[-500:]}")
    return float(json.loads(found.group(1))["samples_per_second"])


def ratio(over: list[float], under: list[float]) -> Interval:
    """Return median and 95 % interval of ``over / under``, paired by round."""
    return median_interval([one / other for one, other in zip(over, under, strict=True)])


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="small_resnet")
    parser.add_argument("--batch", type=int, default=64, help="samples a rank and step")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    options = parser.parse_args()
    model = ModelConfig(
        name=options.model,
        per_device_batch=options.batch,
        global_batch=options.batch,
        steps=options.steps,
        warmup=options.warmup,
    )
    config = BenchmarkConfig(models=[model], strategies=["ddp", "independent"])
    settings = settle(config, Path("."))
    rates = compare({item.strategy: item for item in settings.configurations}, options.rounds)
    for name, values in rates.items():
        median, low, high = median_interval(values)
        print(f"{name:12} {median:10,.1f} samples/s  [{low:,.1f}, {high:,.1f}]")
    for over, under in (("ddp", "plain"), ("ddp", "independent"), ("plain", "independent")):
        median, low, high = ratio(rates[over], rates[under])
        print(f"{over} / {under:12} {median:.3f}  95 % interval [{low:.3f}, {high:.3f}], {options.rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
