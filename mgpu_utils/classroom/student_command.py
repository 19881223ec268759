"""`mgpu student`: make what a class is handed."""

from __future__ import annotations

import argparse
from pathlib import Path

from mgpu_utils.classroom.platforms import PLATFORMS, PYTHONS

_MORE = """\
examples:
  mgpu student --out handout                          learners need the internet to install
  mgpu student --out handout --offline                they need none, on machines like this one
  mgpu student --out handout --offline --platform windows-x86_64 --platform macos-arm64 --python 3.12
  mgpu student --out grading --nbgrader               a course folder for nbgrader, for teachers

Wheels are found as pip is configured here. On Linux pip's default PyTorch brings gigabytes of CUDA; for laptops
without GPUs have pip find the CPU build, for example with
  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu mgpu student --out handout --offline"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `student` to the parser of `mgpu`."""
    student = commands.add_parser(
        "student",
        help="make the folder and the zip that a class is handed",
        description="Make a folder and a zip with the learner notebooks, this package, and one page to start with.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    student.add_argument("names", nargs="*", metavar="LESSON", help="only these lessons, as in 05 (default: all)")
    student.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder; the zip is DIR.zip")
    student.add_argument("--offline", action="store_true", help="add the wheels of all that is needed")
    student.add_argument(
        "--platform", action="append", metavar="NAME", help=f"with --offline: {', '.join(PLATFORMS)} (this one)"
    )
    student.add_argument(
        "--python", action="append", metavar="X.Y", help=f"with --offline: {', '.join(PYTHONS)} (this one)"
    )
    student.add_argument("--nbgrader", action="store_true", help="make a course folder for nbgrader instead")
    student.add_argument("--root", type=Path, default=None, help="the course's folder (default: the one you are in)")
    student.set_defaults(handler=_student)


def _student(options: argparse.Namespace) -> int:
    from mgpu_utils.authoring import find_root
    from mgpu_utils.classroom.nbgrader_export import export_course
    from mgpu_utils.classroom.platforms import this_platform, this_python
    from mgpu_utils.classroom.student_pack import make_pack
    from mgpu_utils.output_places import writing_to

    root = options.root or find_root()
    if (options.platform or options.python) and not options.offline:
        raise ValueError("--platform and --python choose wheels, so they go with --offline.")
    if options.nbgrader:
        if options.offline:
            raise ValueError("--nbgrader makes a folder for teachers, which holds no wheels; leave --offline out.")
        with writing_to(options.out, "the course folder"):
            written = export_course(root, options.out, options.names)
        print(f"{len(written)} assignments: {options.out / 'source'}; next: cd {options.out}, nbgrader db upgrade,")
        print(f"nbgrader generate_assignment {written[0].stem}")
        return 0
    platforms = (options.platform or [this_platform()]) if options.offline else []
    pythons = (options.python or [this_python()]) if options.offline else PYTHONS
    with writing_to(options.out, "the pack"):
        pack = make_pack(root, options.out, names=options.names, platforms=platforms, pythons=pythons)
    print(f"{pack.folder}: {_megabytes(pack.folder_bytes)}; {pack.archive}: {_megabytes(pack.archive_bytes)}")
    return 0


def _megabytes(size: int) -> str:
    """`0.8 MB`, and without a decimal from 10 MB on."""
    return f"{size / 1e6:.1f} MB" if size < 9.95e6 else f"{size / 1e6:.0f} MB"
