"""`mgpu mark`: mark a folder of submissions."""

from __future__ import annotations

import argparse
from pathlib import Path

from mgpu_utils.classroom.gradebook import FORMATS
from mgpu_utils.classroom.limits import Limits

_MORE = """\
Each learner has a folder in DIR, or a file whose name begins with the learner's; what Moodle and Canvas
download is understood. A file may be called anything: its cells say which lesson it is.

Only the answers are taken from a submission. The rest of the lesson, and every check, is the course's own. Each
submission runs in a process of its own, within limits. That is no sandbox: the code runs as you, and can read and
write what you can. Mark what strangers wrote in a container or with an account of its own."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `mark` to the parser of `mgpu`."""
    ours = Limits()
    mark = commands.add_parser(
        "mark",
        help="mark a folder of submissions",
        description="Run each learner's notebook, and write one row of grades a learner.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mark.add_argument("folder", type=Path, metavar="DIR", help="the submissions")
    mark.add_argument("--out", type=Path, required=True, metavar="FILE.csv", help="the grades; written after each")
    mark.add_argument("--lesson", action="append", default=[], metavar="NAME", help="mark only this one, as in 05")
    mark.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="what will read the grades (%(default)s)")
    mark.add_argument("--roster", type=Path, metavar="FILE.csv", help="the platform's own export, to take rows from")
    mark.add_argument("--again", action="store_true", help="mark everything, also what did not change")
    mark.add_argument("--seconds", type=float, default=ours.seconds, metavar="S", help="for one notebook (%(default)g)")
    mark.add_argument(
        "--cell-seconds", type=float, default=ours.cell_seconds, metavar="S", help="for one cell (%(default)g)"
    )
    mark.add_argument(
        "--memory-gib", type=float, default=ours.memory_bytes / 2**30, metavar="G", help="of memory (%(default)g)"
    )
    mark.add_argument("--root", type=Path, default=None, help="the course's folder (default: the one you are in)")
    mark.set_defaults(handler=_mark)


def _mark(options: argparse.Namespace) -> int:
    from mgpu_utils.authoring import find_root
    from mgpu_utils.classroom.class_marking import mark_folder
    from mgpu_utils.classroom.roster import read_roster

    if options.out.suffix.lower() != ".csv":
        raise ValueError(f"the grades are a CSV file, so --out ends in .csv, not in {options.out.name!r}.")
    for name, value in (("--seconds", options.seconds), ("--cell-seconds", options.cell_seconds)):
        if not value > 0:
            raise ValueError(f"{name} is a number of seconds above 0, not {value:g}.")
    if not options.memory_gib >= 0.5:
        raise ValueError(f"--memory-gib is at least 0.5, which PyTorch itself needs, not {options.memory_gib:g}.")
    limits = Limits(options.seconds, options.cell_seconds, int(options.memory_gib * 2**30))
    roster = read_roster(options.roster, options.format) if options.roster else None
    records = mark_folder(
        options.root or find_root(),
        options.folder,
        options.out,
        lessons=options.lesson,
        limits=limits,
        layout=options.format,
        roster=roster,
        again=options.again,
    )
    print(f"{len({record.learner for record in records})} learners: {options.out}")
    return 0
