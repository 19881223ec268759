"""What README.md shows and says is there: pictures with words, commands with their options, every notebook in order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_utils.cli import build_parser

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", PAGE)
COMMANDS = sorted({
    command
    for piece in re.findall(r"`(mgpu [^`]+)`", PAGE) + re.findall(r"(?m)^\.venv\\Scripts\\(mgpu .*)$", PAGE)
    for command in [piece.strip()]
})  # fmt: skip


def test_its_pictures_are_there_small_and_told_in_words() -> None:
    assert [picture for _, picture in PICTURES if "reference" in picture], "the comparison"
    assert [picture for _, picture in PICTURES if "deadlock" in picture], "a deadlock that is explained"
    for words, picture in PICTURES:
        path = ROOT / picture
        assert path.read_bytes().startswith(b"\x89PNG"), picture
        assert path.stat().st_size < 150_000, picture
        assert len(words.split()) > 20, picture


def test_every_picture_of_the_docs_has_a_maker() -> None:
    maker = (ROOT / "docs/images/make_images.py").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "docs/images").glob("*.png") if path.name not in maker] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_it_shows_can_be_given(command: str) -> None:
    arguments = command.split()[1:]
    options, rest = build_parser(arguments).parse_known_args(arguments)
    assert options.command == arguments[0]
    assert rest == []


def test_there_are_commands_to_look_at_and_a_wrong_one_would_be_seen() -> None:
    assert {"mgpu lab", "mgpu doctor", "mgpu slides 05 --out slides"} <= set(COMMANDS)
    with pytest.raises(SystemExit):
        build_parser(["marks"]).parse_known_args(["marks"])


def test_make_has_every_target_that_it_shows() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(
        re.findall(r"\bmake ([a-z]+)\b", "\n".join(re.findall(r"(?<!`)`[^`\n]+`(?!`)|^make .*$", PAGE, re.MULTILINE)))
    )
    assert {"lab", "bench", "test"} <= targets
    assert {target for target in targets if f"\n{target}: " not in makefile} == set()
    listed = re.search(r"^Makefile +(.*)$", PAGE, re.MULTILINE)
    assert listed is not None
    named = re.search(r"^# ([a-z, ]+)\. Each", makefile)
    assert named is not None
    assert listed[1] == named[1]


@pytest.mark.parametrize("folder", ["notebooks", "benchmarks"])
def test_every_notebook_stands_in_it_in_reading_order(folder: str) -> None:
    there = sorted(path.name for path in (ROOT / folder).glob("[0-9]*.ipynb"))
    assert re.findall(rf"^\| \[.*?\]\({folder}/([^)]+\.ipynb)\)", PAGE, re.MULTILINE) == there


def test_its_tree_is_the_one_that_is_there() -> None:
    tree = re.search(r"```\n(README\.md\n.*?)```", PAGE, re.DOTALL)
    assert tree is not None
    named = [line.split()[0] for line in tree[1].splitlines()]
    assert [name for name in named if not (ROOT / name).exists()] == []
    done = subprocess.run(
        ["git", "ls-files", "--directory", "*/*"], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode == 0:
        folders = {line.split("/")[0] for line in done.stdout.splitlines() if not line.startswith(".")}
        assert folders <= {name.rstrip("/") for name in named}


def test_the_python_that_it_asks_for_is_that_of_the_project() -> None:
    asked = PAGE.split("You need Python")[1][:40]
    assert sys.version_info[:2] in {(3, int(minor)) for minor in re.findall(r"3\.(\d+)", asked)}
