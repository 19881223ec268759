"""What learners really answer in lesson 07, and what its checks tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from answer_cards import assert_wrong

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup


@pytest.mark.parametrize("rate", [0.04, 0.05])
def test_right_rates_pass(rate: float, two_ranks: RankGroup) -> None:
    card = check("07/rate", rate, ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0.01, "the rate is the old one, with 4 times fewer steps"),
        (0.0025, "your rate is smaller than before"),
        (0.02, "the right direction, but the steps are still too short"),
        (0.4, "they jump over the goal"),
    ],
)
def test_wrong_rates_are_told_what_is_wrong(rate: float, words: str, two_ranks: RankGroup) -> None:
    card = check("07/rate", rate, ranks=two_ranks)
    assert_wrong(card, words)
    assert "in the last epoch your loss is" in " ".join(str(card).split()).casefold()


@pytest.mark.parametrize(("answer", "words"), [(-0.1, "above 0"), ("0.04", "one number"), (float("nan"), "one number")])
def test_what_is_no_rate_is_told_so(answer: Any, words: str) -> None:
    assert_wrong(check("07/rate", answer, ranks=None), words)


BYTES_RIGHT: dict[str, Callable[..., Any]] = {
    "shared": lambda parameters, world_size, zero: 8 * parameters / (world_size if zero else 1),
    "rounded up": lambda parameters, world_size, zero: -(-8 * parameters // world_size) if zero else 8 * parameters,
    "with step counts": lambda parameters, world_size, zero: 8 * parameters / (world_size if zero else 1) + 4,
}
BYTES_WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "numbers": (lambda p, n, zero: 2 * p / (n if zero else 1), "you counted numbers"),
    "one mean": (lambda p, n, zero: 4 * p / (n if zero else 1), "that is one running mean"),
    "with parameters": (lambda p, n, zero: 12 * p / (n if zero else 1), "includes the parameters themselves"),
    "with gradients": (lambda p, n, zero: 16 * p / (n if zero else 1), "includes parameters and gradients"),
    "never shared": (lambda p, n, zero: 8 * p, "with ZeRO: that is more than one rank holds"),
    "always shared": (lambda p, n, zero: 8 * p / n, "without ZeRO: that is too little; every rank holds the whole"),
    "all ranks": (lambda p, n, zero: 8 * p if zero else 8 * p * n, "that is what all ranks hold together"),
    "shared twice": (lambda p, n, zero: 8 * p / n / n if zero else 8 * p, "divided by the number of ranks twice"),
    "sign": (lambda p, n, zero: 8 * p if zero else 8 * p / n, "without ZeRO"),
    "no return": (lambda p, n, zero: None, "returned nothing"),
    "a word": (lambda p, n, zero: "8 p", "a plain number of bytes is wanted"),
    "made up": (lambda p, n, zero: 7 * p, "that is not what a rank holds"),
}


@pytest.mark.parametrize("answer", BYTES_RIGHT.values(), ids=BYTES_RIGHT)
def test_right_bytes_pass(answer: Any) -> None:
    card = check("07/bytes", answer)
    assert card.passed, card


@pytest.mark.parametrize(("answer", "words"), BYTES_WRONG.values(), ids=BYTES_WRONG)
def test_wrong_bytes_are_told_what_is_wrong(answer: Any, words: str) -> None:
    assert_wrong(check("07/bytes", answer), words)


@pytest.mark.parametrize("name", ["07/rate", "07/bytes"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    assert check(name, ...).kind == "open"
    assert hint(name).kind == "hint"
    assert len({str(hint(name, number)) for number in (1, 2, 3)}) == 3
