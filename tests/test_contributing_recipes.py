"""Every recipe of CONTRIBUTING.md works as it stands there, in a copy of the course, and is short."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = ("A lesson", "An exercise", "A strategy to measure", "A model", "A benchmark", "A figure")
MGPU = "import sys; from mgpu_utils.cli import main; sys.exit(main(sys.argv[1:]))"

# What the page says to do with its code, done.
USE = """
import json
import matplotlib; matplotlib.use("agg")
import mgpu_utils
from mgpu_utils import check, models
from mgpu_utils.benchmark.config import validate
from mgpu_utils.benchmark.kinds import get
from mgpu_utils.figures.alt_text import alt_text
from mgpu_utils.figures.lessons import waiting_times
from mgpu_utils.lesson_checks import lesson_11
from mgpu_utils.planning import Hardware
from mgpu_utils.torchrun import Launcher
import yaml

found = {}
cell = {"mgpu": mgpu_utils}
exec(open("answer.py").read(), cell)
found["right"] = check("11/neighbour", cell["neighbour"]).kind
found["wrong"] = check("11/neighbour", lambda r, w: r + 1).kind
two = [models.digits_mlp(seed=1).parameters() for _ in range(2)]
found["same"] = all(one.equal(other) for one, other in zip(*two))
file = yaml.safe_load(open("recipe.yaml"))
model = file["long_runs"]["models"][0]
config = validate(file | {"models": [model], "strategies": ["single", "ddp", "ddp_small_buckets"]}, source="recipe")
items = {}
for name in ("long_runs", "compare"):
    items[name] = get(name).configurations(config.section(name), config, Hardware(cores=2), {})
    found[name] = sorted({item.strategy for item in items[name]})
item = next(item for item in items["compare"] if item.strategy == "ddp_small_buckets")
with Launcher() as launcher:
    record = get("long_runs").measure_one(item, 0, launcher=launcher, seed=0, timeout=120)
found["measured"] = [record["status"], record["model"], record.get("reason")]
found["words"] = alt_text(waiting_times({"rank 0": 0.002, "rank 1": 0.5}).figure)
print(json.dumps(found))
"""


def blocks(heading: str) -> list[str]:
    """The pieces of code under a heading of the page."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return re.findall(r"^```\w+\n(.*?)^```", found[1], re.MULTILINE | re.DOTALL)


def run(copy: Path, code: str, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MGPU_")}
    environment |= {"PYTHONPATH": str(copy), "MGPU_HOME": str(copy / "answers")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=copy, env=environment, capture_output=True, text=True, timeout=240
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path.name} holds {before!r} {text.count(before)} times"
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course with every recipe followed."""
    copy = tmp_path_factory.mktemp("contributor") / "course"
    for folder in ("mgpu_utils", "sources"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("notebooks", "benchmarks"):
        (copy / name).mkdir()
    shutil.copy(ROOT / "pyproject.toml", copy)
    package = copy / "mgpu_utils"
    (lesson,) = blocks("A lesson")
    in_lesson, its_check = blocks("An exercise")
    (copy / "sources/lessons/11_send_to_a_neighbour.py").write_text(f"{lesson}\n{in_lesson}", encoding="utf-8")
    (copy / "answer.py").write_text(in_lesson.removeprefix("# %%\n"), encoding="utf-8")
    (package / "lesson_checks/lesson_11.py").write_text(its_check, encoding="utf-8")
    (strategy,) = blocks("A strategy to measure")
    edit(package / "benchmark/contenders.py", "_ALL = (", f"{strategy}\n\n_ALL = (DdpSmallBuckets(), ")
    (model,) = blocks("A model")
    entry = re.search(r'`("digits_mlp": ModelSpec.*?)`', PAGE)
    assert entry is not None
    registry = "MODELS: dict[str, ModelSpec] = {\n"
    edit(package / "models.py", registry, f"{model}\n\n{registry}    {entry[1]}\n")
    benchmark, section = blocks("A benchmark")
    (package / "benchmark/long_runs.py").write_text(benchmark, encoding="utf-8")
    edit(package / "benchmark/kinds.py", '"tune", "predict")', '"tune", "predict", "long_runs")')
    (copy / "recipe.yaml").write_text(
        section.replace("steps: 500, warmup: 20", "steps: 3, warmup: 1"), encoding="utf-8"
    )
    nearest = (copy / "sources/benchmarks/02_scale_out.py").read_text(encoding="utf-8")
    notebook = nearest.replace("scale_out", "long_runs").replace("# # Scale out", "# # Long runs")
    (copy / "sources/benchmarks/07_long_runs.py").write_text(notebook, encoding="utf-8")
    (figure,) = blocks("A figure")
    edit(package / "figures/lessons.py", "\ndef _labels(", f"\n{figure}\n\ndef _labels(")
    return copy


def test_each_recipe_is_there_and_has_under_twenty_lines_of_code() -> None:
    assert {heading: bool(blocks(heading)) for heading in RECIPES} == dict.fromkeys(RECIPES, True)
    assert {heading: max(len(code.splitlines()) for code in blocks(heading)) for heading in RECIPES if any(
        len(code.splitlines()) >= 20 for code in blocks(heading)
    )} == {}  # fmt: skip


def test_the_lesson_with_its_exercise_is_built_run_and_checked(copy: Path) -> None:
    run(copy, MGPU, "notebooks", "build", "11", "--execute")
    run(copy, MGPU, "notebooks", "check", "11")
    notebook = json.loads((copy / "notebooks/11_send_to_a_neighbour.ipynb").read_text(encoding="utf-8"))
    text = json.dumps(notebook)
    assert "rank 0 of 2" in text
    assert "YOUR CODE HERE" in text
    assert "% world_size" not in text.replace("{world_size}", ""), "learners would see the solution"


def test_the_notebook_of_the_benchmark_is_built(copy: Path) -> None:
    run(copy, MGPU, "notebooks", "build", "07_long_runs")
    assert 'from_parameters(\\"long_runs\\"' in (copy / "benchmarks/07_long_runs.ipynb").read_text(encoding="utf-8")


def test_exercise_strategy_model_benchmark_and_figure_do_what_the_page_says(copy: Path) -> None:
    found = json.loads(run(copy, USE).splitlines()[-1])
    assert found["right"] == "right"
    assert found["wrong"] == "wrong"
    assert found["same"], "two ranks would get different models"
    assert found["long_runs"] == ["ddp", "single"]
    assert found["compare"] == ["ddp", "ddp_small_buckets", "single"]
    assert found["measured"] == ["ok", "digits_mlp", None]
    assert found["words"] == "Who waits. X axis: milliseconds of waiting. Bars: rank 0: 2; rank 1: 500."


def test_every_command_and_file_that_the_table_of_derived_files_names_is_there() -> None:
    table = re.findall(r"^\|(.*)\|$", PAGE, re.MULTILINE)[2:]
    assert len(table) >= 14
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for row in table:
        command = re.findall(r"`([^`]+)`", row.split("|")[2])
        for words in (one.split() for one in command):
            if words[0] == "make" and len(words) > 1:
                assert f"\n{words[1]}: " in makefile, words
            elif words[0] == "python":
                assert (ROOT / words[1]).is_file(), words
