"""What the doctor makes of facts: decision tables on made-up machines, and facts read from made-up files."""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu_utils.doctor import folder_checks, jupyter_checks, network_checks, place_checks, python_checks, torch_probe
from mgpu_utils.doctor.driver_checks import Cards, judge_driver, look_for_cards
from mgpu_utils.doctor.examination import gpus_to_try
from mgpu_utils.doctor.findings import Finding
from mgpu_utils.doctor.folder_checks import Folders, write_trouble
from mgpu_utils.doctor.gpu_arithmetic import runs_on
from mgpu_utils.doctor.jupyter_checks import Kernel, Widgets
from mgpu_utils.doctor.place_checks import Place
from mgpu_utils.doctor.python_checks import Package
from mgpu_utils.doctor.resource_checks import (
    Resources,
    judge_cores,
    judge_files,
    judge_memory,
    judge_shared_memory,
    judge_threads,
    memory_limit,
)
from mgpu_utils.doctor.torch_checks import TorchFacts, judge, judge_gpus, judge_visible

GIB = 2**30
CPU: dict[str, Any] = {
    "version": "2.13.0",
    "cuda": None,
    "hip": None,
    "mps": False,
    "xpu": False,
    "architectures": [],
    "gloo": True,
    "nccl": False,
    "threads": 1,
}
CUDA: dict[str, Any] = CPU | {"cuda": "13.0", "nccl": True, "architectures": ["sm_80", "sm_90", "compute_90"]}
ROCM: dict[str, Any] = CPU | {"hip": "7.1", "nccl": True}
NOTHING: dict[str, Any] = {"kind": None, "count": 0, "devices": [], "peers": [], "mig": False, "trouble": None}
H100: dict[str, Any] = {
    "name": "NVIDIA H100",
    "memory": 80 * GIB,
    "free": 79 * GIB,
    "capability": [9, 0],
    "trouble": None,
}
NVIDIA = Cards("NVIDIA", "580.95.05")
NO_GPU = "Found no NVIDIA driver on your system."
WHOLE = Resources(8, 8, None, 30 * GIB, 32 * GIB, None, 16 * GIB, 16 * GIB, 4096, 4096)


