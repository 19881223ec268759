"""A configuration that cannot be used is refused in one sentence: file, key, what is wrong, what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_records import plain_config

from mgpu_utils.benchmark import kinds
from mgpu_utils.benchmark.config import ConfigError, dump, load, validate
from mgpu_utils.benchmark.kinds import NAMES
from mgpu_utils.planning import Hardware

CONFIGS = Path(__file__).resolve().parents[2] / "benchmarks" / "configs"
MODEL = plain_config()["models"][0]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_of_the_course_is_valid(path: Path) -> None:
    assert load(path).benchmarks


@pytest.mark.parametrize("benchmark", NAMES)
def test_the_smallest_configuration_measures_two_ranks_on_one_core_and_marks_them(benchmark: str) -> None:
    config = load(CONFIGS / "tiny.yaml")
    items = kinds.get(benchmark).configurations(config.section(benchmark), config, Hardware(cores=1), {})
    assert items
    assert all(item.oversubscribed for item in items if getattr(item, "world_size", 1) > 1)


def test_the_default_comparison_covers_what_it_promises() -> None:
    config = load(CONFIGS / "compare.yaml")
    assert {model.name for model in config.models} == {"digits_cnn", "small_resnet"}
    assert config.scaling == ["weak", "strong"]
    assert config.strategies == ["single", "data_parallel", "ddp", "independent"]
    assert config.rounds >= 5
    assert config.threads_per_process == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"round": 5}, ["unknown key round", "did you mean rounds?"]),
        ({"steps": 5}, ["unknown key steps", "belongs to an entry of models"]),
        ({"models": [MODEL | {"stesp": 5}]}, ["unknown key stesp in models[0]", "did you mean steps?"]),
        ({"models": [MODEL | {"rounds": 5}]}, ["unknown key rounds in models[0]", "belongs at the top level"]),
        ({"rounds": "five"}, ["rounds is 'five'", "must be a whole number"]),
        ({"rounds": 5.0}, ["rounds is 5.0", "must be a whole number"]),
        ({"rounds": True}, ["rounds is True", "must be a whole number"]),
        ({"rounds": 0}, ["rounds is 0", "at least 1"]),
        ({"strategies": ["dpp"]}, ["strategies[0] is 'dpp'", "did you mean ddp?", "data_parallel"]),
        ({"strategies": "ddp"}, ["strategies is 'ddp'", "must be a list"]),
        ({"strategies": []}, ["strategies is []", "at least one entry"]),
        ({"scaling": ["weak", "weak"]}, ["scaling must not hold weak twice"]),
        ({"world_sizes": [0]}, ["world_sizes must be 1 or more, not 0"]),
        ({"world_sizes": ["two"]}, ["world_sizes[0] is 'two'", "must be a whole number"]),
        ({"world_sizes": "all"}, ["world_sizes is 'all'", "a list of whole numbers or auto"]),
        ({"world_sizes": 2}, ["world_sizes is 2", "a list of whole numbers or auto"]),
        ({"models": [MODEL | {"steps": "10"}]}, ["models[0].steps is '10'", "must be a whole number"]),
        ({"models": ["digits_cnn"]}, ["models[0] is 'digits_cnn'", "a set of keys and values (name"]),
        ({"models": [{"name": "digits_cnn"}]}, ["models[0].per_device_batch is missing"]),
        ({"models": [MODEL, MODEL]}, ["models must not hold digits_cnn twice"]),
        ({"device": "mps"}, ["device is 'mps'", "auto, cpu or cuda"]),
        ({"timeout_seconds": 0}, ["timeout_seconds is 0", "more than 0"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(changes: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(plain_config(**changes), source="mine.yaml")
    sentence = str(caught.value)
    assert sentence.startswith("mine.yaml: ")
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_a_missing_file_is_named_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").touch()
    with pytest.raises(ConfigError, match=r"tinny\.yaml: cannot be read .* there are: tiny\.yaml"):
        load(tmp_path / "tinny.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [", "is not valid YAML in line 1"),
        ("rounds: 5\nrounds: 6\n", "key rounds stands there twice"),
        ("- a\n- b\n", "must hold keys and values"),
        ("", "must hold keys and values"),
    ],
)
def test_a_damaged_file_is_explained(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load(path)


def test_the_effective_configuration_reads_back_the_same(tmp_path: Path) -> None:
    config = validate(plain_config(), source="test")
    path = tmp_path / "effective.yaml"
    path.write_text(dump(config), encoding="utf-8")
    assert load(path) == config


def test_a_file_may_hold_a_section_for_each_other_benchmark(tmp_path: Path) -> None:
    both = validate(plain_config(scale_out={"models": [MODEL]}), source="test")
    assert both.benchmarks == ["compare", "scale_out"]
    alone = validate({"scale_out": {"models": [MODEL]}}, source="test")
    assert alone.benchmarks == ["scale_out"]
    path = tmp_path / "effective.yaml"
    path.write_text(dump(both.only("scale_out")), encoding="utf-8")
    assert load(path) == both.only("scale_out")
    assert load(path).benchmarks == ["scale_out"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"rounds": 3}, "nothing to measure: it needs models (for the comparison) or one of the sections scale_out"),
        ({"compare": {"models": [MODEL]}}, "unknown key compare"),
        ({"scaleout": {"models": [MODEL]}}, "did you mean scale_out?"),
        ({"scale_out": [MODEL]}, "must be a set of keys and values (models, strategies"),
        ({"scale_out": {"models": [MODEL], "scalings": []}}, "unknown key scalings in scale_out"),
        ({"scale_out": {"models": [MODEL | {"stesp": 1}]}}, "unknown key stesp in scale_out.models[0]"),
        ({"scale_out": {"models": [MODEL], "world_sizes": [0]}}, "scale_out.world_sizes must be 1 or more, not 0"),
        ({"scale_out": {"models": [MODEL], "strategies": ["dpp"]}}, "scale_out.strategies[0] is 'dpp'"),
        (plain_config(models=[MODEL | {"warmup": "automatic"}]), "models[0].warmup is 'automatic'"),
        (plain_config(models=[MODEL | {"warmup": -1}]), "models[0].warmup is -1, but must be at least 0"),
        ({"predict": {"models": [{"name": "digits_cnn", "batches": [-16, 8]}]}}, "predict.models[0].batches[0] is -16"),
        (plain_config(precisions=["fp32"]), "precisions[0] is 'fp32', but must be float32 or bfloat16"),
        (plain_config(accumulation=[0]), "accumulation must be 1 or more, not 0"),
    ],
)
def test_a_wrong_section_is_named_like_a_wrong_key(data: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(data, source="mine.yaml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
