"""`mgpu doctor`: check this machine and print what was found, for people or as JSON."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

_BROKEN = 1


def add_parser(subparsers: Any) -> None:
    """Register the subcommand with the `mgpu` command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine and say how to mend what is wrong",
        description="Check Python, PyTorch, GPUs, ranks, memory, network and JupyterLab on this machine. "
        "Exit status: 0 nothing is broken, 1 something is.",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, without anything that names you or the machine"
    )
    parser.set_defaults(handler=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Examine this machine, print the report, and return the exit status (see `add_parser`)."""
    from mgpu_utils.doctor.examination import examine, versions
    from mgpu_utils.doctor.findings import count, report, summary

    # What libraries warn of on the way, as of a home folder that cannot be written, is among the findings.
    warnings.simplefilter("ignore")
    started = time.monotonic()
    findings = examine()
    seconds = time.monotonic() - started
    if options.json:
        found = [finding.to_dict() for finding in findings]
        whole = {"sentence": summary(findings), "seconds": round(seconds, 2), **count(findings)}
        print(json.dumps({"findings": found, "summary": whole, "versions": versions()}, indent=1))
    else:
        print(report(findings, seconds))
    return _BROKEN if any(finding.state == "broken" for finding in findings) else 0
