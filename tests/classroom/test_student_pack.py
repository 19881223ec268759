"""The pack a class is handed installs with no package index, and says what is wrong where it does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from short_course import make_course

from mgpu_utils.classroom import start_script
from mgpu_utils.classroom.own_wheel import build_own_wheel
from mgpu_utils.classroom.platforms import PLATFORMS, known_platforms, this_platform, this_python
from mgpu_utils.classroom.start_page import start_page
from mgpu_utils.classroom.student_pack import Pack, make_pack
from mgpu_utils.classroom.wheel_download import download_wheels, lowest_python

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return make_pack(ROOT, tmp_path_factory.mktemp("packs") / "handout", pythons=[this_python()])


def test_the_pack_holds_learner_notebooks_the_wheel_one_page_and_no_solution(pack: Pack) -> None:
    files = {path.relative_to(pack.folder).as_posix() for path in pack.folder.rglob("*") if path.is_file()}
    assert {"START.html", "start.py", "pack.json", "constraints.txt", "docs/glossary.md"} <= files
    assert {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")} <= files
    assert [name for name in files if name.startswith("wheels/")] == [
        f"wheels/{json.loads((pack.folder / 'pack.json').read_text())['wheel']}"
    ]
    text = (pack.folder / "notebooks/00_start_here.ipynb").read_text()
    assert "# YOUR CODE HERE" in text
    assert "SOLUTION" not in text
    assert not any("sources/" in name for name in files)
    with zipfile.ZipFile(pack.archive) as archive:
        assert {f"handout/{name}" for name in files} == set(archive.namelist())
        assert archive.testzip() is None
    page = (pack.folder / "START.html").read_text()
    assert "python3 start.py" in page
    assert "http" not in page, "the page loads or links something from elsewhere"


def test_building_the_wheel_leaves_the_course_s_folder_as_it_was(tmp_path: Path) -> None:
    before = sorted(path.name for path in ROOT.iterdir())
    wheel = build_own_wheel(ROOT, tmp_path)
    assert sorted(path.name for path in ROOT.iterdir()) == before
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"mgpu_utils/classroom/start_script.py", "mgpu_utils/reference_points.csv"} <= set(names)
    assert not any(name.startswith(("tests/", "sources/")) for name in names)


def test_the_wheel_installs_into_a_new_environment_with_the_index_turned_off(pack: Pack, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    scripts = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    python = tmp_path / "venv" / scripts
    wheel = next((pack.folder / "wheels").glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, env=os.environ | OFFLINE, capture_output=True)
    code = "import mgpu_utils, importlib.metadata as m; print(mgpu_utils.__file__, m.version('mgpu-utils'))"
    found = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout.startswith(str(tmp_path / "venv")), found.stderr
    assert found.stdout.split()[1] == wheel.name.split("-")[1]
    command = python.with_name("mgpu.exe" if os.name == "nt" else "mgpu")
    assert command.is_file()


def make_wheel(folder: Path, name: str, version: str, *, needs: tuple[str, ...] = (), python: str = ">=3.8") -> Path:
    """A wheel with nothing in it but what it needs."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}"]
    metadata += [f"Requires-Dist: {need}" for need in needs]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip can find."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name, value in (OFFLINE | {"PIP_FIND_LINKS": str(folder)}).items():
        monkeypatch.setenv(name, value)
    return folder


def test_wheels_are_those_of_the_wanted_platform_and_not_of_this_one(shelf: Path, tmp_path: Path) -> None:
    make_wheel(shelf, "forwindows", "1.0")
    make_wheel(shelf, "forlinux", "1.0", python=">=3.12.4")
    make_wheel(shelf, "forall", "1.0", needs=('forextra; extra == "more"',))
    make_wheel(shelf, "forall", "2.0", needs=('forextra; extra == "more"',))
    make_wheel(shelf, "forextra", "1.0")
    own = make_wheel(
        tmp_path,
        "own",
        "1.0",
        needs=(
            'forwindows; sys_platform == "win32"',
            'forlinux; platform_system == "Linux"',
            "forall[more]",
            'never; python_version < "3.12"',
        ),
    )
    (tmp_path / "pins.txt").write_text("forall==1.0\n")
    found = {}
    for name in ("windows-x86_64", "linux-aarch64"):
        wheels = download_wheels(
            own, tmp_path / name, PLATFORMS[name], "3.12", tmp_path / "pins.txt", tell=lambda line: None
        )
        found[name] = sorted(path.name.rpartition("-py3")[0] for path in wheels)
    assert found["windows-x86_64"] == ["forall-1.0", "forextra-1.0", "forwindows-1.0"]
    assert found["linux-aarch64"] == ["forall-1.0", "forextra-1.0", "forlinux-1.0"]
    assert lowest_python(list((tmp_path / "linux-aarch64").iterdir()), "3.12") == "3.12.4"


