"""What the machine has and what the course uses on it: a decision table over made-up hardware."""

from __future__ import annotations

import ast
import getpass
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mgpu_utils import accelerator_probe, devices
from mgpu_utils.cores import cgroup_quota, usable_cores
from mgpu_utils.devices import Accelerator, DeviceSurvey, missing_gpu_build, plan, survey
from mgpu_utils.planning import Hardware, decide
from mgpu_utils.visible_devices import changed_too_late, parse_visible_devices

NOTHING = Hardware(cores=2)
ONE_GPU = Hardware("cuda", 1, cores=8, nccl=True)
FOUR_GPUS = Hardware("cuda", 4, cores=32, nccl=True)
WINDOWS_GPUS = Hardware("cuda", 2, cores=8, nccl=False)
MIG = Hardware("cuda", 1, cores=16, nccl=True, mig=True)
MIG_SEVERAL = Hardware("cuda", 2, cores=16, nccl=True, mig=True)
APPLE = Hardware("mps", 1, cores=8)
INTEL = Hardware("xpu", 2, cores=8)


@pytest.mark.parametrize(
    ("hardware", "world_size", "device", "backend", "ranks", "single"),
    [
        (NOTHING, None, "auto", "gloo", ["cpu"] * 2, "cpu"),
        (NOTHING, 1, "auto", "gloo", ["cpu"], "cpu"),
        (NOTHING, 3, "cpu", "gloo", ["cpu"] * 3, "cpu"),
        (Hardware(cores=1), None, "auto", "gloo", ["cpu"] * 2, "cpu"),
        (ONE_GPU, None, "auto", "gloo", ["cpu"] * 2, "cuda:0"),
        (ONE_GPU, 1, "auto", "gloo", ["cpu"], "cuda:0"),
        (ONE_GPU, None, "cuda", "nccl", ["cuda:0"], "cuda:0"),
        (ONE_GPU, 2, "cpu", "gloo", ["cpu"] * 2, "cpu"),
        (FOUR_GPUS, None, "auto", "nccl", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"], "cuda:0"),
        (FOUR_GPUS, 2, "auto", "nccl", ["cuda:0", "cuda:1"], "cuda:0"),
        (FOUR_GPUS, 5, "auto", "gloo", ["cpu"] * 5, "cuda:0"),
        (FOUR_GPUS, 2, "cpu", "gloo", ["cpu"] * 2, "cpu"),
        (WINDOWS_GPUS, None, "auto", "gloo", ["cpu"] * 2, "cuda:0"),
        (MIG, None, "auto", "gloo", ["cpu"] * 2, "cuda:0"),
        (MIG_SEVERAL, None, "auto", "gloo", ["cpu"] * 2, "cuda:0"),
        (APPLE, None, "auto", "gloo", ["cpu"] * 2, "mps"),
        (APPLE, 2, "mps", "gloo", ["cpu"] * 2, "mps"),
        (APPLE, None, "cpu", "gloo", ["cpu"] * 2, "cpu"),
        (INTEL, None, "auto", "gloo", ["cpu"] * 2, "xpu:0"),
    ],
)
def test_plan_follows_the_policy(
    hardware: Hardware, world_size: int | None, device: str, backend: str, ranks: list[str], single: str
) -> None:
    found = decide(hardware, world_size, device)
    assert found.backend == backend
    assert [str(rank) for rank in found.rank_devices] == ranks
    assert str(found.single_device) == single
    assert found.world_size == len(ranks)
    assert one_sentence(found.reason)


@pytest.mark.parametrize(
    ("hardware", "world_size", "device", "words"),
    [
        (NOTHING, None, "auto", "finds no GPU"),
        (Hardware(cores=1), None, "auto", "sharing 1 core"),
        (ONE_GPU, None, "auto", "one GPU does single-device work"),
        (ONE_GPU, None, "cpu", "You asked for the CPU"),
        (FOUR_GPUS, None, "auto", "4 ranks run on nccl"),
        (FOUR_GPUS, 5, "auto", "5 ranks do not fit on 4 GPUs"),
        (WINDOWS_GPUS, None, "auto", "built without nccl"),
        (MIG, None, "auto", "one instance only"),
        (APPLE, None, "auto", "no backend for it"),
        (INTEL, None, "auto", "Intel GPU"),
    ],
)
def test_reason_says_why(hardware: Hardware, world_size: int | None, device: str, words: str) -> None:
    assert words in decide(hardware, world_size, device).reason


def test_environment_stands_in_for_arguments_not_given() -> None:
    environ = {"MGPU_WORLD_SIZE": "3", "MGPU_DEVICE": "CPU "}
    from_environment = decide(FOUR_GPUS, environ=environ)
    assert (from_environment.backend, from_environment.world_size) == ("gloo", 3)
    given = decide(FOUR_GPUS, 2, "cuda", environ)
    assert (given.backend, given.world_size) == ("nccl", 2)
    empty = decide(FOUR_GPUS, environ={"MGPU_WORLD_SIZE": "", "MGPU_DEVICE": " "})
    assert (empty.backend, empty.world_size) == ("nccl", 4)


@pytest.mark.parametrize("value", ["two", "0", "-1", "1.5", "2 2", "²", "+", "True"])
def test_nonsense_world_size_in_the_environment_gets_one_sentence(value: str) -> None:
    with pytest.raises(ValueError, match=r"MGPU_WORLD_SIZE is '.+', but it must be a whole number") as error:
        decide(NOTHING, environ={"MGPU_WORLD_SIZE": value})
    assert one_sentence(str(error.value))


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "two"])
def test_nonsense_world_size_argument_gets_one_sentence(value: object) -> None:
    with pytest.raises(ValueError, match=r"^world_size is .+ whole number") as error:
        decide(NOTHING, value)  # type: ignore[arg-type]
    assert one_sentence(str(error.value))


