"""`mgpu bench`: check a configuration, measure it through the benchmark notebook, say what came of it."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from mgpu_utils.benchmark import records
from mgpu_utils.benchmark.config import ConfigError, dump, load
from mgpu_utils.benchmark.progress import Progress
from mgpu_utils.benchmark.settings import CONFIG, Settings, replace_text, settle

NOTEBOOK = "01_compare_strategies.ipynb"
_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure single device, DataParallel and DDP on this machine",
        description="Measure strategies as a configuration file says; results, table and figure"
        " go to one folder. "
        "Exit status: 0 all went well, 1 a run failed (the others are measured), 2 nothing was started, "
        "130 interrupted (go on with --resume).",
    )
    default = _BENCHMARKS / "configs" / "compare.yaml"
    parser.add_argument("--config", type=Path, default=default, help="what to measure (default: compare.yaml)")
    parser.add_argument("--out", type=Path, help="folder of the results (default: results/CONFIG-DATE)")
    parser.add_argument("--resume", action="store_true", help="go on in a folder that holds results already")
    parser.add_argument("--notebook", type=Path, default=_BENCHMARKS / NOTEBOOK, help=argparse.SUPPRESS)
    parser.set_defaults(handler=bench)


def bench(options: argparse.Namespace) -> int:
    """Run the comparison and return the exit status (see `add_parser`)."""
    from mgpu_utils.benchmark.runner import check_parameters

    out = options.out or Path("results") / f"{options.config.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    parameters = {"config": CONFIG, "out": ".", "resume": True}
    try:
        settings = settle(load(options.config), out)
        settings.check_folder(resume=options.resume)
        if not options.notebook.is_file():
            raise ConfigError(f"{options.notebook} is not there; make it with: mgpu notebooks build")
        check_parameters(options.notebook, parameters)
        out.mkdir(parents=True, exist_ok=True)
        replace_text(out / CONFIG, dump(settings.config))
    except ConfigError as error:
        text = str(error)
        where = "" if text.startswith(str(options.config)) else f"{options.config}: "
        return _say(f"{where}{text}" + ("" if text.endswith(".") else "."), _BAD_INPUT)
    except OSError as error:
        return _say(f"the results cannot be written to {out}: {error.strerror or error}.", _BAD_INPUT)

    previous = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        trouble = _run(settings, options.notebook, parameters)
    except KeyboardInterrupt:
        kept = sum(record["status"] == "ok" for record in records.latest(records.read(settings.records_path)))
        again = shlex.join(["mgpu", "bench", "--config", str(options.config), "--out", str(out), "--resume"])
        return _say(
            f"interrupted; {kept} of {len(settings.runs)} runs are kept in {out}. Go on with: {again}",
            _INTERRUPTED,
        )
    finally:
        signal.signal(signal.SIGTERM, previous)
    return _conclude(settings, trouble)


def _run(settings: Settings, notebook: Path, parameters: dict[str, Any]) -> str | None:
    from mgpu_utils.benchmark.runner import run_notebook

    before = len(records.read(settings.records_path))
    todo = len(records.remaining(settings.runs, records.read(settings.records_path)))
    print(
        f"{todo} of {len(settings.runs)} runs to measure, results in {settings.out}",
        file=sys.stderr,
        flush=True,
    )
    with Progress(todo) as progress:

        def watch() -> None:
            found = records.read(settings.records_path)
            if len(found) > before:
                last = found[-1]
                what = f"round {last['round'] + 1}, {last['model']}, {last['strategy']}, {last['status']}"
                progress.update(len(found) - before, what)
            else:
                progress.update(0)

        return run_notebook(notebook, settings.out, parameters, watch=watch)


def _conclude(settings: Settings, trouble: str | None) -> int:
    from mgpu_utils.benchmark.report import failures, findings
    from mgpu_utils.benchmark.summary import summarise_each

    found = records.latest(records.read(settings.records_path))
    if trouble is not None:
        return _say(f"the notebook stopped: {trouble}\nIt is kept as far as it came in {settings.out}.", _FAILED)
    for table in summarise_each(found).values():
        for line in findings(table):
            print(line)
    print(f"figure: {settings.out / 'throughput.png'}   table: {settings.out / 'summary.csv'}")
    failed = failures(found)
    if failed:
        reasons = "\n".join(f"  {line}" for line in failed)
        count = sum(record["status"] == "failed" for record in found)
        return _say(f"{count} of {len(found)} runs failed:\n{reasons}", _FAILED)
    return 0


def _say(sentence: str, status: int) -> int:
    print(f"mgpu bench: {sentence}", file=sys.stderr)
    return status


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
