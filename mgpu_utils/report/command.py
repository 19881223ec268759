"""`mgpu report`: one page of any number of results, or a verdict on a new result beside an old one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mgpu_utils.report.baseline import INCOMPARABLE, TOLERANCE, judge_results
from mgpu_utils.report.folders import ReportError, Result, find

_PAGE = "report.html"


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "report",
        help="make one page of result folders, or compare a new result with an old one",
        description="Make one self-contained HTML page of any number of result folders (a suite's folder stands for "
        "all in it). With --baseline, say which configurations changed beyond their intervals instead; "
        "--out or --csv then also write the page or the table of both.",
        epilog="Exit status of a page: 0 it is written (what could not be used is named on it and on stderr), "
        "2 it is not. "
        "Exit status of --baseline: 0 no regression; 3 a configuration is slower (the 95 % interval of new / old lies "
        "on the slower side of 1 and the change is larger than the tolerance) or fails where it went well before; "
        "2 bad input, or nothing can be judged: no configuration in both, fewer than 5 rounds on a side, or another "
        "machine (processor, devices, cores, threads) without --across-machines. Other versions of Python, PyTorch "
        "or this package are named and judged: they are what a baseline is for.",
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="folders of results")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the page (default: {_PAGE} in the first DIR, or here if that is read-only)",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="all summaries as one table, too")
    parser.add_argument("--baseline", nargs=2, type=Path, metavar=("OLD", "NEW"), help="what changed from OLD to NEW")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="SHARE",
        help="changes up to this share are no regression, whatever their interval (default %(default)g); two sessions "
        "on one machine differ by a few per cent",
    )
    parser.add_argument(
        "--across-machines", action="store_true", help="judge results of different machines as if they were one"
    )
    parser.set_defaults(handler=report)


def report(options: argparse.Namespace) -> int:
    """Do what was asked and return the exit status (see `add_parser`)."""
    try:
        return _baseline(options) if options.baseline else _page(options, find(_given(options)))
    except ReportError as error:
        print(f"mgpu report: {error}", file=sys.stderr)
        return INCOMPARABLE


def _given(options: argparse.Namespace) -> list[Path]:
    if not options.folders:
        raise ReportError("name at least one folder of results, as in: mgpu report results/laptop")
    return list(options.folders)


def _baseline(options: argparse.Namespace) -> int:
    if options.folders:
        raise ReportError("--baseline takes exactly two folders, OLD and NEW, and no others.")
    old, new = (find([folder]) for folder in options.baseline)
    judgement = judge_results(old, new, tolerance=options.tolerance, across_machines=options.across_machines)
    print("\n".join(judgement.lines))
    if options.out or options.csv:
        _page(options, find(options.baseline))
    return judgement.status


def _page(options: argparse.Namespace, results: list[Result]) -> int:
    from mgpu_utils.report.page import render, sections, tidy_table, write

    for result in results:
        for problem in result.problems:
            print(f"mgpu report: {result.label}: {problem}", file=sys.stderr)
    shown = sections(results)
    if options.csv:
        write(options.csv, tidy_table(shown).to_csv(index=False, float_format="%.6g"))
        print(f"table: {options.csv}")
    if options.out or not options.baseline:
        place = options.out or options.folders[0] / _PAGE
        try:
            write(place, render(shown))
        except ReportError:
            if options.out:
                raise
            place = Path(_PAGE)
            write(place, render(shown))
        print(f"page: {place}")
    return 0
