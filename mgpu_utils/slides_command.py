"""`mgpu slides`: lessons as slides, in files that need no network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "slides",
        help="make slides of the lessons (for teachers)",
        description="Make slides of the lessons, one HTML file each, with reveal.js and every figure inside: they "
        "open in any browser without a network. The lesson is run first, so the slides show this machine's results.",
        epilog="In the slides: arrow keys or space to go on, S for the speaker's notes (the lesson's text), "
        "F for the full screen, Esc for all slides at once. To choose the slides yourself, set each cell's slide type "
        "in a copy of the notebook (JupyterLab, property inspector) and name the file.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="lessons as in 05, or notebook files; none: all lessons"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the slides go")
    parser.add_argument("--solutions", action="store_true", help="show the exercises solved")
    parser.add_argument("--no-run", action="store_true", help="run nothing; show the outputs the notebook holds")
    parser.add_argument(
        "--reveal", type=Path, metavar="DIR", help="another reveal.js than the one that comes with this"
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one lesson (%(default)g)"
    )
    parser.add_argument("--root", type=Path, default=None, help="the course's folder (default: the one you are in)")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> int:
    """Write the slides, print their paths, return 0. Raises AuthoringError for bad input and lessons that fail."""
    from mgpu_utils.authoring import find_root
    from mgpu_utils.notebook_execution import check_seconds
    from mgpu_utils.slides import make_slides

    check_seconds(options.timeout, "--timeout")
    only_files = bool(options.names) and all(name.endswith(".ipynb") for name in options.names)
    root = options.root or (Path.cwd() if only_files else find_root())
    for path in make_slides(
        root,
        options.names,
        options.out,
        solutions=options.solutions,
        run=not options.no_run,
        reveal=options.reveal,
        timeout=options.timeout,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    ):
        print(path)
    return 0
