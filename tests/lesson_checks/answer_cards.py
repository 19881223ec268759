"""What a check's card has to say about a wrong answer."""

from __future__ import annotations

from typing import Any


def assert_wrong(card: Any, words: str) -> None:
    """The card calls the answer wrong, and says these words, however they are broken into lines."""
    assert card.kind == "wrong", card
    assert words.casefold() in " ".join(str(card).split()).casefold(), card
