"""Which names of a function are known to differ from those of the rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mgpu_utils.shadowed_names import shadowed


def defined(code: str) -> Any:
    """What a cell calls `it`; each call is a cell of its own."""
    cell: dict[str, Any] = {"torch": torch}
    exec(code, cell)
    return cell["it"]


SAME = {
    "a number": "it = 5",
    "nan": "it = float('nan')",
    "a device": "it = torch.device('cpu')",
    "a list": "it = [1, {'a': (2.0, None)}]",
    "a tensor": "it = torch.arange(6).view(2, 3)",
    "a module": "torch.manual_seed(0); it = torch.nn.Linear(2, 2)",
    "a function": "def it(x):\n    return [i + 1 for i in x]",
    "a class": "class it:\n    def go(self):\n        return lambda: 3",
    "an object that cannot be compared": "it = torch.Generator()",
    "a tensor too large to compare": "it = torch.rand(1_000_001)",
}
OTHER = {
    "another number": ("it = 5", "it = 6"),
    "another type": ("it = 5", "it = [5]"),
    "a name for another use": ("it = torch.ones(2)", "it = torch.nn.Linear(1, 1)"),
    "other values": ("it = torch.zeros(2)", "it = torch.ones(2)"),
    "another shape": ("it = torch.zeros(2_000_000)", "it = torch.zeros(2_000_001)"),
    "another length": ("it = [1]", "it = [1, 2]"),
    "another key": ("it = {'a': 1}", "it = {'b': 1}"),
    "a trained model": (
        "torch.manual_seed(0); it = torch.nn.Linear(2, 2)",
        "torch.manual_seed(1); it = torch.nn.Linear(2, 2)",
    ),
    "another function": ("def it(x):\n    return x + 1", "def it(x):\n    return x + 2"),
    "another inner function": ("def it():\n    return lambda: 1", "def it():\n    return lambda: 2"),
    "another class": ("class it:\n    def go(self): return 1", "class it:\n    def go(self): return 2"),
}


@pytest.mark.parametrize("code", SAME.values(), ids=SAME)
def test_equal_values_are_not_told_of_wherever_they_were_made(code: str) -> None:
    assert shadowed({"it": defined(code)}, {"it": defined("\n\n" + code)}) == []


@pytest.mark.parametrize(("one", "two"), OTHER.values(), ids=OTHER)
def test_other_values_are_told_of(one: str, two: str) -> None:
    assert shadowed({"it": defined(one)}, {"it": defined(two)}) == ["it"]


def test_only_names_of_both_count_and_not_those_that_tell_a_rank_who_it_is() -> None:
    brought = {"rank": 7, "device": "meta", "_private": 1, "exit": 1, "here": 1, "model": nn.Linear(1, 1), "lr": 0.1}
    own = {"rank": 0, "device": "cpu", "_private": 2, "exit": 2, "there": 2, "model": nn.Flatten(), "lr": 0.2}
    assert shadowed(brought, own, hidden={"exit"}) == ["lr", "model"]
