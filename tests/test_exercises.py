"""Predictions, checks and hints: never in the way, clear in JupyterLab and as plain text."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu_utils import exercises, progress
from mgpu_utils.exercises import CheckFailed, NotAttempted, Wrong, check, exercise, hint, predict, reveal
from mgpu_utils.result_cards import Card

OPTIONS = ["yes", "half true", "no"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MGPU_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MGPU_STRICT", raising=False)
    monkeypatch.setattr(progress, "_unsaved", {})
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _split() -> Iterator[None]:
    known = dict(exercises._registry)

    @exercise("97/split", minutes=5, difficulty=1, hints=["Round up.", "See what is left."], explain="3, 3, 3 and 1.")
    def split(sizes: object) -> None:
        shares = sizes() if callable(sizes) else sizes
        if shares == "later":
            raise NotAttempted
        if not isinstance(shares, list):
            # What a failed assert raises outside of pytest, which would add its own lines.
            raise AssertionError("a list of four numbers is wanted")
        if sum(shares) != 10:
            raise Wrong(f"your shares add up to {sum(shares)}; the batch holds 10 samples")

    yield
    exercises._registry.clear()
    exercises._registry.update(known)


def without_times(entry: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in entry.items() if name not in ("first", "last", "solved")}


def stored(home: Path) -> dict[str, dict[str, dict[str, object]]]:
    content: dict[str, dict[str, dict[str, object]]] = json.loads((home / "progress.json").read_text())
    return content


def test_an_unanswered_prediction_asks_and_stores_nothing(home: Path) -> None:
    card = predict("97/claim", OPTIONS, "Is one line enough?", answer=...)
    assert card.kind == "unanswered"
    assert "Choose one of: yes, half true, no." in repr(card)
    assert not home.exists()
    assert reveal("97/claim", "half true").lines == ("The result: half true.",)


def test_a_prediction_is_shown_beside_the_result(home: Path) -> None:
    assert predict("97/claim", OPTIONS, answer="Half TRUE ").kind == "prediction"
    assert stored(home)["predictions"]["97/claim"]["answer"] == "half true"
    assert "You said half true. The result: half true. The same." in repr(reveal("97/claim", "half true"))


def test_a_number_is_compared_by_its_factor_and_keeps_its_unit() -> None:
    predict("97/faster", float, unit="times", answer=1.8)
    shown = repr(reveal("97/faster", 0.9))
    assert "You said 1.8 times. The result: 0.9 times. You were off by a factor of 2." in shown


def test_what_was_said_before_the_result_stays_after_it() -> None:
    predict("97/claim", OPTIONS, answer="yes")
    predict("97/claim", OPTIONS, answer="no")
    reveal("97/claim", "half true")
    assert "You said no before you saw the result" in repr(predict("97/claim", OPTIONS, answer="half true"))
    assert "You said no." in repr(reveal("97/claim", "half true"))


@pytest.mark.parametrize(("kind", "answer"), [(OPTIONS, "maybe"), (float, "fast"), (int, 1.5), (float, float("nan"))])
def test_a_prediction_that_cannot_be_read_is_not_stored_and_says_why(home: Path, kind: type, answer: object) -> None:
    card = predict("97/claim", kind, answer=answer)
    assert card.kind == "unanswered"
    assert f"{answer}" in repr(card)
    assert not home.exists()


@pytest.mark.parametrize("kind", [["yes"], ["yes", "yes"], "yes", list])
def test_a_prediction_with_no_real_choice_is_the_authors_mistake(kind: type) -> None:
    with pytest.raises(ValueError, match="97/claim"):
        predict("97/claim", kind)


def test_a_right_answer_is_green_and_explained(home: Path) -> None:
    card = check("97/split", [3, 3, 3, 1])
    assert card.passed
    assert "3, 3, 3 and 1." in repr(card)
    assert without_times(stored(home)["checks"]["97/split"]) == {"attempts": 1, "done": True}


def test_a_wrong_answer_is_told_in_what_respect_and_raises_nothing(home: Path) -> None:
    card = check("97/split", [3, 3, 3, 3])
    assert card.kind == "wrong"
    assert "Your shares add up to 12; the batch holds 10 samples." in repr(card)
    asserted = check("97/split", 10)
    assert asserted.kind == "wrong"
    assert "A list of four numbers is wanted." in repr(asserted)
    assert without_times(stored(home)["checks"]["97/split"]) == {"attempts": 2, "done": False}


def placeholder() -> list[int]:
    # YOUR CODE HERE
    ...
    # (four numbers)


def to_do() -> None:
    raise NotImplementedError


@pytest.mark.parametrize("answer", [..., None, NotImplemented, [3, ...], {"a": ...}, placeholder, to_do, "later"])
def test_an_exercise_left_alone_is_neutral(home: Path, answer: object) -> None:
    card = check("97/split", answer)
    assert card.kind == "open"
    assert "About 5 minutes, difficulty 1 of 3." in repr(card)
    assert not home.exists()


def breaks() -> list[int]:
    return {}["weights"]


def test_an_exception_in_the_learners_code_is_shown_with_its_line() -> None:
    card = check("97/split", breaks)
    assert card.kind == "error"
    assert "KeyError: 'weights'" in repr(card)
    assert 'in your `breaks`, at `return {}["weights"]`' in repr(card)


@pytest.mark.parametrize("answer", [..., [3, 3, 3, 3], breaks])
def test_strict_runs_fail_at_every_check_that_is_not_green(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    monkeypatch.setenv("MGPU_STRICT", "1")
    with pytest.raises(CheckFailed, match="97/split"):
        check("97/split", answer)
    assert check("97/split", [3, 3, 3, 1]).passed


def test_hints_come_one_at_a_time_and_are_remembered(home: Path) -> None:
    assert "Round up." in repr(hint("97/split"))
    assert "See what is left." in repr(hint("97/split"))
    assert "That was the last one." in repr(hint("97/split"))
    assert "Hint 1 of 2" in repr(hint("97/split", 1))
    assert "numbered from 1 to 2" in repr(hint("97/split", 3))
    check("97/split", [1])
    assert stored(home)["checks"]["97/split"]["hints"] == 2


def test_an_unknown_exercise_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=re.escape("no exercise '97/spilt'; did you mean '97/split'?")):
        check("97/spilt", 1)
    with pytest.raises(ValueError, match="no exercise 'nonsense'"):
        hint("nonsense")


def test_the_checks_of_a_lesson_are_found_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu_utils import lesson_checks

    text = (
        "from mgpu_utils.exercises import exercise\n\n@exercise('96/one', minutes=1, difficulty=1)\ndef one(x): ...\n"
    )
    (tmp_path / "lesson_96.py").write_text(text)
    monkeypatch.setattr(lesson_checks, "__path__", [*lesson_checks.__path__, str(tmp_path)])
    assert check("96/one", 1).passed
    sys.modules.pop("mgpu_utils.lesson_checks.lesson_96")


@pytest.mark.parametrize("arguments", [{"name": "split"}, {"difficulty": 4}])
def test_a_registration_that_cannot_be_found_later_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="exercise"):
        exercise(**({"name": "97/x", "minutes": 1, "difficulty": 1} | arguments))  # type: ignore[arg-type]


def test_a_damaged_file_is_set_aside_and_work_goes_on(home: Path) -> None:
    check("97/split", [1])
    (home / "progress.json").write_text('{"checks": {"97/spl')
    assert check("97/split", [3, 3, 3, 1]).passed
    assert stored(home)["checks"]["97/split"]["done"] is True
    assert (home / "progress.damaged.json").read_text().startswith('{"checks"')


@pytest.mark.parametrize("content", ["[]", '{"checks": 3, "predictions": {"97/claim": 4}}', "\ud800", ""])
def test_any_content_of_the_file_is_survived(home: Path, content: str) -> None:
    home.mkdir()
    (home / "progress.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert predict("97/claim", OPTIONS, answer="yes").kind == "prediction"
    assert check("97/split", [3, 3, 3, 1]).passed


def test_a_folder_that_cannot_be_written_to_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MGPU_HOME", str(tmp_path / "file" / "home"))
    assert "Kept until this kernel ends" in repr(predict("97/claim", OPTIONS, answer="yes"))
    assert "You said yes." in repr(reveal("97/claim", "no"))
    assert check("97/split", [3, 3, 3, 1]).passed
    assert "See what is left." in repr([hint("97/split"), hint("97/split")][1])


def test_saving_leaves_the_file_its_lock_and_nothing_else(home: Path) -> None:
    for shares in ([1], [2], [3, 3, 3, 1]):
        check("97/split", shares)
    assert sorted(os.listdir(home)) == [".progress.lock", "progress.json"]


def test_answers_lie_beside_the_notebook_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MGPU_HOME")
    monkeypatch.chdir(tmp_path)
    predict("97/claim", OPTIONS, answer="yes")
    assert (tmp_path / ".mgpu" / "progress.json").is_file()


def test_cards_say_the_same_with_and_without_colour() -> None:
    for card in (check("97/split", [3, 3, 3, 1]), check("97/split", [1]), check("97/split", ...), hint("97/split")):
        words = re.sub(r"<[^>]+>", "", card._repr_html_()).replace("&quot;", '"')
        for line in (card.word, *card.lines, card.footer):
            assert line.replace("`", "") in words
        first = repr(card).splitlines()[0]
        assert re.match(r"\S \S", first), "a symbol and a word, whatever the colour"
    assert "color:inherit" in Card("right", "97/x")._repr_html_()


def test_an_answer_cannot_put_markup_into_the_page() -> None:
    drawn = predict("97/claim", OPTIONS, "<b>?", answer="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in drawn
    assert "<b>" not in drawn


def test_code_below_the_dots_is_an_answer() -> None:
    def right() -> list[int]:
        # YOUR CODE HERE
        ...
        return [3, 3, 3, 1]

    assert check("97/split", right).kind == "right"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check("97/split"), r'mgpu\.check\("97/split", sizes\) is how .*missing'),
        (lambda: check("97/split", [1], [2]), "too many positional arguments"),
        (lambda: check(5, print), "an exercise is named like '05/scatter', not 5"),
        (lambda: hint(None), "an exercise is named like '05/scatter', not None"),
        (lambda: hint("97/split", "x"), r"hints are numbered from 1.*not .x."),
        (lambda: hint("nonsense"), "there is no exercise 'nonsense'"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_from_a_wrong_answer(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
