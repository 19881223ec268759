"""Parameters reach the notebook with the right names and types, or the run ends where that is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from made_up_records import plain_config

from mgpu_utils.benchmark.config import ConfigError, dump, validate
from mgpu_utils.benchmark.runner import check_parameters
from mgpu_utils.benchmark.settings import ParameterError, Settings, whole_number, whole_numbers, yes_or_no

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NOTEBOOK = BENCHMARKS / "01_compare_strategies.ipynb"


def notebook(path: Path, cells: list[tuple[str, list[str]]]) -> Path:
    made = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "metadata": {"tags": tags},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for number, (source, tags) in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.mark.parametrize("value", [10, 10.0, "10", "1e1"])
def test_a_whole_number_is_taken_in_every_form_papermill_gives_it(value: Any) -> None:
    assert whole_number("steps", value) == 10
    assert isinstance(whole_number("steps", value), int)


@pytest.mark.parametrize("value", [10.5, "ten", True, None, [10], 0, "inf", float("nan")])
def test_what_is_no_whole_number_is_refused_by_the_parameter_s_name(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"parameter steps is .* must be a whole number of at least 1"):
        whole_number("steps", value)


@pytest.mark.parametrize("value", [[1, 2], (1, 2), "[1,2]", "[1, 2]", "1,2", [1.0, "2"]])
def test_a_list_of_whole_numbers_is_taken_in_every_form(value: Any) -> None:
    assert whole_numbers("world_sizes", value) == [1, 2]


@pytest.mark.parametrize("value", ["[1,two]", [0], True, None, {"a": 1}, [[1]]])
def test_what_is_no_list_of_whole_numbers_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"parameter world_sizes is .* must be a list of whole numbers"):
        whole_numbers("world_sizes", value)


@pytest.mark.parametrize(
    ("value", "meaning"), [(True, True), (False, False), ("false", False), ("False", False), ("true", True)]
)
def test_the_text_false_is_not_true(value: Any, meaning: bool) -> None:
    assert yes_or_no("quick", value) is meaning


@pytest.mark.parametrize("value", ["no", "", 0, 1, None])
def test_what_is_neither_true_nor_false_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"parameter quick is .* must be true or false"):
        yes_or_no("quick", value)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_benchmark_notebook_takes_parameters(path: Path) -> None:
    check_parameters(path, {"config": "config.yaml", "out": ".", "resume": True})


def test_a_misspelt_parameter_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match="has no parameter stepz; it has config, out, steps"):
        check_parameters(NOTEBOOK, {"stepz": 5})


@pytest.mark.parametrize("wrong", [{"steps": "5"}, {"steps": True}, {"quick": 1}, {"config": 3}])
def test_a_parameter_of_another_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"parameter {next(iter(wrong))} .* must be of type"):
        check_parameters(NOTEBOOK, wrong)


def test_a_notebook_without_a_parameters_cell_is_refused(tmp_path: Path) -> None:
    path = notebook(tmp_path / "untagged.ipynb", [("steps: int = 10", [])])
    with pytest.raises(ConfigError, match="has 0 cells tagged parameters"):
        check_parameters(path, {"steps": 5})


def test_a_notebook_with_two_parameters_cells_is_refused(tmp_path: Path) -> None:
    cells = [("steps: int = 10", ["parameters"]), ("more: int = 1", ["parameters"])]
    with pytest.raises(ConfigError, match="has 2 cells tagged parameters"):
        check_parameters(notebook(tmp_path / "two.ipynb", cells), {"steps": 5})


def test_a_notebook_that_uses_a_value_before_its_parameters_cell_is_refused(tmp_path: Path) -> None:
    cells = [("print('first')", []), ("steps: int = 10", ["parameters"])]
    with pytest.raises(ConfigError, match="runs code before its cell of parameters"):
        check_parameters(notebook(tmp_path / "late.ipynb", cells), {"steps": 5})


def until_the_settings(tmp_path: Path, values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the notebook with papermill's own command line up to the cell that prints its settings."""
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    last = next(n for n, cell in enumerate(content["cells"]) if "from_parameters" in "".join(cell["source"]))
    content["cells"] = content["cells"][: last + 1]
    (tmp_path / "in.ipynb").write_text(json.dumps(content), encoding="utf-8")
    config = validate(plain_config(strategies=["single"], world_sizes=[1]), source="test")
    (tmp_path / "config.yaml").write_text(dump(config), encoding="utf-8")
    given = [part for name, value in values.items() for part in ("-p", name, value)]
    return subprocess.run(
        [
            *(sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "--cwd", ".", "--no-progress-bar"),
            *("-p", "config", "config.yaml", "-p", "out", "results", *given),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_papermill_s_texts_and_floats_arrive_converted_and_are_printed(tmp_path: Path) -> None:
    done = until_the_settings(tmp_path, {"steps": "1e1", "world_sizes": "[1]", "quick": "false"})
    assert done.returncode == 0, done.stderr[-2000:]
    cells = json.loads((tmp_path / "out.ipynb").read_text(encoding="utf-8"))["cells"]
    printed = "".join(cells[-1]["outputs"][0]["text"])
    assert "digits_cnn (10 steps)" in printed
    assert "world sizes  1\n" in printed
    assert "rounds       5" in printed


def test_a_bad_value_fails_in_the_second_cell_and_names_the_parameter(tmp_path: Path) -> None:
    done = until_the_settings(tmp_path, {"quick": "maybe"})
    assert done.returncode != 0
    assert "ParameterError: parameter quick is 'maybe', but must be true or false." in done.stderr
    assert not (tmp_path / "results").exists()


def folder(settings_out: Path, **changes: Any) -> Settings:
    from mgpu_utils.benchmark.settings import settle

    return settle(validate(plain_config(strategies=["single"], world_sizes=[1], **changes), "test"), settings_out)


def test_a_folder_with_results_needs_resume(tmp_path: Path) -> None:
    settings = folder(tmp_path)
    settings.prepare(resume=False)
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(ConfigError, match="holds results already; add --resume"):
        settings.check_folder(resume=False)
    settings.check_folder(resume=True)


def test_resuming_with_another_configuration_says_what_changed(tmp_path: Path) -> None:
    folder(tmp_path).prepare(resume=False)
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(ConfigError, match=r"another configuration \(rounds was 5, is 6\)"):
        folder(tmp_path, rounds=6).prepare(resume=True)


def test_resuming_on_another_machine_is_refused(tmp_path: Path) -> None:
    settings = folder(tmp_path)
    settings.prepare(resume=False)
    (tmp_path / "records.jsonl").touch()
    noted = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    (tmp_path / "environment.json").write_text(json.dumps(noted | {"cores_usable": 64}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"something else \(cores usable: 64 before"):
        settings.check_folder(resume=True)


def test_two_benchmarks_cannot_measure_into_one_folder_at_once(tmp_path: Path) -> None:
    first, second = folder(tmp_path), folder(tmp_path)
    first.prepare(resume=False)
    with first.alone(), pytest.raises(ConfigError, match=r"another benchmark is measuring into .* wait for it"):
        second.alone().__enter__()
    with second.alone():
        pass


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(ConfigError, match="is a file; the results need a folder"):
        folder(tmp_path / "results").check_folder(resume=False)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"holds other files \(thesis\.tex, \.\.\.\); choose an empty --out"):
        folder(tmp_path).check_folder(resume=False)
