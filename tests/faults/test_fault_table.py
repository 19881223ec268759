"""The page of faults says what the tests prove and what was measured, and messages lead to headings that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_cases import COLLECTIVES, ON_RANKS, SIZES
from fault_table import PAGE, page
from launchers import LAUNCHERS, Ipyparallel
from measured import FAULTS, PEERS, SOAK, kept
from other_faults import ENDS, MUCH, PROVEN, VALUES
from peers import COMPARED

from mgpu_utils.troubleshooting_links import HEADINGS, more
from mgpu_utils.troubleshooting_links import PAGE as TROUBLESHOOTING

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_cases_and_the_figures_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it afresh: python tests/faults/fault_table.py"


def test_every_fault_stands_on_the_page() -> None:
    names = [case.name for case in (*ON_RANKS, *VALUES, *PROVEN)]
    assert len(names) == len(set(names)) >= 45
    text = page().partition("## The same faults")[0]
    assert all(text.count(f"| {name} |") == 1 for name in names)
    assert len(COLLECTIVES) == 8


def test_every_fault_was_measured_and_left_no_process() -> None:
    found = kept(FAULTS)["found"]
    sizes = {str(size) for size in SIZES}
    assert [case.name for case in (*ON_RANKS, *VALUES) if set(found.get(case.name, {})) != sizes] == []
    assert [case.name for case in (*MUCH, *ENDS) if not found.get(case.name)] == []
    kept_open = [name for name, one in found.items() for size in _each(one) if size["left"] != 0]
    assert kept_open == []
    # A figure of a fault that is none any more would stay unseen.
    assert set(found) == {case.name for case in (*ON_RANKS, *VALUES, *MUCH, *ENDS)}


def _each(measured: dict[str, dict[str, float]]) -> list[dict[str, float]]:
    return [measured] if "left" in measured else list(measured.values())  # type: ignore[list-item]


def test_every_tool_was_tried_with_every_fault_that_they_share() -> None:
    found = kept(PEERS)["found"]
    assert list(found) == COMPARED
    for tools in found.values():
        missing = {launcher.name for launcher in LAUNCHERS} - set(tools)
        assert missing <= {Ipyparallel.name}


def test_a_thousand_cells_lost_nothing() -> None:
    soak = kept(SOAK)
    assert soak["cells"] >= 1000
    assert soak["wrong"] == []
    assert set(soak["faults"]) <= {fault.name for fault in ON_RANKS}


def test_every_proof_is_a_test() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/**/test_*.py"))
    assert [case.test for case in PROVEN if f"def {case.test}(" not in sources] == []


@pytest.mark.parametrize("about", HEADINGS)
def test_a_message_leads_to_a_heading_that_exists(about: str) -> None:
    lines = (ROOT / TROUBLESHOOTING).read_text(encoding="utf-8").splitlines()
    assert f"### {HEADINGS[about]}" in lines
    assert more(about) == f'More: docs/troubleshooting.md, under "{HEADINGS[about]}".'