def gpus(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    count = len(devices)
    peers = [[True] * count] * count
    return {
        "kind": "cuda",
        "count": count,
        "devices": list(devices),
        "peers": peers,
        "mig": False,
        "trouble": None,
    } | more


def one(findings: list[Finding]) -> Finding:
    assert len(findings) == 1
    return findings[0]


@pytest.mark.parametrize(
    ("torch", "cuda_of_driver", "cards", "container", "state", "words"),
    [
        (CPU, None, Cards(), False, "ok", "none is needed"),
        (CPU, 13000, NVIDIA, False, "warning", "CPU-only build although an NVIDIA driver 580.95.05"),
        (CPU, None, Cards("NVIDIA"), False, "note", "install NVIDIA's driver"),
        (CPU, None, Cards("NVIDIA"), True, "note", "--gpus all"),
        (CPU, None, Cards("AMD", ""), False, "note", "if ROCm supports that GPU"),
        (CUDA, None, Cards(), False, "note", "no such GPU is visible"),
        (CUDA, None, Cards("NVIDIA"), False, "warning", "no driver for it is in reach"),
        (CUDA, None, Cards("AMD", ""), False, "note", "CUDA 13.0 build"),
        (CUDA, None, NVIDIA, True, "warning", "--gpus all"),
        (CUDA, None, NVIDIA, False, "warning", "libcuda cannot be loaded"),
        (CUDA, 13000, NVIDIA, False, "ok", "supports CUDA 13.0"),
        (CUDA, 13010, NVIDIA, False, "ok", "supports CUDA 13.1"),
        (CUDA, 12040, Cards("NVIDIA", "550.54"), False, "broken", "driver 580 or newer"),
        (CUDA, 12040, Cards("NVIDIA", ""), False, "broken", "supports CUDA 12.4 at most"),
        (CUDA | {"cuda": "12.8"}, 12040, NVIDIA, False, "note", "same major version"),
        (CUDA | {"cuda": "12.8"}, 13000, NVIDIA, False, "ok", "built for 12.8"),
        (CUDA | {"cuda": "12.8"}, 11080, NVIDIA, False, "broken", "driver 525 or newer"),
        (CUDA | {"cuda": "14.0"}, 13000, NVIDIA, False, "broken", "a newer driver"),
        (ROCM, None, Cards("AMD", ""), False, "ok", "ROCm 7.1"),
        (ROCM, None, Cards("AMD"), True, "warning", "--device=/dev/kfd"),
        (ROCM, 13000, NVIDIA, False, "warning", "ROCm 7.1 build although"),
        (CPU | {"mps": True}, None, Cards(), False, "ok", "Apple MPS"),
    ],
)
def test_build_is_judged_against_the_driver(
    torch: dict[str, Any], cuda_of_driver: int | None, cards: Cards, container: bool, state: str, words: str
) -> None:
    finding = judge_driver(torch, cuda_of_driver, cards, container=container)
    assert finding.state == state
    assert words in f"{finding.sentence} {finding.cure}"
    assert state not in ("warning", "broken") or finding.cure


@pytest.mark.parametrize(
    ("files", "cards"),
    [
        ({}, Cards()),
        (
            {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5"},
            Cards("NVIDIA", "550.54.15"),
        ),
        ({"dev/dxg": "", "usr/lib/wsl/lib/libcuda.so.1": ""}, Cards("NVIDIA", "")),
        ({"dev/kfd": ""}, Cards("AMD", "")),
        (
            {"sys/bus/pci/devices/a/class": "0x030200\n", "sys/bus/pci/devices/a/vendor": "0x10de\n"},
            Cards("NVIDIA", None),
        ),
        ({"sys/bus/pci/devices/a/class": "0x020000\n", "sys/bus/pci/devices/a/vendor": "0x10de\n"}, Cards()),
        ({"sys/bus/pci/devices/a/class": "0x030000\n", "sys/bus/pci/devices/a/vendor": "0x8086\n"}, Cards()),
    ],
)
def test_cards_are_found_in_what_linux_shows(tmp_path: Path, files: dict[str, str], cards: Cards) -> None:
    write(tmp_path, files)
    assert look_for_cards(tmp_path) == cards


@pytest.mark.parametrize(
    ("capability", "architectures", "fits"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 9), ["sm_80", "sm_90"], True),
        ((8, 0), ["sm_86"], False),
        ((7, 0), ["sm_75", "sm_80"], False),
        ((12, 0), ["sm_80", "sm_90"], False),
        ((12, 0), ["sm_80", "compute_90"], True),
        ((8, 0), ["compute_90"], False),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["sm_90a"], False),
        ((12, 1), ["sm_120"], True),
        ((9, 0), ["gfx942"], False),
    ],
)
def test_compute_capability_is_looked_up_in_the_build(
    capability: tuple[int, int], architectures: list[str], fits: bool
) -> None:
    assert runs_on(capability, architectures) is fits


@pytest.mark.parametrize(
    ("value", "cards", "state", "words"),
    [
        ("", NVIDIA, "warning", "set but empty"),
        ("-1", NVIDIA, "warning", "hides every GPU"),
        ("-1", Cards(), "note", "hides every GPU"),
        ("0,0", NVIDIA, "warning", "twice"),
        ("1,x", NVIDIA, "warning", "stops reading"),
        ("0", Cards(), "note", "it changes nothing"),
        ("3,1", NVIDIA, "note", "cuda:0 is GPU 3, cuda:1 is GPU 1"),
        ("GPU-8932f937,GPU-45a", NVIDIA, "note", "2 devices (by UUID)"),
        ("MIG-41b36f91", NVIDIA, "note", "1 device (MIG instances by UUID)"),
    ],
)
def test_cuda_visible_devices_is_explained(value: str, cards: Cards, state: str, words: str) -> None:
    finding = one(judge_visible(value, cards))
    assert finding.state == state
    assert words in finding.sentence
    assert bool(finding.cure) is (state == "warning")


