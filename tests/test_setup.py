"""The ways in: make, conda, CI, and the one list of versions they share."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
needs_make = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("make") is None, reason="make is not there; README gives the commands"
)


def pins() -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    requirements = [Requirement(line) for line in lines if line]
    return {canonicalize_name(found.name): str(found.specifier) for found in requirements}


def test_constraints_pin_every_dependency_to_one_version_that_pyproject_allows() -> None:
    wanted = [Requirement(line) for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]
    for requirement in wanted:
        pin = pins().get(canonicalize_name(requirement.name), "")
        assert re.fullmatch(r"==[0-9][^,*]*", pin), f"{requirement.name} has no exact version in constraints.txt"
        assert requirement.specifier.contains(pin.removeprefix("=="), prereleases=True), requirement


def test_torch_is_pinned_to_the_version_the_course_is_tested_with() -> None:
    assert pins()["torch"] == "==2.13.0"


def test_what_is_installed_here_is_what_constraints_say() -> None:
    for name, pin in pins().items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        assert installed.split("+")[0] == pin.removeprefix("=="), name


def test_every_pinned_version_takes_the_whole_python_range_of_pyproject() -> None:
    first = ["3.11.0", "3.12.0", "3.13.0"]
    ours = SpecifierSet(PROJECT["requires-python"])
    assert all(ours.contains(version) for version in first)
    assert not ours.contains("3.14.0")
    narrower = {}
    for found in importlib.metadata.distributions():
        allowed = SpecifierSet(found.metadata.get("Requires-Python") or "")
        if canonicalize_name(found.name) in pins() and not all(allowed.contains(version) for version in first):
            narrower[found.name] = str(allowed)
    assert narrower == {}


def test_jupyterlab_comes_with_the_widgets_that_progress_bars_need() -> None:
    assert {"jupyterlab", "ipywidgets"} <= set(pins())


def test_conda_installs_the_same_package_with_the_same_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    python = next(entry for entry in conda if entry.split()[0] == "python")
    assert SpecifierSet(python.removeprefix("python")) == SpecifierSet(PROJECT["requires-python"])
    assert sorted(entry.split()[0] for entry in conda) == ["pip", "python"], "packages come from pyproject.toml alone"
    makefile = (ROOT / "Makefile").read_text()
    assert "-c constraints.txt -e '.[test]'" in makefile
    assert pip == ["--constraint constraints.txt", "--editable .[test]"]


def test_makefile_and_workflow_take_the_python_range_of_pyproject() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    minors = [minor for minor in range(8, 20) if allowed.contains(f"3.{minor}.0")]
    makefile = (ROOT / "Makefile").read_text()
    assert f"(3, {minors[0]}) <= sys.version_info[:2] < (3, {minors[-1] + 1})" in makefile
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == [f"3.{minor}" for minor in minors]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_windows_runs_the_same_test_commands_without_make() -> None:
    recipe = re.search(r"^test: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    commands = [line.strip().removeprefix("@$(BIN)/").removesuffix(" $(ARGS)") for line in recipe[1].splitlines()]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    windows = next(step for step in workflow["jobs"]["test"]["steps"] if step.get("shell") == "pwsh")
    lines = [line.strip() for line in windows["run"].splitlines()]
    assert lines[-len(commands) :] == [f".venv\\Scripts\\{command}" for command in commands]
    assert commands[-1].startswith("pytest "), "its closing line is the last thing printed"


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci/run"
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[1].startswith("cd ")
    assert commands[2:] == ["make test"]
    assert sys.platform == "win32" or script.stat().st_mode & stat.S_IXUSR


def test_no_set_up_file_names_a_package_index() -> None:
    files = ["Makefile", "pyproject.toml", "constraints.txt", "environment.yml", ".ci/run", "README.md"]
    for name in [*files, ".github/workflows/ci.yml"]:
        text = (ROOT / name).read_text()
        assert not re.search(r"index-url|find-links|pypi\.|pytorch\.org/whl|anaconda\.org", text), name


FAKE_PYTHON = """#!/bin/sh
# A Python whose venv and pip only write down that they were called; everything else is the real one.
case "$1 $2" in
"-m venv")
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"
    printf '#!/bin/sh\\necho "mgpu $*"\\n' > "$3/bin/mgpu"; chmod +x "$3/bin/mgpu" ;;
