"""`mgpu doctor` as a learner runs it: once on this machine as it is, once in an environment full of traps."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu_utils.doctor import examination, network_checks
from mgpu_utils.doctor.command import add_parser
from mgpu_utils.doctor.findings import STATES, Finding, count, foreign, guarded, report, summary
from mgpu_utils.doctor.torch_checks import TorchFacts, ask

_COMMAND = """
import argparse, sys
from mgpu_utils.doctor.command import add_parser
parser = argparse.ArgumentParser()
add_parser(parser.add_subparsers())
options = parser.parse_args(sys.argv[1:])
sys.exit(options.handler(options))
"""
_HOST = "no-such-machine.invalid"
_NAMESPACE = ["unshare", "--map-root-user", "--uts", "--mount"]


def _run(arguments: list[str]) -> tuple[argparse.Namespace, Callable[[argparse.Namespace], int]]:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(arguments)
    return options, options.handler


def _namespaces_work() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*_NAMESPACE, "hostname", _HOST], capture_output=True, check=False)
    return tried.returncode == 0


needs_namespaces = pytest.mark.skipif(not _namespaces_work(), reason="needs namespaces of Linux without a password")


def _alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}


@dataclass(frozen=True)
class Trapped:
    """What the doctor said in the environment full of traps."""

    status: int
    text: str
    stderr: str

    def __getitem__(self, name: str) -> dict[str, Any]:
        found = [finding for finding in json.loads(self.text)["findings"] if finding["name"] == name]
        assert len(found) == 1, f"{name}: {found}"
        return found[0]


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Trapped:
    """One run with a foreign kernel, proxies, an outer job, few open files, a small /dev/shm, a nameless host."""
    folder = tmp_path_factory.mktemp("traps")
    kernel = folder / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = ["/usr/bin/env", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Other", "language": "python"}))
    (folder / "torch.py").write_text("raise RuntimeError('the wrong torch')")
    environment = {
        **os.environ,
        "HTTP_PROXY": "http://someone:opensesame@127.0.0.1:9",
        "https_proxy": "http://someone:opensesame@127.0.0.1:9",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "RANK": "3",
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": "1",
        "JUPYTER_PATH": str(folder / "jupyter"),
        "HOME": "/proc/nobody",
    }
    for name in ("no_proxy", "NO_PROXY", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        environment.pop(name, None)
    traps = "ulimit -n 300; exec "
    wrapper = []
    if _namespaces_work():
        wrapper = _NAMESPACE
        traps = f"hostname {_HOST} && mount -t tmpfs -o size=64m none /dev/shm && " + traps
    command = [*wrapper, "sh", "-c", f'{traps}"$@"', "sh", sys.executable, "-P", "-c", _COMMAND, "doctor", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment, check=False, cwd=folder
    )
    assert done.stdout, done.stderr
    return Trapped(done.returncode, done.stdout, done.stderr)


def test_doctor_prints_one_line_each_and_says_how_long_it_took(
    capsys: pytest.CaptureFixture[str], note: Callable[[str], None]
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    started = time.perf_counter()
    options, doctor = _run(["doctor"])
    status = doctor(options)
    note(f"mgpu doctor: {time.perf_counter() - started:.1f} s")
    lines = capsys.readouterr().out.splitlines()
    found = [line.split(maxsplit=1)[0] for line in lines[:-2] if not line.startswith(" ")]
    assert set(found) <= set(STATES)
    assert status == int("broken" in found)
    assert any(line.startswith("ok") and "two CPU ranks added up" in line for line in lines)
    assert lines[-1].startswith("Broken:" if status else "Nothing is broken.")
    assert lines[-1].endswith(" s)")
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_one_broken_part_gives_exit_status_1_and_is_named(trapped: Trapped) -> None:
    whole = json.loads(trapped.text)
    assert trapped.status == 1
    assert whole["summary"]["broken"] == sum(finding["state"] == "broken" for finding in whole["findings"])
    assert whole["summary"]["sentence"].startswith("Broken: ")
    assert "Jupyter kernel" in whole["summary"]["sentence"]
    assert whole["versions"]["torch"]


def test_every_line_that_is_broken_or_a_warning_has_a_cure(trapped: Trapped) -> None:
    for finding in json.loads(trapped.text)["findings"]:
        assert finding["sentence"].endswith("."), finding
        if finding["state"] in ("broken", "warning"):
            assert finding["cure"], finding


def test_kernel_of_another_python_is_broken(trapped: Trapped) -> None:
    assert trapped["Jupyter kernel"]["state"] == "broken"
    assert "JUPYTER_PATH" in trapped["Jupyter kernel"]["sentence"]
    assert "another Python" in trapped["Jupyter kernel"]["sentence"]
    assert "unset JUPYTER_PATH" in trapped["Jupyter kernel"]["cure"]


def test_proxies_are_named_without_their_values(trapped: Trapped) -> None:
    assert trapped["Proxies"]["state"] == "note"
    assert "HTTP_PROXY, https_proxy set, also for localhost and 127.0.0.1" in trapped["Proxies"]["sentence"]
    assert "opensesame" not in trapped.text
    assert "someone" not in trapped.text


def test_ranks_meet_although_proxies_an_outer_job_and_a_nameless_host_are_in_the_way(trapped: Trapped) -> None:
    assert trapped["gloo"]["state"] == "ok"
    assert "MASTER_ADDR, MASTER_PORT, RANK set; harmless" in trapped["Outer job"]["sentence"]


def test_torch_in_the_working_directory_is_not_taken_for_pytorch(trapped: Trapped) -> None:
    assert trapped["PyTorch"]["state"] == "ok"


def test_home_folder_without_write_permission_is_told_with_its_cure(trapped: Trapped) -> None:
    assert trapped["Jupyter's folders"]["state"] == "broken"
    assert "JUPYTER_DATA_DIR" in trapped["Jupyter's folders"]["cure"]


def test_open_file_limit_below_1024_is_a_warning(trapped: Trapped) -> None:
    assert trapped["Open files"]["state"] == "warning"
    assert "only 300" in trapped["Open files"]["sentence"]


def test_hidden_gpus_and_a_thread_setting_are_told(trapped: Trapped) -> None:
    assert "hides every GPU" in trapped["CUDA_VISIBLE_DEVICES"]["sentence"]
    assert trapped["OMP_NUM_THREADS"]["state"] == "note"
    assert "ranks and benchmarks set their own" in trapped["OMP_NUM_THREADS"]["sentence"]


@needs_namespaces
def test_host_name_without_an_address_is_harmless_and_said_so(trapped: Trapped) -> None:
    assert trapped["Host name"]["state"] == "note"
    assert "harmless" in trapped["Host name"]["sentence"]
    assert "GLOO_SOCKET_IFNAME" in trapped["Host name"]["cure"]


@needs_namespaces
def test_64_mib_of_shared_memory_are_a_warning(trapped: Trapped) -> None:
    assert trapped["/dev/shm"]["state"] == "warning"
    assert trapped["/dev/shm"]["sentence"].startswith("64 MiB")


def test_nothing_names_the_user_the_machine_or_a_home_folder(trapped: Trapped) -> None:
    for secret in (socket.gethostname(), _HOST, str(Path.home()), "/proc/nobody", sys.prefix):
        assert secret not in trapped.text
    if getpass.getuser() not in ("root", "user"):
        assert getpass.getuser() not in trapped.text


def test_libraries_do_not_warn_between_the_lines(trapped: Trapped) -> None:
    assert trapped.stderr == ""


@needs_namespaces
def test_loopback_that_is_down_is_broken() -> None:
    code = "from mgpu_utils.doctor import network_checks as n; print(n.loopback_trouble(), n.has_ipv6(), sep='|')"
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-c", code]
    trouble, ipv6 = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split("|")
    assert trouble != "None"
    assert ipv6 == "False"
    assert network_checks.judge_loopback(trouble).state == "broken"


@needs_namespaces
@pytest.mark.parametrize(("size", "state"), [("1m", "broken"), ("200m", "warning")])
def test_full_disk_for_temporary_files_is_told(tmp_path: Path, size: str, state: str) -> None:
    code = (
        "import os; from mgpu_utils.doctor import folder_checks as f; "
        "print(f.judge_temporary(f.look(os.environ)).state)"
    )
    script = f"mount -t tmpfs -o size={size} none '{tmp_path}' && TMPDIR='{tmp_path}' exec \"$@\""
    command = [*_NAMESPACE, "sh", "-c", script, "sh", sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == state


def test_interrupt_ends_a_doctor_whose_ranks_hang_and_leaves_no_process() -> None:
    code = (
        "from functools import partial\n"
        "from mgpu_utils.doctor import examination\n"
        "from mgpu_utils.doctor.preflight import Limits\n"
        "asleep = ('-c', 'import time; time.sleep(600)')\n"
        "examination.all_reduce = partial(examination.all_reduce, ranks=(asleep, asleep))\n"
        "examination.examine(Limits(start=600))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    pids: set[int] = set()
    while len(pids) < 3 and time.monotonic() < deadline:
        pids = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    try:
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert said.strip().endswith("KeyboardInterrupt")
    assert len(pids) == 3
    assert not _alive(pids)


def test_probe_that_hangs_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgpu_utils.doctor.torch_checks._START_SECONDS", 1.0)
    before = psutil.Process().children()
    facts = ask(["-c", 'print(\'{"event": "driver", "cuda": null}\', flush=True); import time; time.sleep(60)'])
    assert facts.silent
    assert not facts.torch
    assert psutil.Process().children() == before


def test_probe_that_crashes_is_told_with_its_last_words() -> None:
    facts = ask(["-c", "import sys, os; print('libcudart.so.13: no such file', file=sys.stderr); os.abort()"])
    assert facts == TorchFacts(trouble="ended by SIGABRT; libcudart.so.13: no such file")


def test_check_that_fails_itself_is_a_finding() -> None:
    def check() -> list[Finding]:
        raise KeyError("odd")

    found = guarded("Some check", check)
    assert [finding.state for finding in found] == ["warning"]
    assert "failed itself (KeyError: 'odd')" in found[0].sentence


def test_failing_parts_do_not_keep_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("no")

    for name in ("torch_checks.ask", "all_reduce", "resource_checks.look", "jupyter_checks.look_for_kernel"):
        monkeypatch.setattr(f"mgpu_utils.doctor.examination.{name}", fail)
    monkeypatch.setattr(examination.network_checks, "look", fail)
    found = {finding.name: finding for finding in examination.examine()}
    failed = {name for name, finding in found.items() if "failed itself" in finding.sentence}
    assert failed == {"PyTorch", "gloo", "NCCL", "Resources", "Network", "Jupyter kernel"}
    assert found["JupyterLab"].state == "ok"


def test_report_puts_a_cure_below_its_line_and_a_summary_at_the_end() -> None:
    findings = [
        Finding("A", "ok", "Fine."),
        Finding("Longer", "broken", "Bad.", "mend it."),
        Finding("C", "note", "Odd.", "leave it."),
    ]
    assert report(findings, 1.25).splitlines() == [
        "ok       A       Fine.",
        "broken   Longer  Bad.",
        "                 Cure: mend it.",
        "note     C       Odd.",
        "                 Tip: leave it.",
        "",
        "Broken: Longer. 1 ok, 1 note, 0 warnings, 1 broken. (1.2 s)",
    ]
    assert summary(findings[:1]).startswith("Nothing is broken.")
    assert count(findings) == {"ok": 1, "note": 1, "warning": 0, "broken": 1}


def test_foreign_text_loses_credentials_and_paths() -> None:
    text = foreign("cannot reach http://me:secret@proxy:3128\n  File /home/me/course/x.py")
    assert "secret" not in text
    assert "/home/me" not in text
    assert "x.py" in text
    assert len(foreign("word " * 100)) == 200
