"""Run a benchmark notebook through papermill, its parameters checked by name and type before it starts."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mgpu_utils.benchmark.config import ConfigError
from mgpu_utils.benchmark.progress import SWITCH
from mgpu_utils.process_tree import kill_tree
from mgpu_utils.torchrun_agent import end_with
from mgpu_utils.whole_file import write_whole

TAG = "parameters"
_LOOK_EVERY_SECONDS = 0.25
_REASON = "mgpu-reason: "


def check_parameters(notebook: Path, parameters: dict[str, Any]) -> None:
    """Check that ``notebook`` has one cell of parameters and takes these names with values of these types.

    papermill itself only warns about an unknown name, runs with the default, and converts nothing.

    Raises: ConfigError for a notebook without exactly one such cell, an unknown name or a value of another
    type.
    """
    import papermill

    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    tagged = [number for number, cell in enumerate(cells) if TAG in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise ConfigError(
            f"{notebook} has {len(tagged)} cells tagged {TAG}, but must have exactly one for parameters to reach it"
        )
    code_before = [number for number, cell in enumerate(cells[: tagged[0]]) if cell["cell_type"] == "code"]
    if code_before:
        raise ConfigError(f"{notebook} runs code before its cell of parameters, which must come first")
    known = papermill.inspect_notebook(str(notebook))
    for name, value in parameters.items():
        if name not in known:
            raise ConfigError(f"{notebook} has no parameter {name}; it has {', '.join(known)}")
        wanted = known[name]["inferred_type_name"]
        if wanted != "None" and wanted.split("[")[0] != type(value).__name__:
            raise ConfigError(f"parameter {name} of {notebook} is {value!r}, but must be of type {wanted}")


def run_notebook(
    notebook: Path,
    out: Path,
    parameters: dict[str, Any],
    *,
    watch: Callable[[], None] = lambda: None,
) -> str | None:
    """Run ``notebook`` in a process of its own, in folder ``out``, which receives the executed copy.

    ``watch`` is called a few times a second meanwhile. Whatever ends the wait ends the notebook and
    everything it started, too. Returns None when every cell ran, else what the failing cell said.
    """
    check_parameters(notebook, parameters)
    out.mkdir(parents=True, exist_ok=True)
    # What an ended tree cannot tidy up (connection files, logs of ranks) goes with its folder. The name is short:
    # sockets have paths of about 100 characters at most.
    with (
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryDirectory(prefix="mgpu-", ignore_cleanup_errors=True) as scratch,
    ):
        child = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "mgpu_utils.benchmark.runner",
                    str(notebook.resolve()),
                    notebook.name,
                ),
                *("--parameters", json.dumps(parameters), "--owner", str(os.getpid())),
            ],
            cwd=out,
            env=os.environ | {SWITCH: "off"} | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), scratch),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            # Its own session: Ctrl-C comes to this process alone, which then ends the whole tree in order.
            start_new_session=True,
        )
        try:
            while True:
                try:
                    child.wait(_LOOK_EVERY_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    watch()
            watch()
        finally:
            if child.poll() is None:
                kill_tree(child.pid)
                child.wait()
        said.seek(0)
        text = said.read().decode("utf-8", errors="replace").strip()
    if child.returncode == 0:
        return None
    # What a library printed on the way is no reason; only what `_execute` says at the end is.
    said_last = [line.removeprefix(_REASON) for line in text.splitlines() if line.startswith(_REASON)]
    if said_last:
        return said_last[-1]
    if child.returncode < 0:
        return f"its process was ended by signal {-child.returncode}"
    last = text.splitlines()[-1] if text else "it said nothing"
    return f"its process ended with exit code {child.returncode}: {last}"


def _execute(source: str, target: str, parameters: dict[str, Any]) -> int:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            source, target, parameters=parameters, kernel_name="python3", progress_bar=False, log_output=False
        )
    except PapermillExecutionError as error:
        first = str(error.evalue).strip().splitlines()
        print(f"{_REASON}{error.ename}: {first[0] if first else ''}")
        return 1
    except OSError as error:
        print(f"{_REASON}{error.strerror or error}")
        return 1
    finally:
        with suppress(OSError, ValueError):
            _without_paths(Path(target))
    return 0


def _without_paths(notebook: Path) -> None:
    """Take this machine's paths out of what papermill noted in the executed notebook."""
    if not notebook.is_file():
        return
    content = json.loads(notebook.read_text(encoding="utf-8"))
    noted = content.get("metadata", {}).get("papermill", {})
    for name in ("input_path", "output_path"):
        if noted.get(name):
            noted[name] = Path(noted[name]).name
    write_whole(notebook, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--parameters", type=json.loads, required=True)
    parser.add_argument("--owner", type=int, required=True)
    options = parser.parse_args()
    end_with(options.owner)
    return _execute(options.source, options.target, options.parameters)


if __name__ == "__main__":
    sys.exit(_main())
