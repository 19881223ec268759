"""The `mgpu` command: `lab`, `bench`, `report`, `doctor` and `notebooks`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mgpu_utils.end_signals import ending_as_at_ctrl_c

_FIRST_WORDS = """\
Learn and measure multi-GPU training with PyTorch.

  mgpu lab          open the course in JupyterLab (start here)
  mgpu doctor       check this machine, and say how to mend what is wrong
  mgpu bench --config benchmarks/configs/compare.yaml --out results/mine
                    measure this machine
  mgpu report results/mine
                    one page of results, to read and to pass on
  mgpu progress     how far you have come; nothing is sent anywhere
  mgpu slides 05 --out slides
                    a lesson as slides (for teachers)
  mgpu student --out handout
                    the folder and zip that a class is handed
  mgpu mark handed_in --out grades.csv
                    mark a folder of submissions
  mgpu notebooks    generate or check the notebooks (for authors)
  mgpu book         make a site of the whole course

`mgpu COMMAND --help` lists the options of a command."""

# Their parsers are imported only when asked for.
_ELSEWHERE = {
    "bench": ("mgpu_utils.benchmark.command", "measure single device, DataParallel and DDP on this machine"),
    "report": ("mgpu_utils.report.command", "make one page of one or more folders of results, or compare two"),
    "progress": ("mgpu_utils.progress_command", "show, export or reset what you have answered so far"),
    "slides": ("mgpu_utils.slides_command", "make slides of the lessons (for teachers)"),
    "student": ("mgpu_utils.classroom.student_command", "make the folder and the zip that a class is handed"),
    "mark": ("mgpu_utils.classroom.mark_command", "mark a folder of submissions"),
    "book": ("mgpu_utils.book.command", "make a site of the whole course, with search (for authors and teachers)"),
    "doctor": ("mgpu_utils.doctor.command", "check this machine, and say how to mend what is wrong"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status; bad input gets one sentence on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(_FIRST_WORDS)
        return 0
    parser = build_parser(arguments)
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "lab":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    try:
        with ending_as_at_ctrl_c():
            return int(options.handler(options) or 0)
    except KeyboardInterrupt:
        print(f"mgpu {options.command}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has read enough (`| head`); Python must not complain of it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        print(f"mgpu {options.command}: {error}", file=sys.stderr)
        return 2


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all subcommands; some options are imported only when asked for."""
    parser = argparse.ArgumentParser(prog="mgpu", description="Learn and measure multi-GPU training with PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_lab(commands)
    _add_notebooks(commands)
    for name, (module, what) in _ELSEWHERE.items():
        if arguments[:1] == [name]:
            importlib.import_module(module).add_parser(commands)
        else:
            commands.add_parser(name, help=what, add_help=False)
    return parser


def _add_lab(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lab = commands.add_parser(
        "lab",
        help="open the course in JupyterLab",
        description="Open the course in JupyterLab. Options that are not listed here go to JupyterLab.",
    )
    lab.add_argument("notebook", nargs="?", default="notebooks/00_start_here.ipynb", help="what to open (%(default)s)")
    lab.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    lab.add_argument("--port", type=int, default=None, help="where to listen (8888, or the next that is free)")
    lab.set_defaults(handler=_lab)


def _lab(options: argparse.Namespace) -> int:
    from mgpu_utils.lab import open_lab

    return open_lab(options.notebook, no_browser=options.no_browser, port=options.port, extra=options.rest)


def _add_notebooks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    notebooks = commands.add_parser("notebooks", help="generate or check the notebooks (for authors)")
    actions = notebooks.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser("build", help="generate the notebooks from sources/")
    build.add_argument("--execute", action="store_true", help="run them and store the outputs of the checked cells")
    build.add_argument("--solutions", type=Path, metavar="DIR", help="write the solution version to DIR instead")
    build.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one notebook (%(default)g)"
    )
    check = actions.add_parser("check", help="fail when the notebooks are not what sources/ generates")
    claims = actions.add_parser("claims", help="write docs/claims.md from the lessons, and measure its numbers anew")
    claims.add_argument("--keep-numbers", action="store_true", help="run no lesson; refresh claims and verdicts only")
    claims.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one lesson (%(default)g)"
    )
    for action in (build, check, claims):
        action.add_argument("names", nargs="*", metavar="NAME", help="only these, as in 05 or 05_wrap_in_data_parallel")
        action.add_argument("--root", type=Path, default=None, help="the course's folder (default: the one you are in)")
    build.set_defaults(handler=_build)
    check.set_defaults(handler=_check)
    claims.set_defaults(handler=_claims)


def _build(options: argparse.Namespace) -> int:
    from mgpu_utils.authoring import build, build_solutions, find_root

    root = options.root or find_root()
    if options.solutions is not None:
        written = build_solutions(root, options.solutions, options.names)
    else:
        written = build(root, options.names, execute=options.execute, timeout=options.timeout)
    for path in written:
        print(path)
    if not written:
        print("every notebook is up to date")
    return 0


def _check(options: argparse.Namespace) -> int:
    from mgpu_utils.authoring import find_root, find_sources
    from mgpu_utils.notebook_checks import find_problems

    root = options.root or find_root()
    problems = find_problems(root, options.names)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(find_sources(root, options.names))} notebooks are what their sources generate")
    return 1 if problems else 0


def _claims(options: argparse.Namespace) -> int:
    from mgpu_utils.authoring import find_root
    from mgpu_utils.claims import PAGE, build_page

    root = options.root or find_root()
    changed = build_page(root, options.names, run=not options.keep_numbers, timeout=options.timeout)
    print(root / PAGE if changed else f"{PAGE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