def test_a_wheel_that_cannot_be_had_is_named_and_no_half_a_pack_is_left(shelf: Path, tmp_path: Path) -> None:
    own = make_wheel(tmp_path, "own", "1.0", needs=("absent>=2",))
    with pytest.raises(ValueError, match=r"for macos-arm64 and Python 3\.13: .*absent"):
        download_wheels(own, tmp_path / "wheels", PLATFORMS["macos-arm64"], "3.13", None, tell=lambda line: None)
    assert not (tmp_path / "wheels").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="not everything can be downloaded"):
        make_pack(ROOT, tmp_path / "out/handout", platforms=[this_platform()], tell=lambda line: None)
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_is_no_pack_is_not_overwritten_and_a_pack_is(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds something that is no pack"):
        make_pack(ROOT, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_what_no_pack_can_be_made_for_is_refused_with_what_can(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no pack can be made for 'amiga'; the platforms are linux-x86_64"):
        known_platforms(["amiga"])
    with pytest.raises(ValueError, match=r"runs on Python 3\.11, 3\.12, 3\.13, not on 3\.9"):
        make_pack(make_course(tmp_path / "course"), tmp_path / "out", pythons=["3.9"])


def test_the_start_script_installs_from_the_pack_alone_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "own", "1.0", needs=("other",))
    (tmp_path / "start.py").write_text(Path(start_script.__file__).read_text())
    (tmp_path / "constraints.txt").write_text("other==1.0\n")
    (tmp_path / "others.txt").write_text("other==9\n")
    manifest = {"wheel": "own-1.0-py3-none-any.whl", "pythons": {this_python(): f"{this_python()}.0"}}
    (tmp_path / "pack.json").write_text(json.dumps(manifest | {"platforms": [this_platform()], "offline": True}))

    def start() -> subprocess.CompletedProcess[str]:
        # If pip listened, it would ask here for what the pack lacks, and want another version.
        own = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONSTRAINT": str(tmp_path / "others.txt")}
        environment = os.environ | own
        command = [sys.executable, str(tmp_path / "start.py"), "--install-only"]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    first = start()
    assert first.returncode == 1
    assert "The installation failed" in first.stderr
    assert "127.0.0.1" not in first.stderr
    make_wheel(tmp_path / "wheels", "other", "1.0")
    second, third = start(), start()
    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith("Installing the course")
    assert third.stdout.startswith("The course is installed in"), "it installs again"


def test_the_start_script_says_what_does_not_fit() -> None:
    minor, patch = this_python(), sys.version_info[2]
    here = this_platform()
    fits = {"pythons": {minor: f"{minor}.{patch}"}, "platforms": [here], "offline": True}
    assert start_script.unfit(fits) == ""
    assert "for Python 3.9; this is Python" in start_script.unfit(fits | {"pythons": {"3.9": "3.9.0"}})
    assert f"needs {minor}.{patch + 1} or newer" in start_script.unfit(
        fits | {"pythons": {minor: f"{minor}.{patch + 1}"}}
    )
    other = next(name for name in PLATFORMS if name.partition("-")[0] != here.partition("-")[0])
    assert f"only for {other}" in start_script.unfit(fits | {"platforms": [other]})


def test_the_page_names_the_pythons_that_will_do() -> None:
    page = start_page(["3.11.5", "3.12.0"], ["linux-x86_64"], ["00_start_here.ipynb"], True)
    assert "Python 3.11 (3.11.5 or newer) or 3.12" in page
    assert "no internet" in page
    assert "needs the internet" in start_page(["3.12.0"], [], ["a.ipynb"], False)
