"""The `mgpu` command, and JupyterLab as it starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu_utils import lab
from mgpu_utils.cli import main
from mgpu_utils.process_tree import kill_tree

ROOT = Path(__file__).resolve().parent.parent
START = "notebooks/00_start_here.ipynb"


def test_the_command_starts_without_the_heavy_packages() -> None:
    code = "import sys, mgpu_utils.cli as cli; cli.build_parser(['lab']); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"torch", "IPython", "matplotlib", "pandas", "jupyter_client", "nbformat"}
    assert heavy.isdisjoint(found.stdout.split())


def test_help_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(re.search(rf"^ +{command}\s", shown, re.MULTILINE) for command in ("lab", "bench", "notebooks"))


def test_an_unknown_option_is_refused_where_it_has_no_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["notebooks", "check", "--colour"])
    assert "unrecognized arguments: --colour" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["lab", "notebooks/07_none.ipynb"], ["lab", "/etc/hosts"], ["lab", "--port", "99999"]]
)
def test_lab_refuses_what_it_cannot_open_in_one_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("mgpu lab: ")
    assert len(told.splitlines()) == 1


def test_lab_opens_a_browser_only_where_somebody_sees_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a b.ipynb").touch()
    monkeypatch.setattr(lab, "has_browser", lambda: True)
    seen = lab.lab_command(tmp_path, "a b.ipynb", no_browser=False, port=9000, extra=["--debug"])
    assert "--no-browser" not in seen
    assert "--LabApp.default_url=/lab/tree/a%20b.ipynb" in seen
    assert "--ServerApp.port=9000" in seen
    assert seen[-1] == "--debug"
    monkeypatch.setattr(lab, "has_browser", lambda: False)
    assert "--no-browser" in lab.lab_command(tmp_path, "a b.ipynb", no_browser=False, port=None)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a screen to look at")
def test_a_linux_machine_without_a_screen_has_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not lab.has_browser()


def soon(true: Callable[[], Any], server: subprocess.Popen[bytes], log: Path) -> Any:
    """Wait until something holds while the server lives; the limit only keeps a broken test from hanging."""
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        found = true()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing happened; the server said: {log.read_text()}")


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no signals to end JupyterLab with; Ctrl-C does it there"
)
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_lab_serves_the_course_on_this_python_and_ends_at_a_signal(tmp_path: Path, ending: signal.Signals) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "mgpu_utils.cli", "lab", START, "--no-browser", "--ServerApp.port_retries=50"]
    with log.open("w") as file:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, stdin=subprocess.DEVNULL
        )
    try:
        told = soon(lambda: re.search(r"(http://127\S+?)/lab/tree/(\S+?)\?token=(\w+)", log.read_text()), server, log)
        base, opened, token = told.groups()
        assert opened == START

        def ask(path: str, data: bytes | None = None) -> Any:
            request = urllib.request.Request(f"{base}/api/{path}", data, {"Authorization": f"token {token}"})
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)

        assert START in [entry["path"] for entry in ask("contents/notebooks")["content"]]
        with urllib.request.urlopen(f"{base}/lab?token={token}", timeout=20) as page:
            assert "apputils-extension:announcements" in page.read().decode(), "JupyterLab would ask about its news"
        ask("kernels", json.dumps({"name": "python3"}).encode())
        kernels = soon(lambda: psutil.Process(server.pid).children(recursive=True), server, log)
        assert [kernel.cmdline()[0] for kernel in kernels] == [sys.executable]
        server.send_signal(ending)
        server.wait(timeout=30)
        assert psutil.wait_procs(kernels, timeout=10)[1] == []
    finally:
        kill_tree(server.pid)
        server.wait()