@pytest.mark.parametrize("value", ["gpu", "cuda:1", "tpu", "2"])
def test_unknown_device_lists_the_choices(value: str) -> None:
    with pytest.raises(ValueError, match=r"^device is '.+', but it must be one of 'auto', 'cpu', 'cuda'"):
        decide(FOUR_GPUS, device=value)
    with pytest.raises(ValueError, match=r"^MGPU_DEVICE is '.+', but it must be one of"):
        decide(FOUR_GPUS, environ={"MGPU_DEVICE": value})


@pytest.mark.parametrize(
    ("hardware", "world_size", "device", "words"),
    [
        (FOUR_GPUS, 5, "cuda", "world_size is 5, but only 4 GPUs can be used"),
        (ONE_GPU, 2, "cuda", "only 1 GPU can be used"),
        (MIG_SEVERAL, 2, "cuda", "one MIG instance is all a process can use"),
        (NOTHING, None, "cuda", "finds no such device"),
        (NOTHING, None, "mps", "finds no such device"),
        (APPLE, None, "cuda", "accelerator found: 'mps'"),
        (WINDOWS_GPUS, None, "cuda", "built without nccl"),
        (NOTHING, 17, "auto", "has 2 CPU cores: ask for at most 16"),
    ],
)
def test_what_the_machine_cannot_do_gets_one_sentence(
    hardware: Hardware, world_size: int | None, device: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words) as error:
        decide(hardware, world_size, device)
    assert one_sentence(str(error.value))


def test_a_build_without_gloo_is_refused() -> None:
    with pytest.raises(RuntimeError, match="without gloo"):
        decide(Hardware(cores=2, gloo=False))


def test_as_many_ranks_as_four_a_core_are_allowed() -> None:
    assert decide(Hardware(cores=8), 32).world_size == 32
    with pytest.raises(ValueError, match="at most 32"):
        decide(Hardware(cores=8), 33)


@pytest.mark.parametrize(
    ("value", "entries", "mig"),
    [
        (None, (), False),
        ("", (), False),
        ("-1", (), False),
        ("0", ("0",), False),
        ("2,0", ("2", "0"), False),
        (" 1 , 3", ("1", "3"), False),
        ("0,-1,1", ("0",), False),
        ("1gpu,2", ("1", "2"), False),
        ("0,0", (), False),
        ("none", (), False),
        ("GPU-8932f937,GPU-5d1a0c2b", ("GPU-8932f937", "GPU-5d1a0c2b"), False),
        ("GPU-8932f937,1", ("GPU-8932f937",), False),
        ("MIG-6f2c1a3e", ("MIG-6f2c1a3e",), True),
        ("MIG-GPU-5d1a0c2b/1/0", ("MIG-GPU-5d1a0c2b/1/0",), True),
    ],
)
def test_visible_devices_reads_what_cuda_reads(
    value: str | None, entries: tuple[str, ...], mig: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parse_visible_devices(value)
    assert found.entries == entries
    assert found.mig is mig
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert tuple(str(entry) for entry in torch.cuda._parse_visible_devices()) == entries


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "set but empty"),
        ("-1", "hides every GPU"),
        ("0,0", "names 0 twice"),
        ("0,x", "only the 1 before it"),
    ],
)
def test_visible_devices_that_hide_gpus_are_explained(value: str, words: str) -> None:
    assert words in str(parse_visible_devices(value).notice)
    assert parse_visible_devices("0,1").notice is None


def test_visibility_changed_after_cuda_read_it_is_noticed() -> None:
    assert changed_too_late("0", "0,1", cuda_initialized=False) is None
    assert changed_too_late("0", "0", cuda_initialized=True) is None
    assert "restart the kernel" in str(changed_too_late(None, "1", cuda_initialized=True))


