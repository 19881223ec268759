"""`mgpu book`: the course as a site, to read in a browser and to publish."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

OUT = Path("build") / "book"
WORK = Path("build") / "book-work"


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "book",
        help="make a site of the whole course, with search (for authors and teachers)",
        description="Make a site of the whole course: the lessons, run on this machine; the benchmark notebooks with "
        "the results of a machine; every page of docs/; the reference of mgpu_utils. It opens without a network. "
        "Notebooks that have not changed are not run again. A warning (a link that leads nowhere, say) stops it, and "
        "the site that is there stays.",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where the site goes (default: {OUT.as_posix()})")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="results of mgpu bench to show (default: the newest of benchmarks/reference/)",
    )
    parser.add_argument("--solutions", action="store_true", help="show the exercises solved: not for learners")
    parser.add_argument(
        "--no-execute", action="store_true", help="run no notebook; show what is kept of earlier runs, or no outputs"
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one notebook (%(default)g)"
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help=f"what is kept between calls (default: {WORK.as_posix()})"
    )
    parser.add_argument("--root", type=Path, default=None, help="the course's folder (default: the one you are in)")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> int:
    """Make the site, print where it is, return 0. Raises BookError, AuthoringError."""
    from mgpu_utils.authoring import find_root
    from mgpu_utils.book.build import build_site
    from mgpu_utils.notebook_execution import check_seconds

    check_seconds(options.timeout, "--timeout")
    root = (options.root or find_root()).resolve()
    out = options.out or root / OUT
    started = time.monotonic()
    new = build_site(
        root,
        out,
        options.work or root / WORK,
        results=options.results,
        solutions=options.solutions,
        execute=not options.no_execute,
        timeout=options.timeout,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    took = f"in {time.monotonic() - started:.0f} s" if new else "was up to date"
    print(f"{out / 'index.html'} {took}")
    return 0
