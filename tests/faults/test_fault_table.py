"""The page of faults says what the tests prove, and messages lead to headings that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_cases import COLLECTIVES, ON_RANKS
from fault_table import PAGE, page
from other_faults import PROVEN, VALUES

from mgpu_utils.troubleshooting_links import HEADINGS, more
from mgpu_utils.troubleshooting_links import PAGE as TROUBLESHOOTING

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_cases_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it afresh: python tests/faults/fault_table.py"


def test_every_fault_stands_on_the_page_once() -> None:
    names = [case.name for case in (*ON_RANKS, *VALUES, *PROVEN)]
    assert len(names) == len(set(names)) >= 45
    assert all(page().count(f"| {name} |") == 1 for name in names)
    assert len(COLLECTIVES) == 8


def test_every_proof_is_a_test() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/**/test_*.py"))
    assert [case.test for case in PROVEN if f"def {case.test}(" not in sources] == []


@pytest.mark.parametrize("about", HEADINGS)
def test_a_message_leads_to_a_heading_that_exists(about: str) -> None:
    lines = (ROOT / TROUBLESHOOTING).read_text(encoding="utf-8").splitlines()
    assert f"### {HEADINGS[about]}" in lines
    assert more(about) == f'More: docs/troubleshooting.md, under "{HEADINGS[about]}".'
