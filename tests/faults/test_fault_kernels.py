"""Whatever ends the notebook, its ranks end with it; and every kind of notebook kernel can have ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from jupyter_client import BlockingKernelClient
from measured import Recorder
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]
START = (
    "import mgpu_utils as mgpu, os\n"
    "ranks = mgpu.start_ranks(2, device='cpu', timeout=600)\n"
    "print(os.getpid(), *ranks.run(os.getpid), flush=True)\n"
)
BUSY = "ranks.execute('while True: pass')"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals and signals of POSIX")


def gone(numbers: list[int], seconds: float = 30.0) -> float:
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        left = [n for n in numbers if psutil.pid_exists(n) and psutil.Process(n).status() != psutil.STATUS_ZOMBIE]
        if not left:
            return time.monotonic() - start
        time.sleep(0.05)
    raise AssertionError(f"processes {left} are still there after {seconds:g} s")


def test_ranks_end_with_a_kernel_that_is_killed_while_they_work(
    recorder: Recorder, note: Callable[[str], None]
) -> None:
    owner = subprocess.Popen([sys.executable, "-c", START + BUSY], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    with owner:
        numbers = [int(number) for number in owner.stdout.readline().split()]
        time.sleep(0.5)
        owner.kill()
        owner.wait()
    seconds = gone(numbers)
    recorder.end("the kernel is killed while the ranks work", seconds)
    note(f"notebook killed while its ranks work: all gone after {seconds:.2f} s")


def test_ranks_end_when_the_terminal_is_closed(recorder: Recorder, note: Callable[[str], None]) -> None:
    import pty

    terminal, end = pty.openpty()
    owner = subprocess.Popen(
        [sys.executable, "-c", START + "import threading\nthreading.Event().wait()"],
        stdin=end,
        stdout=end,
        stderr=end,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(end)
    with owner, os.fdopen(terminal, "rb", buffering=0) as screen:
        line = b""
        while not line.endswith(b"\n"):
            line += screen.read(1)
        numbers = [int(number) for number in line.split()]
        assert len(numbers) == 3
        screen.close()
        owner.wait(timeout=30)
    assert owner.returncode == -signal.SIGHUP
    seconds = gone(numbers)
    recorder.end("the terminal is closed", seconds)
    note(f"terminal closed: all gone after {seconds:.2f} s")


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_ranks_end_with_the_server_of_jupyterlab(
    how: str, tmp_path: Path, recorder: Recorder, note: Callable[[str], None]
) -> None:
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    command += ["--IdentityProvider.token=fault", "--ServerApp.password=", f"--ServerApp.root_dir={ROOT}"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    client = BlockingKernelClient()
    try:
        address = json.loads(_when_written(tmp_path, "jpserver-*.json").read_text())["url"]
        _post(f"{address}api/kernels?token=fault")
        connection = _when_written(tmp_path, "kernel-*.json")
        client.load_connection_file(str(connection))
        # Its heartbeat would call a kernel dead that is busy with imports on a busy machine.
        client.start_channels(hb=False)
        client.wait_for_ready(timeout=60)
        said: list[str] = []
        client.execute_interactive(
            START,
            timeout=120,
            output_hook=lambda m: said.append(m["content"].get("text", "")) if "text" in m["content"] else None,
        )
        numbers = [int(number) for number in "".join(said).split()]
        assert len(numbers) == 3
        client.execute(BUSY)
        time.sleep(0.5)
        server.terminate() if how == "closed" else server.kill()
        server.wait(timeout=60)
        seconds = gone(numbers)
        recorder.end("JupyterLab is closed or killed", seconds)
        note(f"JupyterLab's server {how}: kernel and ranks gone after {seconds:.2f} s")
    finally:
        client.stop_channels()
        server.kill()
        server.wait()


def _when_written(folder: Path, pattern: str, seconds: float = 60.0) -> Path:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for file in folder.glob(pattern):
            text = file.read_text()
            if text.rstrip().endswith("}") and (not pattern.startswith("kernel") or json.loads(text).get("shell_port")):
                return file
        time.sleep(0.1)
    raise AssertionError(f"{pattern} was not written in {seconds:g} s")


def _post(address: str, seconds: float = 60.0) -> None:
    """Send an empty request, as soon as the server takes it: it writes its address before it listens."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + seconds
    while True:
        try:
            opener.open(urllib.request.Request(address, data=b"{}", method="POST"), timeout=60).close()
            return
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_the_kernel_of_vs_code_can_have_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What its extension sets for a kernel, and the names that it puts into every notebook.
    for name, value in {
        "VSCODE_PID": "1",
        "VSCODE_CWD": str(tmp_path),
        "VSCODE_IPC_HOOK": str(tmp_path / "vscode.sock"),
        "ELECTRON_RUN_AS_NODE": "1",
        "PYDEVD_USE_FRAME_EVAL": "NO",
        "PYDEVD_IPYTHON_COMPATIBLE_DEBUGGING": "1",
        "PYTHONIOENCODING": "utf-8",
        "TERM_PROGRAM": "vscode",
    }.items():
        monkeypatch.setenv(name, value)
    book = new_notebook(
        cells=[
            new_code_cell(f"__vsc_ipynb_file__ = {str(tmp_path / 'lesson.ipynb')!r}"),
            new_code_cell("%load_ext mgpu_utils\n" + START.replace("print(", "print('pids', ")),
            new_code_cell("%%ranks\nx = torch.ones(1)\ndist.all_reduce(x)\nprint(int(x))"),
            new_code_cell("%%ranks\ndist.all_reduce(torch.ones(1 + rank))"),
            new_code_cell("ranks.shutdown()"),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    NotebookClient(book, timeout=120, allow_errors=True, resources={"metadata": {"path": str(ROOT)}}).execute()
    nbformat.validate(book)
    assert book.cells[2].outputs[0].text == "[rank 0] 2\n[rank 1] 2\n"
    error, picture, words = book.cells[3].outputs
    assert error.output_type == "error"
    assert error.ename == "RankError"
    assert "do not match in their 1st collective" in error.evalue
    # The text comes first, the picture below it.
    assert "image/png" in picture.data
    assert "rank 1: all_reduce" in words.data["text/html"].lower()
    assert [output for output in book.cells[4].outputs if output.output_type == "error"] == []