"-m pip")
    echo "$@" >> pip-calls
    while test -e pip-waits; do sleep 0.1; done
    test ! -e pip-fails || { echo "ERROR: no such version" >&2; exit 1; } ;;
*) exec "{python}" "$@" ;;
esac
"""
OLD_PYTHON = """#!/bin/sh
case "$2" in *platform*) echo 3.9.2 ;; *) exit 1 ;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a course"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    for name, text in (("python", FAKE_PYTHON.replace("{python}", sys.executable)), ("old", OLD_PYTHON)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return folder


def make(clone: Path, *arguments: str, python: str = "python") -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    command = ["make", *arguments, f"PYTHON={clone.parent / python}"]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=False)


def installs(clone: Path) -> int:
    calls = clone / "pip-calls"
    return len(calls.read_text().splitlines()) if calls.exists() else 0


@needs_make
def test_first_call_installs_with_constraints_and_the_second_installs_nothing(clone: Path) -> None:
    first = make(clone, "lab", "ARGS=--no-browser --port 9000")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1] == "mgpu lab --no-browser --port 9000"
    assert "-c constraints.txt -e .[test]" in (clone / "pip-calls").read_text()
    second = make(clone, "lab")
    assert second.stdout == "mgpu lab\n"
    assert installs(clone) == 1


@needs_make
def test_changed_versions_are_installed_at_the_next_call(clone: Path) -> None:
    make(clone, "lab")
    future = (clone / ".venv/.installed").stat().st_mtime + 5
    os.utime(clone / "constraints.txt", (future, future))
    assert make(clone, "lab").returncode == 0
    assert installs(clone) == 2


@needs_make
def test_an_installation_that_failed_never_passes_as_complete(clone: Path) -> None:
    (clone / "pip-fails").touch()
    failed = make(clone, "lab")
    assert failed.returncode != 0
    assert "no such version" in failed.stderr
    assert "install.log" in failed.stderr
    assert "mgpu lab" not in failed.stdout
    (clone / ".venv/half-written").touch()
    (clone / "pip-fails").unlink()
    assert make(clone, "lab").returncode == 0
    assert not (clone / ".venv/half-written").exists(), "the half-made environment was not removed"


@needs_make
def test_an_update_that_failed_never_passes_as_complete(clone: Path) -> None:
    make(clone, "lab")
    future = (clone / ".venv/.installed").stat().st_mtime + 5
    os.utime(clone / "constraints.txt", (future, future))
    (clone / "pip-fails").touch()
    assert "mgpu lab" not in make(clone, "lab").stdout
    (clone / "pip-fails").unlink()
    assert "Removing .venv" in make(clone, "lab").stdout


@needs_make
@pytest.mark.parametrize("update", [False, True], ids=["first", "update"])
def test_a_second_make_leaves_an_installation_that_is_at_work_alone(clone: Path, update: bool) -> None:
    if update:
        make(clone, "lab")
        os.utime(clone / ".venv/.installed", (0, 0))
    calls = installs(clone) + 1
    (clone / "pip-waits").touch()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(make, clone, "lab")
        try:
            while installs(clone) < calls:
                assert not first.done(), first.result().stderr
                time.sleep(0.05)
            (clone / ".venv/of-the-first").touch()
            second = make(clone, "doctor")
        finally:
            (clone / "pip-waits").unlink()
        assert second.returncode != 0
        assert second.stdout == ""
        assert re.match(r"Another make is installing .* \(process \d+\): wait ", second.stderr), second.stderr
        assert first.result().returncode == 0, first.result().stderr
    assert (clone / ".venv/of-the-first").exists()
    assert make(clone, "doctor").stdout == "mgpu doctor\n"
    assert installs(clone) == calls


