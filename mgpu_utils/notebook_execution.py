"""Run a notebook in a process of its own, with a hard time limit and nothing left behind."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import dumps, read_notebook
from mgpu_utils.lesson_source import AuthoringError
from mgpu_utils.process_tree import kill_tree

_FAILED_CELL = "mgpu-failed-cell: "


def notebook_environment(scratch: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for an unattended run: without the answers and settings of the person here."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MGPU_")}
    environment |= {
        "MGPU_HOME": str(scratch / "answers"),
        "MGPU_LIVE": "0",
        "IPYTHONDIR": str(scratch / "ipython"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    return environment | dict(extra or {})


def check_seconds(seconds: float, option: str) -> None:
    """Raise AuthoringError unless what `option` gave is a time that a run can be limited to."""
    if not 0 < seconds < math.inf:
        raise AuthoringError(f"{option} is {seconds:g}; it takes a number of seconds above 0.")


def run_bounded(command: list[str], *, cwd: Path, env: Mapping[str, str], timeout: float) -> tuple[int | None, str]:
    """Run a command for at most `timeout` seconds; its exit status (None: it was ended) and output."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            status: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                kill_tree(process.pid)
                process.wait()
        log.seek(0)
        return status, log.read().decode("utf-8", "replace")


def execute_notebook(
    notebook: Any, name: str, cwd: Path, *, timeout: float, environment: Mapping[str, str] | None = None
) -> Any:
    """Run all cells in order and return the notebook with its outputs.

    Raises AuthoringError naming the cell that failed, or saying that `timeout` seconds were not enough.
    """
    with tempfile.TemporaryDirectory(prefix="mgpu-run-", ignore_cleanup_errors=True) as scratch:
        path = Path(scratch) / "notebook.ipynb"
        path.write_text(dumps(notebook), encoding="utf-8")
        command = [sys.executable, "-m", "mgpu_utils.notebook_execution", str(path), str(cwd)]
        cwd.mkdir(parents=True, exist_ok=True)
        env = notebook_environment(Path(scratch), environment)
        status, log = run_bounded(command, cwd=cwd, env=env, timeout=timeout)
        if status is None:
            raise AuthoringError(f"{name}: did not finish within {timeout:g} s and was ended.")
        if status:
            told = [line for line in log.splitlines() if line.startswith(_FAILED_CELL)]
            reason = (
                told[-1].removeprefix(_FAILED_CELL)
                if told
                else f"its process ended with status {status}:\n{log[-2000:]}"
            )
            raise AuthoringError(f"{name}: {reason}")
        return read_notebook(path)


def _execute_file(path: Path, cwd: str) -> int:
    import nbclient

    notebook = read_notebook(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        resources={"metadata": {"path": cwd}},
        record_timing=False,
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        failed = next((cell.id for cell in notebook.cells if _has_error(cell)), "?")
        message = f"{error.ename}: {error.evalue}".replace("\n", " ")
        print(f"{_FAILED_CELL}cell {failed!r} failed: {message}", file=sys.stderr)
        return 1
    except nbclient.exceptions.DeadKernelError:
        print(f"{_FAILED_CELL}its kernel died.", file=sys.stderr)
        return 1
    path.write_text(dumps(notebook), encoding="utf-8")
    return 0


def _has_error(cell: Any) -> bool:
    expected = "raises-exception" in cell.metadata.get("tags", [])
    return not expected and any(output.output_type == "error" for output in cell.get("outputs", []))


if __name__ == "__main__":
    sys.exit(_execute_file(Path(sys.argv[1]), sys.argv[2]))
