"""`mgpu bench`: check a configuration, measure it through the benchmark notebooks, say what came of it."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from mgpu_utils.benchmark import kinds, records, several_machines
from mgpu_utils.benchmark.config import BenchmarkConfig, ConfigError, dump, load
from mgpu_utils.benchmark.environment import environment
from mgpu_utils.benchmark.progress import Progress
from mgpu_utils.benchmark.settings import CONFIG, Settings, settle
from mgpu_utils.machines import MachinesError
from mgpu_utils.whole_file import write_whole

_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
_PARAMETERS = {"config": CONFIG, "out": ".", "resume": True}
_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure single device, DataParallel and DDP on this machine",
        description="Measure what a configuration file says. The comparison's results, table and figure go to the "
        "folder of --out; each other benchmark of the file has a folder of its own in it. "
        "Exit status: 0 all went well, 1 a run failed (the others are measured), 2 nothing was started, "
        "130 interrupted (go on with --resume).",
    )
    default = _BENCHMARKS / "configs" / "compare.yaml"
    parser.add_argument("--config", type=Path, default=default, help="what to measure (default: compare.yaml)")
    parser.add_argument("--out", type=Path, help="folder of the results (default: results/CONFIG-DATE)")
    parser.add_argument("--resume", action="store_true", help="go on in a folder that holds results already")
    parser.add_argument(
        "--only",
        action="append",
        choices=kinds.NAMES,
        metavar="BENCHMARK",
        help=f"only this one of the file's benchmarks ({', '.join(kinds.NAMES)}); may be given more than once",
    )
    several_machines.add_options(parser)
    parser.set_defaults(handler=bench)


def bench(options: argparse.Namespace) -> int:
    """Run the benchmarks of the file and return the exit status (see `add_parser`)."""
    out = options.out or Path("results") / f"{options.config.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    same = ["--config", str(options.config), *(part for name in options.only or [] for part in ("--only", name))]
    try:
        if options.slurm is not None:
            resume = ["--resume"] if options.resume else []
            load(options.config)
            print(several_machines.write_batch(options, [*same, "--out", str(out), *resume]))
            return 0
        machines = several_machines.from_options(options)
        config = load(options.config)
        if machines is not None and machines.node_rank > 0:
            return several_machines.follow_lead(
                machines, dump(config), environment(), join_seconds=options.join_timeout
            )
        nnodes = machines.nnodes if machines else 1
        todo = _settle_all(config, out, options.only, resume=options.resume, nnodes=nnodes)
        for settings in todo:
            if settings.out.is_dir():
                with settings.alone():
                    pass
    except MachinesError as error:
        return _say(str(error), _BAD_INPUT)
    except ConfigError as error:
        text = str(error)
        where = "" if text.startswith((str(options.config), str(out))) else f"{options.config}: "
        return _say(f"{where}{text}" + ("" if text.endswith(".") else "."), _BAD_INPUT)
    except OSError as error:
        return _say(f"the results cannot be written to {out}: {error.strerror or error}.", _BAD_INPUT)

    try:
        other = [
            "mgpu",
            "bench",
            *same,
            "--nnodes",
            str(options.nnodes),
            "--rdzv-endpoint",
            options.rdzv_endpoint or "",
        ]
        with several_machines.leading(
            machines,
            dump(config),
            environment(),
            command=shlex.join(other) + " --node-rank {node_rank}",
            join_seconds=options.join_timeout,
        ) as finish:
            for settings in todo:
                settings.out.mkdir(parents=True, exist_ok=True)
                write_whole(settings.out / CONFIG, dump(settings.config))
            return finish(max([_run(settings) for settings in todo]))
    except OSError as error:
        return _say(f"the results cannot be written to {out}: {error.strerror or error}.", _BAD_INPUT)
    except MachinesError as error:
        return _say(str(error), _BAD_INPUT)
    except KeyboardInterrupt:
        states = [record["status"] for settings in todo for record in _found(settings)]
        failed = f" ({states.count('failed')} failed and will be tried again)" if "failed" in states else ""
        total = sum(len(settings.runs) for settings in todo)
        again = shlex.join(["mgpu", "bench", *same, "--out", str(out), "--resume"])
        return _say(
            f"interrupted; {states.count('ok')} of {total} runs are kept in {out}{failed}. Go on with: {again}",
            _INTERRUPTED,
        )


def _settle_all(
    config: BenchmarkConfig, out: Path, only: list[str] | None, *, resume: bool, nnodes: int
) -> list[Settings]:
    """Check everything before anything is measured."""
    from mgpu_utils.benchmark.runner import check_parameters

    missing = [name for name in only or [] if name not in config.benchmarks]
    if missing:
        raise ConfigError(f"it has no part for {missing[0]}; it has {', '.join(config.benchmarks)}")
    chosen = [name for name in config.benchmarks if not only or name in only]
    settled = []
    for name in chosen:
        settings = settle(config, out if name == "compare" else out / name, name, nnodes=nnodes)
        settings.check_folder(resume=resume)
        if not _notebook(settings).is_file():
            raise ConfigError(f"{_notebook(settings)} is not there; make it with: mgpu notebooks build")
        check_parameters(_notebook(settings), _PARAMETERS)
        settled.append(settings)
    return settled


def _run(settings: Settings) -> int:
    from mgpu_utils.benchmark.runner import run_notebook

    before = len(records.read(settings.records_path))
    todo = len(records.remaining(settings.runs, records.read(settings.records_path)))
    name = settings.kind.name
    print(
        f"{name}: {todo} of {len(settings.runs)} runs to measure, results in {settings.out}",
        file=sys.stderr,
        flush=True,
    )
    with Progress(todo) as progress:

        def watch() -> None:
            found = records.read(settings.records_path)
            if len(found) > before:
                last = found[-1]
                what = f"round {last['round'] + 1}, {settings.kind.label(last)}, {last['status']}"
                progress.update(len(found) - before, what)
            else:
                progress.update(0)

        trouble = run_notebook(_notebook(settings), settings.out, _PARAMETERS, watch=watch)
    return _conclude(settings, trouble)


def _conclude(settings: Settings, trouble: str | None) -> int:
    from mgpu_utils.benchmark.results import failures, findings

    found = _found(settings)
    if trouble is not None:
        return _say(f"the notebook stopped: {trouble}\nIt is kept as far as it came in {settings.out}.", _FAILED)
    for line in findings(settings, found):
        print(line)
    figures = ", ".join(sorted(path.name for path in settings.out.glob("*.png")))
    print(f"table: {settings.out / 'summary.csv'}   figures beside it: {figures}", flush=True)
    failed = failures(found)
    if failed:
        reasons = "\n".join(f"  {line}" for line in failed)
        count = sum(record["status"] == "failed" for record in found)
        return _say(f"{count} of {len(found)} runs failed:\n{reasons}", _FAILED)
    return 0


def _found(settings: Settings) -> list[records.Record]:
    return records.latest(records.read(settings.records_path))


def _notebook(settings: Settings) -> Path:
    return _BENCHMARKS / settings.kind.notebook


def _say(sentence: str, status: int) -> int:
    print(f"mgpu bench: {sentence}", file=sys.stderr)
    return status