def test_unset_cuda_visible_devices_has_no_line() -> None:
    assert judge_visible(None, NVIDIA) == []


@pytest.mark.parametrize(
    ("device", "state", "words"),
    [
        ({}, "ok", "NVIDIA H100, 80.0 GiB (79.0 GiB free), compute capability 9.0: computes."),
        ({"free": GIB // 2}, "warning", "little memory is free"),
        ({"capability": [7, 0]}, "broken", "no code for it (only sm_80 sm_90 compute_90)"),
        ({"trouble": "CUDA error: device busy"}, "broken", "computation failed: CUDA error: device busy"),
        ({"free": None, "memory": None, "capability": None}, "ok", "NVIDIA H100: computes."),
    ],
)
def test_each_gpu_has_a_line(device: dict[str, Any], state: str, words: str) -> None:
    finding = one(judge_gpus(TorchFacts(13000, CUDA, gpus(H100 | device)), expected=True))
    assert finding.name == "cuda:0"
    assert finding.state == state
    assert words in finding.sentence


def test_gpus_that_do_not_answer_are_broken() -> None:
    facts = TorchFacts(13000, CUDA, trouble="no answer within 15 s", silent=True)
    finding = one(judge_gpus(facts, expected=True))
    assert finding.state == "broken"
    assert "no answer within 15 s" in finding.sentence
    assert "nvidia-smi" in (finding.cure or "")


@pytest.mark.parametrize(
    ("torch", "cuda_of_driver", "cards", "visible", "names"),
    [
        # A laptop with the usual CUDA build: nothing is broken, and the driver's line says it all.
        (CUDA, None, Cards(), None, []),
        (CUDA, None, Cards("AMD", ""), None, []),
        (ROCM, None, Cards(), None, []),
        (ROCM, None, Cards("AMD", ""), None, ["GPUs"]),
        (CUDA, 12040, NVIDIA, None, ["GPU driver"]),
        (CUDA, 13000, NVIDIA, "-1", []),
        (CUDA, 13000, NVIDIA, None, ["GPUs"]),
    ],
)
def test_missing_gpu_is_told_once(
    torch: dict[str, Any], cuda_of_driver: int | None, cards: Cards, visible: str | None, names: list[str]
) -> None:
    found = NOTHING | {"kind": "cuda", "trouble": NO_GPU}
    facts = TorchFacts(cuda_of_driver, torch, found, {"reason": "x", "sound": True})
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [f.name for f in judge(facts, cards, environ, False) if f.state == "broken"] == names


@pytest.mark.parametrize(
    ("peers", "state", "words"),
    [
        ([[True, True], [True, True]], "ok", "every pair"),
        ([[True, False], [False, True]], "note", "no pair of GPUs"),
        ([[True, True, False], [True, True, True], [False, True, True]], "note", "every pair but 0-2"),
    ],
)
def test_peer_access_has_a_line(peers: list[list[bool]], state: str, words: str) -> None:
    facts = TorchFacts(13000, CUDA, gpus(*[H100] * len(peers), peers=peers))
    finding = judge_gpus(facts, expected=True)[-1]
    assert (finding.name, finding.state) == ("Peer access", state)
    assert words in finding.sentence


def test_mig_slices_are_explained_and_nccl_is_not_tried_on_them() -> None:
    slices = gpus(H100 | {"name": "NVIDIA H100 MIG 1g.10gb"}, H100 | {"name": "NVIDIA H100 MIG 1g.10gb"}, mig=True)
    facts = TorchFacts(13000, CUDA, slices, {"reason": "x", "sound": True})
    finding = one([f for f in judge(facts, NVIDIA, {}, False) if f.name == "MIG"])
    assert finding.state == "note"
    assert "a process can use one instance, and nccl does not connect instances" in finding.sentence
    assert gpus_to_try(facts) == 0
    assert gpus_to_try(replace(facts, found=gpus(H100, H100))) == 2


def test_nccl_is_not_tried_where_a_gpu_failed_or_it_is_not_built_in() -> None:
    assert gpus_to_try(TorchFacts(13000, CUDA, gpus(H100, H100 | {"trouble": "busy"}))) == 0
    assert gpus_to_try(TorchFacts(13000, CUDA | {"nccl": False}, gpus(H100, H100))) == 0
    assert gpus_to_try(TorchFacts(None, CPU, NOTHING)) == 0


def test_probe_plans_like_the_course(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MGPU_DEVICE", raising=False)
    monkeypatch.delenv("MGPU_WORLD_SIZE", raising=False)
    assert "2 ranks run on nccl" in torch_probe.plan(CUDA, gpus(H100, H100))["reason"]
    assert "one instance only" in torch_probe.plan(CUDA, gpus(H100, H100, mig=True))["reason"]
    assert "finds no GPU" in torch_probe.plan(CUDA, NOTHING | {"kind": "cuda"})["reason"]
    monkeypatch.setenv("MGPU_WORLD_SIZE", "two")
    assert torch_probe.plan(CPU, NOTHING)["sound"] is False


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (TorchFacts(trouble="ModuleNotFoundError: No module named 'torch'"), "broken", "not installed"),
        (
            TorchFacts(trouble="OSError: libcudart.so.13: cannot open"),
            "broken",
            "cannot be imported: OSError: libcudart",
        ),
        (TorchFacts(trouble="no answer within 20 s", silent=True), "warning", "no answer within 20 s"),
    ],
)
def test_torch_that_cannot_be_imported_is_told(facts: TorchFacts, state: str, words: str) -> None:
    finding = one(judge(facts, Cards(), {}, False))
    assert (finding.name, finding.state) == ("PyTorch", state)
    assert words in finding.sentence
    assert finding.cure


@pytest.mark.parametrize(
    ("plan", "state", "words"),
    [
        ({"reason": "r", "sound": True}, "ok", ""),
        ({"reason": "MGPU_WORLD_SIZE is 'two'.", "sound": False}, "broken", "variable"),
        ({"reason": "This PyTorch was built without gloo.", "sound": False}, "broken", "standard build"),
        ({}, "warning", "mgpu.survey()"),
    ],
)
def test_variables_that_steer_the_course_are_checked(plan: dict[str, Any], state: str, words: str) -> None:
    facts = TorchFacts(None, CPU, NOTHING, plan, trouble="ended by SIGKILL")
    finding = one([f for f in judge(facts, Cards(), {}, False) if f.name == "Where ranks run"])
    assert finding.state == state
    assert words in (finding.cure or "")


@pytest.mark.parametrize(
    ("files", "environ", "folder", "place"),
    [
        ({}, {}, "/home/x", Place()),
        ({".dockerenv": ""}, {}, "/home/x", Place("Docker")),
        ({"run/.containerenv": ""}, {}, "/home/x", Place("Podman")),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "/home/x", Place("Kubernetes")),
        ({"proc/self/cgroup": "0::/kubepods/pod1\n"}, {}, "/home/x", Place("kubepods")),
        ({"proc/self/cgroup": "0::/user.slice\n"}, {}, "/home/x", Place()),
        (
            {"proc/version": "Linux version 5.15.153.1-microsoft-standard-WSL2"},
            {},
            "/mnt/c/Users/x",
            Place(None, 2, True),
        ),
        ({"proc/version": "Linux version 4.4.0-19041-Microsoft"}, {}, "/home/x", Place(None, 1)),
        ({"proc/version": "Linux version 6.8.0-generic"}, {}, "/mnt/c/x", Place()),
    ],
)
def test_place_is_recognised(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], folder: str, place: Place
) -> None:
    write(tmp_path, files)
    assert place_checks.look(tmp_path, environ, Path(folder)) == place


