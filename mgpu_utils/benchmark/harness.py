"""A benchmark of the benchmark: what the suite costs, whether it repeats itself, how fine its clock is.

Run it with ``python -m mgpu_utils.benchmark.harness --rounds 9``. In every round, in shuffled order: DDP through
the suite, the same once more (are two measurements of one thing alike?), the same steps by a plain hand-written
torchrun script, DataParallel, and the machine's limit. Ratios are taken within a round. How long ranks take to
start, beside other launchers, is measured by ``benchmarks/rank_startup.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from mgpu_utils import torchrun
from mgpu_utils.benchmark.config import BenchmarkConfig
from mgpu_utils.benchmark.measuring import measure_one
from mgpu_utils.benchmark.plan import STAND_IN, Configuration
from mgpu_utils.benchmark.schema import ModelConfig
from mgpu_utils.benchmark.settings import settle
from mgpu_utils.benchmark.statistics import paired_ratio, verdict
from mgpu_utils.rendezvous import loopback_interface
from mgpu_utils.timing import ENOUGH_FOR_AN_INTERVAL, median_interval
from mgpu_utils.whole_file import write_whole

PLAIN_SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "plain_ddp.py"
_TIMEOUT_SECONDS = 300.0
Rates = dict[str, dict[int, float]]

# Each ratio: over, under, what it tells, and the aim where there is one.
RATIOS: tuple[tuple[str, str, str, float | None], ...] = (
    ("ddp", "plain script", "what the suite adds", 0.98),
    ("ddp", "limit", "DDP as a share of the machine's limit", 0.98),
    ("plain script", "limit", "the same for the plain script: what no suite could change", None),
    ("data_parallel", "limit", "DataParallel as a share of the machine's limit", 0.90),
    ("ddp again", "ddp", "repeatability: one configuration measured twice, 1 is right", None),
)


def clock_resolution(samples: int = 2000) -> float:
    """Return the smallest step of the suite's clock in seconds, as seen (median of steps that are not 0)."""
    steps: list[float] = []
    while len(steps) < samples:
        before = time.perf_counter()
        while (now := time.perf_counter()) == before:
            pass
        steps.append(now - before)
    return median(steps)


def measure(configurations: dict[str, Configuration], rounds: int) -> Rates:
    """Return samples per second of each way, by round."""
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
        ways["ddp again"] = suite(ddp)
        ways["plain script"] = lambda number: run_plain(ddp)
        rates: Rates = {name: {} for name in ways}
        for number in range(rounds):
            for name in random.Random(number).sample(sorted(ways), len(ways)):
                rates[name][number] = ways[name](number)
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


def lines(rates: Rates, *, stand_in: bool) -> list[str]:
    """Return the table and the ratios in words, with the aims."""
    rounds = len(rates["ddp"])
    said = []
    for name, values in rates.items():
        middle, low, high = median_interval(list(values.values()))
        spread = "" if low != low else f"  [{low:,.1f}, {high:,.1f}]"
        said.append(f"{name:14} {middle:10,.1f} samples/s{spread}")
    for over, under, what, aim in RATIOS:
        found = paired_ratio(rates[over], rates[under])
        told = rounds >= ENOUGH_FOR_AN_INTERVAL
        aimed = f"; aim {aim:.2f}: {'reached' if found.median >= aim else 'missed'}" if aim and told else ""
        name = "ThreadedDataParallel" if stand_in and over == "data_parallel" else over
        said.append(f"{what}: {name} is {verdict(found, rounds, under)}{aimed}")
    return said


def main() -> int:
    """Measure, print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", default="small_resnet")
    parser.add_argument("--batch", type=int, default=64, help="samples a rank and step")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured to FILE")
    options = parser.parse_args()
    shape = {name: getattr(options, name) for name in ("steps", "warmup")}
    model = ModelConfig(name=options.model, per_device_batch=options.batch, global_batch=options.batch, **shape)
    config = BenchmarkConfig(models=[model], strategies=["data_parallel", "ddp", "independent"])
    settings = settle(config, Path("."))
    chosen = {item.strategy: item for item in settings.configurations}
    chosen["limit"] = chosen.pop("independent")
    resolution = clock_resolution()
    rates = measure(chosen, options.rounds)
    print(f"clock: steps of {resolution * 1e9:,.0f} ns, {options.rounds} rounds")
    print("\n".join(lines(rates, stand_in=chosen["data_parallel"].implementation == STAND_IN)))
    if options.json:
        found = {"clock_resolution": resolution, "samples_per_second": rates, "environment": settings.environment}
        write_whole(options.json, json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
