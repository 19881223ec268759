"""`mgpu student` and `mgpu mark` as a teacher types them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from short_course import HandIn, make_course

from mgpu_utils.classroom import mark_command, student_command


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
        (["mark", ".", "--out", "g.csv", "--lesson", "77"], "no source is called '77'"),
        (["student", "--out", "x", "--platform", "macos-arm64"], "go with --offline"),
        (["student", "--out", "x", "--nbgrader", "--offline"], "leave --offline out"),
        (["student", "--out", "x", "--offline", "--platform", "amiga"], "no pack can be made for 'amiga'"),
        (["student", "--out", ".", "--nbgrader", "77"], "no source is called '77'"),
    ],
)
def test_wrong_input_gets_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_course(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        mgpu(*arguments)