@pytest.mark.parametrize(
    ("place", "states", "words"),
    [
        (Place(), [], ""),
        (Place("Docker"), ["note"], "--shm-size=1g"),
        (Place(wsl=1), ["warning"], "wsl --set-version"),
        (Place(wsl=2), ["note"], ".wslconfig"),
        (Place(wsl=2, windows_disk=True), ["note", "warning"], "home folder of Linux"),
    ],
)
def test_place_says_what_is_special(place: Place, states: list[str], words: str) -> None:
    found = place_checks.judge(place)
    assert [finding.state for finding in found] == states
    assert words in " ".join(f"{finding.cure}" for finding in found)


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, "ok", "8 of 8"),
        ({"cores": 2}, "note", "bound to them"),
        ({"cores": 1, "quota": 1.5}, "warning", "share one core"),
        ({"cores": 3, "quota": 3.5}, "note", "a quota of 3.5 cores"),
        ({"quota": 16.0}, "ok", "8 of 8"),
    ],
)
def test_cores_and_quota_are_judged(change: dict[str, Any], state: str, words: str) -> None:
    finding = judge_cores(replace(WHOLE, **change))
    assert finding.state == state
    assert words in finding.sentence


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, "ok", "30.0 GiB free of 32.0 GiB"),
        ({"memory_limit": 8 * GIB}, "note", "free of 8.0 GiB"),
        ({"memory_limit": GIB}, "warning", "1.0 GiB free of 1.0 GiB"),
        ({"memory_limit": 64 * GIB}, "ok", "32.0 GiB"),
        ({"memory_available": GIB}, "warning", "1.0 GiB free"),
    ],
)
def test_memory_and_its_limit_are_judged(change: dict[str, Any], state: str, words: str) -> None:
    finding = one(judge_memory(replace(WHOLE, **change)))
    assert finding.state == state
    assert words in finding.sentence


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1000\n"}, 1000),
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/memory.max": "500\n",
                "sys/fs/cgroup/a/memory.max": "1000\n",
            },
            500,
        ),
        ({"proc/self/cgroup": "4:memory:/d\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n"}, 7000),
        ({"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, None),
    ],
)
def test_memory_limit_is_read_from_control_groups(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


@pytest.mark.parametrize(
    ("size", "free", "container", "state", "words"),
    [
        (16 * GIB, 16 * GIB, False, "ok", ""),
        (GIB, GIB, True, "ok", ""),
        (64 * 2**20, 64 * 2**20, True, "warning", "--shm-size=1g or --ipc=host"),
        (64 * 2**20, 64 * 2**20, False, "warning", "remount,size=1g"),
        (16 * GIB, GIB, False, "warning", "killed programs"),
        (16 * GIB, 0, False, "broken", "killed programs"),
        (0, 0, True, "broken", "--shm-size=1g"),
    ],
)
def test_shared_memory_is_judged(size: int, free: int, container: bool, state: str, words: str) -> None:
    finding = one(judge_shared_memory(replace(WHOLE, shm_size=size, shm_free=free), container=container))
    assert finding.state == state
    assert words in (finding.cure or "")


def test_system_without_shared_memory_or_file_limits_has_no_such_lines() -> None:
    bare = Resources(8, 8)
    assert judge_shared_memory(bare, container=False) == judge_files(bare, container=False) == judge_memory(bare) == []


@pytest.mark.parametrize(
    ("soft", "hard", "container", "state", "words"),
    [
        (1024, 4096, False, "ok", ""),
        (2**60, 2**60, False, "ok", ""),
        (256, 4096, False, "warning", "ulimit -n 4096"),
        (256, 256, False, "warning", "administrator"),
        (256, 256, True, "warning", "--ulimit nofile"),
    ],
)
def test_open_file_limit_is_judged(soft: int, hard: int, container: bool, state: str, words: str) -> None:
    finding = one(judge_files(replace(WHOLE, files_soft=soft, files_hard=hard), container=container))
    assert finding.state == state
    assert words in (finding.cure or "")


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (None, "ok"),
        ("1", "note"),
        ("4", "note"),
        ("8,2", "note"),
        ("16", "warning"),
        ("many", "warning"),
        ("0", "warning"),
    ],
)
def test_thread_variable_is_judged(value: str | None, state: str) -> None:
    environ = {} if value is None else {"OMP_NUM_THREADS": value}
    assert one(judge_threads(environ, 8)).state == state


