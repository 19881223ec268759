"""The teacher's page says what the lessons say: their minutes, their exercises, their parts."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from mgpu_utils import exercises
from mgpu_utils.authoring import find_sources, generate

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
LESSONS = find_sources(ROOT, kind="lesson")
CURE = "bring docs/teaching.md up to date"


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.name)
def test_minutes_and_exercises_are_those_of_the_lesson(source: object) -> None:
    number = source.name[:2]  # type: ignore[attr-defined]
    row = re.search(rf"^\| \[{number} [^|]*\| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
    assert row, f"no row for lesson {number}"
    first = generate(source.path).cells[0].source  # type: ignore[attr-defined]
    told = re.search(r"about (\d+) minutes", first)
    assert told, "the first cell says about how many minutes a lesson takes"
    assert row[1] == told[1], CURE
    importlib.import_module(f"mgpu_utils.lesson_checks.lesson_{number}")
    minutes = sum(one.minutes for name, one in exercises._registry.items() if name.startswith(f"{number}/"))
    assert int(row[2]) == minutes, CURE


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.name)
def test_every_part_of_a_lesson_is_planned_and_they_add_up(source: object) -> None:
    number = source.name[:2]  # type: ignore[attr-defined]
    section = PAGE.partition(f"\n### {number} ")[2].partition("\n###")[0]
    line = re.search(r"^\*Minutes by part\*: (.*)\.$", section, re.MULTILINE)
    assert line, f"lesson {number} has no minutes by part"
    planned = {name: int(minutes) for name, minutes in re.findall(r"(?:^|· )(.+?) (\d+)(?= ·|$)", line[1])}
    cells = [cell for cell in generate(source.path).cells if cell.cell_type == "markdown"]  # type: ignore[attr-defined]
    parts = [" + ".join(found) for cell in cells if (found := re.findall(r"^## +(.+)$", cell.source, re.MULTILINE))]
    assert set(planned) == {"Before the claim", *parts}, CURE
    minutes = int(re.search(r"about (\d+) minutes", cells[0].source)[1])  # type: ignore[index]
    assert abs(sum(planned.values()) - minutes) <= len(planned) / 2, "each part is rounded, and no more"
