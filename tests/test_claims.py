"""docs/claims.md: what is read from the lessons, what a run adds, and when the check turns red."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgpu_utils import claims
from mgpu_utils.authoring import find_sources
from mgpu_utils.claims import PAGE, Measurement, build_page, machine_words, read_claims, read_page, stale_claims
from mgpu_utils.cli import main
from mgpu_utils.lesson_source import AuthoringError
from mgpu_utils.notebook_checks import find_problems

ROOT = Path(__file__).resolve().parent.parent
LESSON = """# %% [markdown]
# # Add numbers

# %% [markdown]
# ## The claim
#
# > Two and two are
# > `4 | 5`.
#
# Do you believe it?

# %% tags=["nbval-check-output"]
total = 2 + 2
total

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
print("2 + 2 =", total)
print("measured once | here")

# %% [markdown]
# **Half true.** They are four,
# and never five.
#
# More words, which the page does not want.
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "sources/lessons").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "sources/lessons/03_add.py").write_text(LESSON)
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is written without running a lesson."""
    monkeypatch.setattr(claims, "measure_claim", lambda claim, timeout: Measurement("2 + 2 = 4", "a machine"))


def replace_in_lesson(course: Path, old: str, new: str) -> None:
    path = course / "sources/lessons/03_add.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_claim_and_verdict_are_read_from_the_source(course: Path) -> None:
    (claim,) = read_claims(course)
    assert claim.claim == "Two and two are `4 | 5`."
    assert (claim.verdict, claim.sentence) == ("Half true", "They are four, and never five.")
    assert claim.link == "../notebooks/03_add.ipynb#cell-id=verdict-on-the-claim_01"


def test_a_run_adds_the_line_that_the_verdict_cell_prints_and_the_machine_without_its_name(course: Path) -> None:
    assert main(["notebooks", "claims", "--root", str(course)]) == 0
    rows, measured = read_page(course / PAGE)
    assert rows["03"]["verdict"] == "**Half true.** They are four, and never five."
    assert measured["03"].line == "2 + 2 = 4 measured once | here"
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d, PyTorch [\d.]+, Python [\d.]+, \d+ CPU cores?, (no|\d+) GPUs?", measured["03"].machine
    )


def test_refreshing_the_words_keeps_the_numbers_and_measuring_one_lesson_keeps_the_others(
    course: Path, quick: None
) -> None:
    (course / "sources/lessons/04_again.py").write_text(LESSON)
    assert build_page(course)
    replace_in_lesson(course, "never five", "not six")
    assert build_page(course, run=False)
    assert "not six" in (course / PAGE).read_text()
    before = read_page(course / PAGE)[1]
    assert before == {"03": Measurement("2 + 2 = 4", "a machine"), "04": Measurement("2 + 2 = 4", "a machine")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "measure_claim", lambda claim, timeout: Measurement("new", "another machine"))
        build_page(course, ["04"])
    assert read_page(course / PAGE)[1] == before | {"04": Measurement("new", "another machine")}
    assert not build_page(course, run=False)


def test_a_lesson_that_was_not_run_yet_says_so(course: Path) -> None:
    assert build_page(course, run=False)
    assert "| not measured yet |" in (course / PAGE).read_text()
    assert stale_claims(course) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# > Two and two", "# > Three and two", "the claim of lesson 03"),
        ("**Half true.**", "**False.**", "the verdict of lesson 03"),
        ("and never five", "and never six", "the verdict of lesson 03"),
        ('# %% tags=["verdict"]', '# %% tags=["verdict"] id="here"', "the link of lesson 03"),
    ],
)
def test_the_check_fails_when_words_on_the_page_are_not_those_of_the_source(
    course: Path, quick: None, old: str, new: str, told: str
) -> None:
    build_page(course)
    assert not [problem for problem in find_problems(course) if problem.notebook == PAGE]
    replace_in_lesson(course, old, new)
    (problem,) = [problem for problem in find_problems(course) if problem.notebook == PAGE]
    assert told in str(problem)
    assert "Cure: mgpu notebooks claims --keep-numbers" in str(problem)


def test_measured_numbers_are_not_compared(course: Path, quick: None) -> None:
    build_page(course)
    page = course / PAGE
    page.write_text(page.read_text().replace("2 + 2 = 4", "2 + 2 = 4.001"))
    assert stale_claims(course) == []


def test_a_missing_page_a_missing_row_and_a_row_too_many_are_found(course: Path, quick: None) -> None:
    assert stale_claims(course) == ["is missing"]
    build_page(course)
    (course / "sources/lessons/03_add.py").rename(course / "sources/lessons/04_add.py")
    assert stale_claims(course) == ["has no row for lesson 04", "lesson 03 has a row, and no source with a claim"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# > Two and two are\n# > `4 | 5`.\n", "# They are.\n", "no claim is quoted"),
        ("**Half true.**", "Half true.", "begins with **True.**"),
        ("**Half true.** They are four,\n# and never five.", "**Half true.**", "begins with **True.**"),
        ("**Half true.**", "**Partly.**", "begins with **True.**"),
        ('tags=["verdict"]', "tags=[]", "0 code cells are tagged"),
        ('tags=["nbval-check-output"]', 'tags=["verdict"]', "2 code cells are tagged"),
        ("# ## The claim", "# ## The saying", "0 cells begin with '## The claim'"),
    ],
)
def test_a_lesson_of_another_form_is_refused_by_name(course: Path, old: str, new: str, told: str) -> None:
    replace_in_lesson(course, old, new)
    with pytest.raises(AuthoringError, match=r"03_add\.py: ") as error:
        read_claims(course)
    assert told in str(error.value)
    assert any(told in str(problem) for problem in find_problems(course))


def test_a_verdict_that_prints_nothing_is_refused(course: Path) -> None:
    replace_in_lesson(course, 'print("2 + 2 =", total)\nprint("measured once | here")', "total")
    with pytest.raises(AuthoringError, match="prints nothing"):
        build_page(course)


def test_the_page_of_the_course_has_every_step_with_a_measured_number() -> None:
    numbers = [source.name[:2] for source in find_sources(ROOT, kind="lesson")]
    rows, measured = read_page(ROOT / PAGE)
    assert list(rows) == [number for number in numbers if number != "00"]
    assert sorted(measured) == sorted(rows)
    assert len(rows) == 10


def test_the_machine_is_told_without_host_user_or_path() -> None:
    import getpass
    import socket

    words = machine_words()
    assert "/" not in words
    assert not any(word == name for name in (socket.gethostname(), getpass.getuser()) for word in words.split())