@pytest.mark.parametrize(
    ("environ", "state", "words"),
    [
        ({}, "ok", "none is set"),
        ({"HTTP_PROXY": ""}, "ok", "none is set"),
        ({"http_proxy": "http://p"}, "note", "localhost and 127.0.0.1"),
        ({"ALL_PROXY": "socks5://p", "NO_PROXY": "localhost"}, "note", "also for 127.0.0.1;"),
        ({"ALL_PROXY": "socks5://p", "NO_PROXY": "Localhost, 127.0.0.1"}, "ok", "not used for localhost"),
        ({"https_proxy": "http://p", "no_proxy": "*"}, "ok", "not used for localhost"),
    ],
)
def test_proxies_are_judged_by_whether_they_concern_localhost(environ: dict[str, str], state: str, words: str) -> None:
    finding = network_checks.judge_proxies(environ)
    assert finding.state == state
    assert words in finding.sentence


def test_name_service_that_hangs_or_fails_is_not_waited_for() -> None:
    def fail(name: str, port: None) -> None:
        raise socket.gaierror("unknown")

    assert network_checks.host_name(lambda name, port: time.sleep(30), seconds=0.05) == "slow"
    assert network_checks.host_name(fail) == "unknown"
    assert {network_checks.judge_host_name(state).state for state in ("slow", "unknown")} == {"note"}


