"""The learner's file keeps every entry, old and new, whoever else writes, and is shown, exported and forgotten."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_utils import progress
from mgpu_utils.file_lock import locked
from mgpu_utils.progress_command import add_parser
from mgpu_utils.progress_map import TITLES, my_progress

OLD_FILE = {
    "version": 1,
    "predictions": {"05/claim": {"answer": "yes", "unit": "", "revealed": True}},
    "checks": {"05/shapes": {"attempts": 3, "done": True, "hints": 1}},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MGPU_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(progress, "_unsaved", {})
    return tmp_path / "home"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The time the file is told; a test sets its one element."""
    at = ["2030-01-01T10:00:00+00:00"]
    monkeypatch.setattr(progress, "now", lambda: at[0])
    return at


def stored(home: Path) -> dict[str, dict[str, dict[str, object]]]:
    content: dict[str, dict[str, dict[str, object]]] = json.loads((home / "progress.json").read_text())
    return content


def put(home: Path, content: object) -> None:
    home.mkdir(exist_ok=True)
    (home / "progress.json").write_text(json.dumps(content))


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(["progress", *arguments])
    return int(options.handler(options))


def test_two_notebooks_that_write_at_once_lose_nothing(home: Path) -> None:
    code = (
        "import sys; from mgpu_utils import progress\n"
        "for number in range(40):\n"
        "    assert progress.record('checks', f'97/{sys.argv[1]}-{number}', {'attempts': 1})\n"
        "    progress.update('checks', '97/shared', lambda e: {**e, 'attempts': e.get('attempts', 0) + 1})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b", "c")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    checks = stored(home)["checks"]
    assert len(checks) == 3 * 40 + 1
    assert checks["97/shared"]["attempts"] == 3 * 40


def test_a_notebook_killed_while_it_holds_the_lock_blocks_nobody(home: Path) -> None:
    home.mkdir()
    code = (
        "import sys, time; from pathlib import Path; from mgpu_utils.file_lock import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)\n"
    )
    lock = home / ".progress.lock"
    holder = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(TimeoutError, match="held by another process"), locked(lock, patience=0.05):
        pass
    holder.kill()
    holder.wait()
    assert progress.record("checks", "97/split", {"attempts": 1})


def test_a_file_of_the_first_version_is_read_and_grows_times(home: Path, clock: list[str]) -> None:
    put(home, OLD_FILE)
    assert progress.read()["checks"]["05/shapes"]["done"] is True
    assert "1 of 3 exercises right" in repr(my_progress())
    progress.update("checks", "05/shapes", lambda entry: {**entry, "attempts": 4})
    kept = stored(home)
    assert kept["version"] == 2
    assert kept["checks"]["05/shapes"] == OLD_FILE["checks"]["05/shapes"] | {  # type: ignore[index]
        "attempts": 4,
        "first": clock[0],
        "last": clock[0],
    }
    assert kept["predictions"] == OLD_FILE["predictions"]


def test_what_a_later_version_added_is_kept(home: Path) -> None:
    put(home, {"version": 7, "checks": {"05/shapes": {"mood": "fine"}}, "badges": {"x": {"y": 1}}})
    progress.update("checks", "05/shapes", lambda entry: {**entry, "attempts": 1})
    kept = stored(home)
    assert (kept["version"], kept["badges"]) == (7, {"x": {"y": 1}})
    assert kept["checks"]["05/shapes"]["mood"] == "fine"


def test_time_between_answers_is_added_up_and_breaks_are_not(home: Path, clock: list[str]) -> None:
    for moment in ("10:00:00", "10:05:00", "11:00:00", "11:01:00"):
        clock[0] = f"2030-01-01T{moment}+00:00"
        progress.record("checks", "05/shapes", {"attempts": 1})
    assert stored(home)["lessons"]["05"]["seconds"] == 6 * 60
    assert stored(home)["checks"]["05/shapes"]["first"] == "2030-01-01T10:00:00+00:00"
    assert "6 min" in repr(my_progress())


def test_a_clock_that_was_set_back_takes_no_time_away(home: Path, clock: list[str]) -> None:
    for moment in ("10:00:00", "10:05:00", "09:00:00"):
        clock[0] = f"2030-01-01T{moment}+00:00"
        progress.record("checks", "05/shapes", {})
    assert stored(home)["lessons"]["05"]["seconds"] == 5 * 60