def test_cpu_build_beside_a_gpu_driver_is_noticed() -> None:
    assert "CPU-only build" in str(missing_gpu_build(False, "NVIDIA", "CPU only"))
    assert missing_gpu_build(False, None, "CPU only") is None
    assert missing_gpu_build(False, "NVIDIA", "CUDA 12.8") is None


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/pod/box/cpu.max": "400000 100000\n",
            },
            1.0,
        ),
        ({"proc/self/cgroup": "0::/not/mounted\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/box\n1:memory:/\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "what is this\n"}, None),
    ],
)
def test_container_quota_is_found(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert cgroup_quota(tree(tmp_path, files)) == quota


def test_usable_cores_obeys_quota_and_affinity(tmp_path: Path) -> None:
    half = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"})
    assert usable_cores(half) == 1
    if not hasattr(os, "sched_setaffinity"):
        return
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from mgpu_utils.cores import usable_cores; print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_probe_answers_from_a_process_of_its_own() -> None:
    answer = accelerator_probe.probe()
    assert isinstance(answer, dict)
    assert len(answer["devices"]) == torch.accelerator.device_count()
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(
    ("code", "timeout", "words"),
    [
        ("import time; time.sleep(30)", 0.5, "did not answer within 0.5 s"),
        ("raise SystemExit('driver is broken')", 30, "could not be opened: driver is broken"),
        ("print('not json')", 30, "could not be opened: exit status 0"),
    ],
)
def test_probe_that_fails_becomes_one_sentence(code: str, timeout: float, words: str) -> None:
    assert words in str(accelerator_probe.ask([sys.executable, "-c", code], timeout))


def test_survey_is_json_without_anything_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    text = json.dumps(survey().to_dict())
    assert json.loads(text)["cores"] == usable_cores()
    words = json.loads(text).values()
    assert platform.node() not in words
    assert getpass.getuser() not in words
    for private in {platform.node(), str(Path.home()), str(Path.cwd())} - {""}:
        assert private not in text


def test_survey_draws_the_same_rows_as_text_and_as_a_table() -> None:
    found = survey()
    page = found._repr_html_()
    for name, _ in found.rows():
        assert name in str(found)
        assert f">{name}</th>" in page
    for loud in ("color", "background", "<style"):
        assert loud not in page
    assert found.plan is not None
    assert found.plan.reason in str(found)


def made_up_survey() -> DeviceSurvey:
    visible = parse_visible_devices("3,1")
    gpus = tuple(
        Accelerator(i, "GPU <X>", 80 * 2**30, 79 * 2**30, (9, 0), entry, f"serial-{i}")
        for i, entry in enumerate(visible.entries)
    )
    found = decide(Hardware("cuda", 2, 8, nccl=True))
    peers = ((True, False), (False, True))
    return DeviceSurvey(
        "Linux x86_64", "3.12.0", "2.13.0", "CUDA 12.8", "cuda", gpus, peers, {"nccl": True}, 8, 16,
        visible, found, found.reason, ("look here",),
    )  # fmt: skip


def test_survey_of_two_gpus_shows_names_memory_numbers_and_links() -> None:
    text = str(made_up_survey())
    assert "GPU <X>, 80.0 GiB (79.0 GiB free), compute capability 9.0" in text
    assert "'3,1' (0 is 3, 1 is 1)" in text
    assert "no pair" in text
    assert "2 over nccl: cuda:0, cuda:1" in text
    assert "look here" in text
    assert "GPU &lt;X&gt;" in made_up_survey()._repr_html_()
    assert "serial-" not in json.dumps(made_up_survey().to_dict())


def test_survey_shows_nonsense_in_the_environment_where_plan_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_WORLD_SIZE", "two")
    assert survey().plan is None
    assert "MGPU_WORLD_SIZE is 'two'" in str(survey())
    with pytest.raises(ValueError, match="MGPU_WORLD_SIZE is 'two'"):
        plan()
    monkeypatch.setenv("MGPU_WORLD_SIZE", "3")
    monkeypatch.setenv("MGPU_DEVICE", "cpu")
    assert plan().world_size == 3


def test_nothing_here_opens_a_gpu_in_this_process() -> None:
    survey()
    plan()
    assert not torch.cuda.is_initialized()
    # On a machine without a GPU the assertion above cannot fail, so the calls are looked for as well.
    opening = {"get_device_properties", "get_device_name", "mem_get_info", "get_memory_info", "init"}
    for module in (devices, sys.modules[decide.__module__], sys.modules[usable_cores.__module__]):
        names = {
            node.attr
            for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
            if isinstance(node, ast.Attribute)
        }
        assert not names & opening


def one_sentence(text: str) -> bool:
    return text.endswith(".") and text.count(". ") == 0 and "\n" not in text