def test_network_settings_that_reach_the_ranks_are_told() -> None:
    environ = {"TORCH_DISTRIBUTED_DEBUG": "detail", "NCCL_P2P_DISABLE": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    found = {finding.name: finding for finding in network_checks.judge_debugging(environ)}
    assert found["TORCH_DISTRIBUTED_DEBUG"].state == "warning"
    assert found["NCCL settings"].sentence.startswith("NCCL_P2P_DISABLE set;")
    assert network_checks.judge_outer_job({"TORCHELASTIC_RUN_ID": "1"})[0].state == "note"
    assert network_checks.judge_outer_job({}) == network_checks.judge_debugging({}) == []
    assert network_checks.judge_ipv6(False).state == "note"


@pytest.mark.parametrize(
    ("kernel", "state", "words"),
    [
        (None, "broken", "ipykernel install --sys-prefix"),
        (Kernel("this", "environment"), "ok", ""),
        (Kernel("this", "JUPYTER_PATH"), "ok", ""),
        (Kernel("another", "JUPYTER_PATH"), "broken", "unset JUPYTER_PATH"),
        (Kernel("another", "user"), "broken", "ipykernel install --sys-prefix"),
        (Kernel("missing", "environment"), "broken", "ipykernel install --sys-prefix"),
    ],
)
def test_jupyter_kernel_is_judged(kernel: Kernel | None, state: str, words: str) -> None:
    finding = jupyter_checks.judge_kernel(kernel)
    assert finding.state == state
    assert words in (finding.cure or "")


@pytest.mark.parametrize(
    ("command", "python"),
    [
        ("python", "this"),
        ("python3", "this"),
        ("THIS", "this"),
        ("/usr/bin/env", "another"),
        ("/gone/python", "missing"),
    ],
)
def test_kernel_that_is_found_is_compared_with_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, python: str
) -> None:
    argv = [sys.executable if command == "THIS" else command, "-f", "{connection_file}"]
    text = json.dumps({"argv": argv, "display_name": "x", "language": "python"})
    write(tmp_path, {"kernels/doctored/kernel.json": text})
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert jupyter_checks.look_for_kernel({"JUPYTER_PATH": str(tmp_path)}, "doctored") == Kernel(python, "JUPYTER_PATH")
    assert jupyter_checks.look_for_kernel({}, "no-such-kernel") is None


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (Widgets("8.1.9", "3.0.17", "4.6.6", "5.0.16"), "ok", "they match"),
        (Widgets("7.8.5", "1.1.11", "4.6.6", "3.1.11"), "warning", "do not match"),
        (Widgets("8.1.9", "1.1.11", "4.6.6", "3.1.11"), "warning", "do not match"),
        (Widgets(None, "3.0.17", "4.6.6", "5.0.16"), "warning", "without ipywidgets"),
        (Widgets("8.1.9", "3.0.17", "3.6.8", "5.0.16"), "warning", "made for JupyterLab 4"),
        (Widgets("8.1.9", "3.0.17", "4.6.6", None), "warning", "not found"),
        (Widgets("8.1.9", "3.0.17", "4.6.6", "5.0.16", True), "warning", "disabled"),
        (Widgets("8.1.9", "3.0.17", None, None), "broken", "not installed"),
    ],
)
def test_widgets_are_judged_against_jupyterlab(found: Widgets, state: str, words: str) -> None:
    finding = jupyter_checks.judge_widgets(found)
    assert finding.state == state
    assert words in finding.sentence


