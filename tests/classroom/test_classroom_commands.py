"""`mgpu student` and `mgpu mark` as a teacher types them."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from short_course import HandIn, make_course

from mgpu_utils.classroom import mark_command, student_command
from mgpu_utils.classroom.lessons import lesson_sources
from mgpu_utils.cli import main
from mgpu_utils.end_signals import ending_as_at_ctrl_c
from mgpu_utils.process_tree import kill_tree


def mgpu(*arguments: object) -> int:
    parser = argparse.ArgumentParser(prog="mgpu")
    commands = parser.add_subparsers(dest="command", required=True)
    mark_command.add_parser(commands)
    student_command.add_parser(commands)
    options = parser.parse_args([str(argument) for argument in arguments])
    return int(options.handler(options))


def test_mark_writes_grades_in_the_chosen_format_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = make_course(tmp_path / "course")
    HandIn(course, solved=False).write(tmp_path / "in/ada/x.ipynb")
    (tmp_path / "roster.csv").write_text("Student,ID,SIS Login ID,Section\nAda,7,ada,A\nBob,8,bob,A\n")
    grades = tmp_path / "grades.csv"
    options = ["--out", grades, "--root", course, "--format", "canvas", "--roster", tmp_path / "roster.csv"]
    assert mgpu("mark", tmp_path / "in", *options) == 0
    assert grades.read_text("utf-8-sig").splitlines() == [
        "Student,ID,SIS Login ID,Section,01_pick_devices",
        "    Points Possible,,,,3",
        "Ada,7,ada,A,0",
        "Bob,8,bob,A,",
    ]
    assert f"1 learners: {grades}" in capsys.readouterr().out
    assert mgpu("mark", tmp_path / "in", *options) == 0
    assert "0 to mark" in capsys.readouterr().out
    assert mgpu("mark", tmp_path / "in", *options, "--again") == 0
    assert "1 to mark" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mark", "nowhere", "--out", "g.csv"], "there is no folder nowhere"),
        (["mark", ".", "--out", "g.xlsx"], r"--out ends in \.csv"),
        (["mark", ".", "--out", "g.csv", "--memory-gib", "0.1"], r"at least 0\.5"),
        (["mark", ".", "--out", "g.csv", "--cell-seconds", "nan"], "number of seconds above 0"),
        (
            ["mark", ".", "--out", "g.csv", "--lesson", "77"],
            "no lesson is called '77'; the lessons are: 01_pick_",
        ),
        (["mark", ".", "--out", "g.csv", "--lesson", "02"], "02_words has no exercise, so there is nothing to mark"),
        (["mark", ".", "--out", "g.csv", "--lesson", "01_compare"], "01_compare is a benchmark notebook, which holds"),
        (["student", "--out", "x", "77"], r"no lesson is called '77'; the lessons are: 01_pick_devices, 02_words\.$"),
        (["student", "--out", "x", "--platform", "macos-arm64"], "go with --offline"),
        (["student", "--out", "x", "--nbgrader", "--offline"], "leave --offline out"),
        (["student", "--out", "x", "--offline", "--platform", "amiga"], "no pack can be made for 'amiga'"),
        (["student", "--out", ".", "--nbgrader", "77"], "no lesson is called '77'"),
        (["student", "--out", "."], "gives the pack no name"),
    ],
)
def test_wrong_input_gets_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_course(tmp_path)
    (tmp_path / "sources/benchmarks").mkdir()
    words = "# %% [markdown]\n# # Words alone\n"
    (tmp_path / "sources/benchmarks/01_compare.py").write_text(words)
    (tmp_path / "sources/lessons/02_words.py").write_text(words)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=sentence):
        mgpu(*arguments)
    assert sorted(tmp_path.iterdir()) == before


def test_marking_writes_over_no_file_that_it_did_not_write(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    HandIn(course, solved=False).write(tmp_path / "handed_in/ada/01.ipynb")
    roster = tmp_path / "class.csv"
    roster.write_text("Name\nAda\n")
    with pytest.raises(ValueError, match=r"class\.csv is there, and is no file of grades .* would be lost"):
        mgpu("mark", tmp_path / "handed_in", "--out", roster, "--roster", roster, "--root", course)
    assert roster.read_text() == "Name\nAda\n"
    grades = tmp_path / "grades.csv"
    for _ in range(2):
        assert mgpu("mark", tmp_path / "handed_in", "--out", grades, "--roster", roster, "--root", course) == 0


def test_a_number_that_a_lesson_and_a_benchmark_share_is_the_lesson_s(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    (course / "sources/benchmarks").mkdir()
    (course / "sources/benchmarks/01_compare.py").write_text("# %% [markdown]\n# # Words alone\n")
    assert [source.name for source in lesson_sources(course, ["01"])] == ["01_pick_devices"]


NOWHERE = ["afile"] + (["/sys", "/proc"] if sys.platform == "linux" else [])


@pytest.mark.parametrize("place", NOWHERE)
@pytest.mark.parametrize("command", [["mark", "in"], ["student"], ["student", "--nbgrader"]])
def test_an_out_that_cannot_be_written_gets_one_sentence(
    command: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    HandIn(make_course(tmp_path)).write(tmp_path / "in/ada/x.ipynb")
    (tmp_path / "afile").write_text("mine")
    monkeypatch.chdir(tmp_path)
    out = f"{place}/g.csv"
    assert main([*command, "--out", out]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mgpu {command[0]}: the ")
    assert f"cannot be written to {out}: " in said
    assert said.count("\n") == 1
    assert ("afile is a file, not a folder" in said) == (place == "afile")
    assert (tmp_path / "afile").read_text() == "mine"


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM ends a process at once on Windows")
def test_a_marking_that_is_told_to_end_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    course, scratch = make_course(tmp_path / "course"), tmp_path / "tmp"
    scratch.mkdir()
    started = tmp_path / "started"
    answer = f"""\
        import os, pathlib, time
        pathlib.Path({str(tmp_path)!r}, "new").write_text(f"{{os.getpid()}} {{os.getppid()}}")
        os.replace({str(tmp_path / "new")!r}, {str(started)!r})
        time.sleep(600)"""
    HandIn(course).answer("01/pick", textwrap.dedent(answer)).write(tmp_path / "in/ada/x.ipynb")
    code = "import sys; from mgpu_utils.cli import main; sys.exit(main())"
    arguments = ["mark", str(tmp_path / "in"), "--out", str(tmp_path / "g.csv"), "--root", str(course)]
    marking = subprocess.Popen([sys.executable, "-c", code, *arguments], env=os.environ | {"TMPDIR": str(scratch)})
    try:
        while not started.exists():
            assert marking.poll() is None, "it ended before the answer ran"
            time.sleep(0.05)
        family = [psutil.Process(int(pid)) for pid in started.read_text().split()]
        assert list(scratch.glob("mgpu-mark-*"))
        marking.send_signal(signal.SIGTERM)
        assert marking.wait() == 130
        assert [process for process in family if process.is_running()] == []
        assert list(scratch.iterdir()) == []
    finally:
        kill_tree(marking.pid)
        for pid in started.read_text().split() if started.exists() else ():
            kill_tree(int(pid))


def told_twice(number: signal.Signals, tidied: list[str]) -> None:
    with ending_as_at_ctrl_c():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            tidied.append(number.name)


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGHUP on Windows")
def test_signals_that_end_a_command_interrupt_it_once_and_then_mean_what_they_did() -> None:
    heard: list[int] = []
    tidied: list[str] = []
    before = {number: signal.signal(number, lambda n, _: heard.append(n)) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            with pytest.raises(KeyboardInterrupt):
                told_twice(number, tidied)
        assert (heard, tidied) == ([], ["SIGTERM", "SIGHUP"])
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with ending_as_at_ctrl_c():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(("size", "words"), [(770_000, "0.8 MB"), (9_960_000, "10 MB"), (812_300_000, "812 MB")])
def test_small_sizes_have_a_decimal(size: int, words: str) -> None:
    assert student_command._megabytes(size) == words