@needs_make
@pytest.mark.parametrize("left", ["ended", "other", "empty"])
def test_an_installation_that_was_interrupted_is_begun_anew(clone: Path, left: str) -> None:
    make(clone, "lab")
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout
    (clone / ".venv/.installed").unlink()
    if left == "other" and shutil.which("ps") is None:
        pytest.skip("without ps a process is known by its number alone")
    (clone / ".venv/.installing").write_text({"ended": ended, "other": f"{os.getpid()}\n", "empty": ""}[left])
    again = make(clone, "lab")
    assert again.returncode == 0, again.stderr
    assert "Removing .venv: its installation did not finish" in again.stdout
    assert installs(clone) == 2


@needs_make
def test_a_python_that_does_not_fit_gets_one_sentence_and_leaves_nothing(clone: Path) -> None:
    refused = make(clone, "lab", python="old")
    assert refused.returncode != 0
    assert "3.9.2" in refused.stderr
    assert "make lab PYTHON=python3.12" in refused.stderr
    assert not (clone / ".venv").exists()


@needs_make
def test_a_moved_repository_installs_itself_anew(clone: Path) -> None:
    make(clone, "lab")
    moved = clone.with_name("moved")
    clone.rename(moved)
    assert make(moved, "lab").returncode == 0
    assert installs(moved) == 2


@needs_make
def test_bench_picks_a_configuration_by_name_or_by_path(clone: Path) -> None:
    make(clone, "lab")
    named = make(clone, "bench", "CONFIG=tiny", "OUT=results/x", "ARGS=--resume")
    assert named.stdout == "mgpu bench --config benchmarks/configs/tiny.yaml --out results/x --resume\n"
    path = make(clone, "bench", "CONFIG=mine/other.yaml")
    assert path.stdout.startswith("mgpu bench --config mine/other.yaml --out results/other-")


def make_browser(clone: Path, user: int = 0, system: str = "debian", works: bool = True) -> tuple[list[str], list[str]]:
    """What `make browser` prints where no browser is, and the calls of apt-get."""
    tools = clone.parent / "tools"
    tools.mkdir()
    calls = clone / "apt-get-calls"
    fails = "" if works else 'echo "E: no such host" >&2; exit 100'
    for name, does in (("id", f"echo {user}"), ("apt-get", f'echo "$*" >> "{calls}"; {fails}')):
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    (clone / "os-release").write_text(f"NAME=x\nID={system}\n")
    path = f"PATH={tools}{os.pathsep}{os.environ['PATH']}"
    made = make(clone, "browser", path, "BROWSERS=no-such-browser", "OS_RELEASE=os-release")
    assert made.returncode == 0, made.stderr
    return made.stdout.splitlines(), calls.read_text().splitlines() if calls.exists() else []


@needs_make
def test_a_container_without_a_browser_gets_one(clone: Path) -> None:
    said, calls = make_browser(clone)
    assert said == ["Installing Chromium for the browser tests, with apt-get."]
    assert [call.split()[0] for call in calls] == ["update", "install"]
    assert calls[1].endswith("-y --no-install-recommends chromium")


@needs_make
@pytest.mark.parametrize(("user", "system"), [(1000, "debian"), (0, "ubuntu")])
def test_no_system_package_is_installed_on_anybodys_own_machine(clone: Path, user: int, system: str) -> None:
    (said,), calls = make_browser(clone, user, system)
    assert "the browser tests are skipped" in said
    assert calls == []


@needs_make
def test_a_browser_that_cannot_be_installed_does_not_stop_the_tests(clone: Path) -> None:
    said, _ = make_browser(clone, works=False)
    assert said[1] == "It could not be installed, so the browser tests are skipped: E: no such host"


@needs_make
def test_where_a_browser_is_nothing_is_installed_or_said(clone: Path) -> None:
    assert make(clone, "browser", "BROWSERS=no-such-browser sh").stdout == ""


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="this is not a git checkout: nothing is ignored"
)
def test_git_ignores_nothing_that_the_package_or_the_course_needs() -> None:
    folders = ["mgpu_utils", "sources", "docs", "tests"]
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", *folders]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    needed = [path for path in ignored if not re.search(r"__pycache__/|\.ipynb_checkpoints/|/\.mgpu/", path)]
    assert needed == [], "git leaves these out of a clone: anchor the rule of .gitignore that hides them"