def test_disabled_extension_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jupyter_checks.look_at_widgets().disabled is False
    text = '{"disabledExtensions": {"@jupyter-widgets/jupyterlab-manager": true}}'
    write(tmp_path, {"labconfig/page_config.json": text})
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    assert jupyter_checks.look_at_widgets().disabled is True


@pytest.mark.parametrize(
    ("version", "own", "state"),
    [((3, 12), True, "ok"), ((3, 12), False, "note"), ((3, 10), True, "broken"), ((3, 14), True, "broken")],
)
def test_python_version_is_judged(version: tuple[int, int], own: bool, state: str) -> None:
    assert python_checks.judge_python(version, "x", own=own).state == state


def test_packages_are_compared_with_what_the_course_asks_for() -> None:
    found = python_checks.look_at_packages()
    assert found is not None
    assert {"torch", "jupyterlab"} <= {package.name for package in found}
    assert "pytest" not in {package.name for package in found}
    old = python_checks.look_at_packages(lambda name: "0.0.1")
    assert old is not None
    assert not any(package.fits for package in old)


@pytest.mark.parametrize(
    ("packages", "state", "words"),
    [
        ([Package("torch", ">=2.13,<2.14", "2.13.0+cpu", True)], "ok", "all 1"),
        ([Package("torch", ">=2.13,<2.14", "2.9.0", False)], "warning", "torch 2.9.0 (wanted >=2.13,<2.14)"),
        ([Package("torch", ">=2.13,<2.14", None, False)], "broken", "not installed: torch"),
        (None, "broken", "mgpu_utils is not installed"),
    ],
)
def test_packages_are_judged(packages: list[Package] | None, state: str, words: str) -> None:
    finding = python_checks.judge_packages(packages)
    assert finding.state == state
    assert words in finding.sentence


@pytest.mark.parametrize(
    ("found", "states", "words"),
    [
        (Folders(None, 9 * GIB, None, None, None, None), ["ok", "ok", "ok"], ""),
        (Folders(None, 2**20, None, None, None, None), ["broken", "ok", "ok"], "TMPDIR"),
        (Folders("x", None, None, None, None, None), ["broken", "ok", "ok"], "TMPDIR"),
        (Folders(None, 9 * GIB, "Read-only file system", None, None, None), ["ok", "note", "ok"], "MGPU_HOME"),
        (Folders(None, 9 * GIB, None, "Permission denied", None, None), ["ok", "note", "ok"], "MGPU_HOME"),
        (Folders(None, 9 * GIB, None, None, "x", "x"), ["ok", "ok", "broken"], "JUPYTER_DATA_DIR"),
        (Folders(None, 9 * GIB, None, None, None, "x"), ["ok", "ok", "note"], "JUPYTER_CONFIG_DIR"),
    ],
)
def test_folders_are_judged(found: Folders, states: list[str], words: str) -> None:
    findings = folder_checks.judge(found, {})
    assert [finding.state for finding in findings] == states
    assert words in " ".join(finding.cure or "" for finding in findings)


def test_folder_is_tried_by_writing_and_nothing_is_left(tmp_path: Path) -> None:
    assert write_trouble(tmp_path / "not" / "yet") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert write_trouble(tmp_path / "file") == "Not a directory"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
