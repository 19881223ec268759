"""The site of the course: its pages, links, outputs and search; what is run anew; what stops it."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from made_sites import LESSON, REFERENCE, ROOT, Made, small_site, whole_site
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pygments.token import Keyword, Name

import mgpu_utils
from mgpu_utils.authoring import find_sources
from mgpu_utils.benchmark import settings as settings_module
from mgpu_utils.book import BookError, build
from mgpu_utils.book.build import STAMP, build_site
from mgpu_utils.book.cell_colours import CellLexer
from mgpu_utils.book.executed import Store
from mgpu_utils.book.pages import Pages
from mgpu_utils.book.recorded import VARIABLE, use_recorded
from mgpu_utils.book.site_check import find_faults
from mgpu_utils.cli import main
from mgpu_utils.lesson_source import AuthoringError


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return whole_site(tmp_path_factory)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return small_site(tmp_path_factory)


def test_every_lesson_benchmark_and_text_has_a_page_that_the_first_one_leads_to(site: Made) -> None:
    sources = find_sources(ROOT)
    wanted = {source.notebook.relative_to(ROOT).with_suffix(".html").as_posix() for source in sources}
    wanted |= {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    wanted |= {"CONTRIBUTING.html", "CHANGELOG.html", "benchmarks/reference/README.html", "api/index.html"}
    assert len(sources) >= 17
    found = set(re.findall(r'<a class="reference internal" href="([^"#]+)"', (site.out / "index.html").read_text()))
    assert wanted <= found
    assert all((site.out / page).is_file() for page in wanted)


def test_every_link_and_anchor_of_the_site_resolves_and_nothing_comes_from_the_network(site: Made) -> None:
    assert find_faults(site.out) == []
    # The anchors that other pages, GitHub and JupyterLab use.
    assert 'id="all_reduce"' in (site.out / "docs/glossary.html").read_text()
    claims = (site.out / "docs/claims.html").read_text()
    anchors = re.findall(r'href="\.\./(notebooks/05[^"#]*)#([^"]+)"', claims)
    assert anchors
    assert all(f'id="{anchor}"' in (site.out / page).read_text() for page, anchor in anchors)


def test_the_learner_version_is_shown_unless_solutions_are_asked_for(site: Made, small: Made, tmp_path: Path) -> None:
    everything = "".join(site.text(path.relative_to(site.out).as_posix()) for path in site.out.rglob("*.html"))
    assert everything.count("# YOUR CODE HERE") >= 20
    assert "1234567" not in small.text("notebooks/00_count.html")
    solved = Store(tmp_path / "kept", solutions=True, execute=False).show(small.root, find_sources(small.root, ["00"]))
    Pages(small.root, tmp_path / "pages", tmp_path / "files").write(solved, solutions=True)
    page = (tmp_path / "pages/notebooks/00_count.ipynb").read_text()
    assert "answer = 1234567" in page
    assert "not for learners" in page


def test_the_search_finds_words_of_lessons_texts_and_the_reference(site: Made) -> None:
    index = (site.out / "searchindex.js").read_text()
    found = json.loads(index[index.index("{") : index.rindex("}") + 1])
    for word, page in (
        ("scatter", "notebooks/05_wrap_in_data_parallel"),
        ("sigkil", "docs/troubleshooting"),
        ("timeout", "api/ranks"),
        ("bandwidth", "benchmarks/04_measure_collectives"),
    ):
        pages = set()
        for numbers in (found["terms"].get(word, []), found["titleterms"].get(word, [])):
            pages |= {found["docnames"][number] for number in (numbers if isinstance(numbers, list) else [numbers])}
        assert page in pages, word


def test_the_reference_explains_every_public_name_by_its_docstring(site: Made) -> None:
    overview = (site.out / "api/index.html").read_text()
    linked = set(re.findall(r'href="\w+\.html#mgpu_utils\.(\w+)"', overview))
    assert set(mgpu_utils.__all__) - {"plots"} <= linked
    assert "plots" in linked or "plots.html#mgpu_utils.plots.throughput" in overview
    for name, module in mgpu_utils._HOME_OF.items():
        value = getattr(mgpu_utils, name)
        if callable(value):
            first = (value.__doc__ or "").strip().split("\n")[0].replace("`", "")
            assert first, name
            assert first[:40] in site.text(f"api/{module}.html"), name


def test_pages_that_were_not_run_say_so(site: Made) -> None:
    assert "Not run for this page" in site.text("notebooks/05_wrap_in_data_parallel.html")
    assert not any("running" in line for line in site.told)


def test_a_lesson_is_shown_with_what_it_printed_raised_and_drew(small: Made) -> None:
    page = small.text("notebooks/00_count.html")
    assert "forty 42" in page
    assert "ValueError: this was to be expected" in page
    assert re.search(r"Run for this page on 20\d\d-\d\d-\d\d, PyTorch", page)
    raw = (small.out / "notebooks/00_count.html").read_text()
    (image,) = re.findall(r"<img[^>]*_images/[^>]*>", raw)
    assert "Three points" in image, "the figure has lost its alternative text"


@pytest.mark.parametrize("magic", ["%%ranks", "%%rank 0", "%%ranks --timeout 5"])
def test_a_cell_for_the_ranks_is_coloured_as_python(small: Made, magic: str) -> None:
    assert "highlight-ipython3" in (small.out / "notebooks/00_count.html").read_text(), "the lexer that is replaced"
    tokens = list(CellLexer().get_tokens(f"{magic}\ndef twice(x):\n    return 2 * x\n"))
    assert (Keyword, "def") in tokens
    assert (Name.Function, "twice") in tokens


def test_a_page_tells_nothing_of_the_folders_of_the_machine_that_ran_it(small: Made) -> None:
    page = small.text("notebooks/00_count.html")
    assert re.search(r"here: \.[/\\]notebooks\n", page)
    assert re.search(r"torch: site-packages[/\\]torch\n", page)
    everything = "".join(path.read_text() for path in small.out.rglob("*.html"))
    assert small.root.name not in everything


def test_a_slider_which_only_moves_in_jupyterlab_is_left_out(small: Made) -> None:
    page = small.text("notebooks/00_count.html")
    assert "a slider" in page
    assert "IntSlider(value" not in page


def test_a_benchmark_shows_the_recorded_results_with_machine_and_date(small: Made) -> None:
    page = small.text("benchmarks/02_scale_out.html")
    assert REFERENCE is not None
    told = json.loads((REFERENCE / "scale_out/environment.json").read_text())
    assert f"{told['cores_usable']} CPU cores" in page
    records = (REFERENCE / "scale_out/records.jsonl").read_text().splitlines()
    assert json.loads(records[0])["measured_at"][:10] in page
    assert f"all {len(records)} runs went well" in page
    rows = list(csv.DictReader((REFERENCE / "scale_out/summary.csv").open()))
    assert f"{float(rows[-1]['speedup']):.2f}" in page
    assert "<img" in (small.out / "benchmarks/02_scale_out.html").read_text()


def test_links_to_the_first_page_to_files_and_to_folders_work_on_the_site(small: Made) -> None:
    assert find_faults(small.out) == []
    lesson = (small.out / "notebooks/00_count.html").read_text()
    assert {"../index.html", "../docs/words.html#rank", "#cell-id=counting_01"} <= set(
        re.findall(r'href="([^"]+)"', lesson)
    )
    front = (small.out / "index.html").read_text()
    assert 'href="docs/words.html#rank"' in front
    assert re.search(r'href="_downloads/[^"]+/laptop\.yaml"', front)
    assert "[as it is](nowhere.md)" in front


def test_what_has_not_changed_is_not_run_again_and_what_has_is(small: Made) -> None:
    small.told.clear()
    assert small.again() is False
    assert small.told == []
    lesson = small.root / "sources/lessons/00_count.py"
    try:
        lesson.write_text(LESSON.replace("40 + 2", "40 + 3"))
        store = Store(small.work / "executed", tell=small.told.append)
        shown = store.show(small.root, find_sources(small.root))
    finally:
        lesson.write_text(LESSON)
    assert small.told == ["00_count: running it"]
    assert "forty 43" in str(shown[0].notebook)
    assert len(list((small.work / "executed").glob("*.ipynb"))) == 2, "the old output is still kept"


def test_a_link_that_leads_nowhere_stops_it_and_the_site_stays(
    small: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (small.out / STAMP).read_text()
    words = small.root / "docs/words.md"
    kept = words.read_text()
    try:
        words.write_text(f"{kept}\nSee [this](../notebooks/00_count.ipynb#no-such-place).\n")
        arguments = ["--root", small.root, "--out", small.out, "--work", tmp_path, "--no-execute"]
        assert main(["book", *map(str, arguments)]) == 2
    finally:
        words.write_text(kept)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("mgpu book: the site was not made because of a warning: docs/words.md:9: ")
    assert "no-such-place" in told
    assert (small.out / STAMP).read_text() == before


def test_a_lesson_that_fails_is_named_with_its_cell(small: Made, tmp_path: Path) -> None:
    lesson = small.root / "sources/lessons/00_count.py"
    try:
        lesson.write_text(LESSON.replace("40 + 2", "40 / 0"))
        with pytest.raises(AuthoringError, match="00_count: cell 'counting_01' failed: ZeroDivisionError"):
            build_site(small.root, small.out, tmp_path, tell=lambda line: None)
    finally:
        lesson.write_text(LESSON)


def test_results_that_lack_runs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert REFERENCE is not None
    suite = tmp_path / "mine"
    shutil.copytree(REFERENCE, suite)
    records = suite / "tune/records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:-2]))
    monkeypatch.setenv(VARIABLE, str(suite))
    # Given back afterwards: the machine of the results stands in for this one.
    for name in ("hardware", "environment"):
        monkeypatch.setattr(settings_module, name, getattr(settings_module, name))
    with pytest.raises(BookError, match=rf"mine/tune lacks 2 of the {len(lines)} runs"):
        use_recorded("tune")


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="gone.html">x</a>', "leads to no file"),
        ('<a href="#gone">x</a>', "leads to no place"),
        ('<a href="../../../etc">x</a>', "leads out of the site"),
        ('<img src="https://example.org/x.png">', "from the network"),
        ('<script src="//example.org/x.js"></script>', "from the network"),
        ('<link rel="stylesheet" href="http://example.org/x.css">', "from the network"),
        ('<style>@import "https://example.org/x.css";</style>', "from the network"),
        ('<p style="background: url(https://example.org/x.png)">x</p>', "from the network"),
        ('<img src="gone.png">', "is not there"),
    ],
)
def test_the_check_of_a_site_names_what_is_broken_or_comes_from_outside(tmp_path: Path, page: str, fault: str) -> None:
    (tmp_path / "fine.html").write_text('<a id="here"></a><a href="https://example.org">x</a><a href="#here">y</a>')
    assert find_faults(tmp_path) == []
    (tmp_path / "page.html").write_text(page)
    (found,) = find_faults(tmp_path)
    assert found.startswith("page.html: ")
    assert fault in found


def test_a_folder_with_other_files_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["book", "--root", str(ROOT), "--out", str(tmp_path), "--work", str(tmp_path / "w")]) == 2
    assert "name another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("held", ["mine.txt", "html/mine.txt", ".lock,mine.txt"])
def test_a_folder_with_other_files_is_not_worked_in(
    tmp_path: Path, held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in held.split(","):
        (tmp_path / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / name).write_text("precious")
    assert main(["book", "--root", str(ROOT), "--out", str(tmp_path / "o"), "--work", str(tmp_path / "w")]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.endswith("; name another --work.")
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    assert sum(path.is_file() for path in (tmp_path / "w").rglob("*")) == len(held.split(","))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--work", "{file}"], "a is a file; --work names a folder."),
        (["--out", "{file}"], "a is a file; --out names a folder."),
        (["--out", "{file}/x/y"], "a is a file; name another --out."),
        (["--timeout", "-1"], "--timeout is -1; it takes a number of seconds above 0."),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_before_anything_is_made(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("precious")
    places = ["--out", str(tmp_path / "o"), "--work", str(tmp_path / "w")]
    given = [argument.replace("{file}", str(tmp_path / "a")) for argument in arguments]
    assert main(["book", "--root", str(ROOT), *places, *given, "--no-execute"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("mgpu book: ")
    assert told.endswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_site_for_a_place_that_the_system_keeps_to_itself_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--out", "/proc/x", "--work", str(tmp_path / "w")]
    assert main(["book", "--root", str(ROOT), *places, "--no-execute"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("mgpu book: /proc")
    assert told.endswith("name another --out.")


def test_missing_packages_are_named_with_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_TOOLS", ("Sphinx", "no-such-theme"))
    with pytest.raises(BookError, match=r"no-such-theme, which is not installed: pip install .*\[book\]"):
        build_site(ROOT, tmp_path / "out", tmp_path / "work")


def test_results_of_nothing_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept", results=tmp_path, execute=False)
    with pytest.raises(BookError, match="holds no results of mgpu bench"):
        store.show(ROOT, find_sources(ROOT, ["01_compare"]))


def test_make_test_installs_what_the_site_needs_at_one_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["book"]) <= set(extras["test"])
    pins = {canonicalize_name(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {canonicalize_name(Requirement(line).name) for line in extras["book"]} <= pins


def test_make_has_a_target_for_it() -> None:
    assert re.search(
        r"^book: \$\(STAMP\)\n\t@exec \$\(BIN\)/mgpu book \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.M
    )