def test_what_could_not_be_written_is_written_with_the_next_answer(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MGPU_HOME", str(tmp_path / "file" / "home"))
    assert not progress.record("checks", "05/shapes", {"attempts": 1})
    assert progress.read()["checks"]["05/shapes"]["attempts"] == 1
    monkeypatch.setenv("MGPU_HOME", str(home))
    assert progress.record("checks", "05/scatter", {"attempts": 1})
    assert set(stored(home)["checks"]) == {"05/shapes", "05/scatter"}


def test_the_map_shows_ten_steps_and_what_was_done_in_each(home: Path) -> None:
    put(home, OLD_FILE | {"lessons": {"05": {"seconds": 600}}})
    shown = my_progress()
    text = repr(shown)
    assert len(TITLES) == 11
    assert all(f" {number} {title}" in text for number, title in TITLES.items())
    assert "1 of 3 exercises right, 3 attempts, 1 prediction, 10 min" in text
    assert "Nothing is sent anywhere." in text
    assert {lesson.lesson for lesson in shown.lessons if lesson.state == "begun"} == {"05"}


def test_the_map_says_in_a_notebook_what_it_says_as_text(home: Path) -> None:
    put(home, OLD_FILE)
    shown = my_progress()
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown._repr_html_()))
    for lesson in shown.lessons:
        assert f"{lesson.lesson} {lesson.title}" in words
        assert lesson.counts in words
    assert shown.summary in words
    assert 'aria-label="begun"' in shown._repr_html_()


def test_a_lesson_with_every_exercise_right_is_done(home: Path) -> None:
    right = {"attempts": 1, "done": True}
    put(home, {"checks": {"00/average": right, "00/slowest": right, "00/gone": right, "01/odd": {"attempts": None}}})
    first, second = my_progress().lessons[:2]
    assert (first.state, first.solved, first.exercises) == ("done", 2, 2)
    assert (second.state, second.solved) == ("open", 0)


def test_the_map_links_the_notebooks_that_lie_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "05_wrap_in_data_parallel.ipynb").touch()
    drawn = my_progress()._repr_html_()
    assert 'href="05_wrap_in_data_parallel.ipynb">05 Wrap it in DataParallel</a>' in drawn
    assert drawn.count("<a ") == 1


def test_the_command_finds_the_answers_from_the_courses_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MGPU_HOME")
    put_in = tmp_path / "notebooks" / ".mgpu"
    put_in.mkdir(parents=True)
    (put_in / "progress.json").write_text(json.dumps(OLD_FILE))
    (tmp_path / "docs").mkdir()
    for folder in (tmp_path, tmp_path / "notebooks", tmp_path / "docs"):
        monkeypatch.chdir(folder)
        assert command() == 0
        assert "1 of 3 exercises right, 3 attempts" in capsys.readouterr().out


def test_an_export_holds_every_entry(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home, OLD_FILE)
    progress.record("predictions", "06/why", {"answer": "=1+1", "unit": ""})
    assert command("--export", str(tmp_path / "mine.json")) == 0
    assert command("--export", str(tmp_path / "mine.csv")) == 0
    assert json.loads((tmp_path / "mine.json").read_text())["checks"] == OLD_FILE["checks"]
    rows = list(csv.DictReader((tmp_path / "mine.csv").open(newline="")))
    assert {(row["lesson"], row["kind"], row["name"]) for row in rows} == {
        ("05", "exercise", "05/shapes"),
        ("05", "prediction", "05/claim"),
        ("06", "lesson", "06"),
        ("06", "prediction", "06/why"),
    }
    assert next(row for row in rows if row["name"] == "06/why")["answer"] == "'=1+1", "no formula for a spreadsheet"
    assert "Nothing was sent anywhere." in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == ["home", "mine.csv", "mine.json"]


def test_one_lesson_is_forgotten_and_the_others_stay(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home, OLD_FILE)
    progress.record("checks", "06/log-once", {"attempts": 1})
    assert command("--reset", "05", "--yes") == 0
    assert "Forgot 2 answers and results of lesson 05." in capsys.readouterr().out
    kept = stored(home)
    assert (set(kept["checks"]), kept["predictions"], set(kept["lessons"])) == ({"06/log-once"}, {}, {"06"})
    assert command("--reset", "--yes") == 0
    assert my_progress().summary.startswith("0 of ")


def test_nothing_is_forgotten_without_a_yes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, OLD_FILE)
    with pytest.raises(ValueError, match="add --yes"):
        command("--reset")
    answers = iter(["no", "yes"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert command("--reset") == 1
    assert stored(home)["checks"] == OLD_FILE["checks"]
    assert command("--reset") == 0
    assert stored(home)["checks"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--export", "mine.xlsx"], "ends in neither"),
        (["--export", "nowhere/mine.csv"], "cannot be written: No such file"),
        (["--reset", "five"], "two digits"),
        (["--yes"], "goes with it"),
        (["--home", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        command(*arguments)


def test_a_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="inside"), locked(tmp_path / "lock"):
        raise RuntimeError("inside")
    with locked(tmp_path / "lock", patience=0):
        pass
