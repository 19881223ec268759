"""What may be handed on names nobody: a user, a machine, a home folder, secrets and variables stay here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_up_results import LAPTOP, failed, run, runs, write_result

from mgpu_utils.benchmark.environment import environment

USER, HOST, TOKEN = "ada.lovelace", "analytical-engine", "tok-7f3a9c51e2"
SECRETS = {"HF_TOKEN": TOKEN, "AWS_SECRET_ACCESS_KEY": "aws-7f3a9c51e2", "WANDB_API_KEY": "wab-7f3a9c51e2"}
# Any variable that is not on the short list of those which decide what the course does.
PLAIN = {name: f"canary-{number}" for number, name in enumerate(["EDITOR", "PGHOST", "KUBECONFIG", "DBUS_ADDRESS"])}
# All that a measurement is to say about where it was made.
SHORT_LIST = {
    *("system", "architecture", "python", "versions", "torch_build", "accelerator", "device_count", "device_names"),
    *("device_memory", "cpu", "cores_usable", "cores_in_machine", "threads_per_process", "backends", "machines"),
}
_CAPTURE = """
import json, os, sys
from mgpu_utils.benchmark.environment import environment
print(json.dumps(environment()))
"""
_RANKS = """
import os, socket
import mgpu_utils as mgpu
with mgpu.start_ranks(1, device="cpu") as ranks:
    try:
        ranks.execute(
            "import os, socket\\n"
            "user, home, host = os.environ['USER'], os.environ['HOME'], socket.gethostname()\\n"
            "raise OSError(f'{home}/data of {user} on {host} with ' + os.environ['HF_TOKEN'])"
        )
    except mgpu.RankError as error:
        print(error, *(failure.full for failure in error.failures))
"""


@dataclass(frozen=True)
class Somebody:
    """A machine and a user with names, where commands are run and their output is kept."""

    home: Path
    host: str

    def run(self, *arguments: str) -> str:
        """What a Python command says there, all of it."""
        variables = {**os.environ, "HOME": str(self.home), "USER": USER, "LOGNAME": USER, **SECRETS, **PLAIN}
        variables["MGPU_LIVE"] = "0"
        named = ["unshare", "--map-root-user", "--uts", "sh", "-c", f'hostname {HOST}; exec "$@"', "sh"]
        command = [*(named if self.host == HOST else []), sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.home, env=variables, timeout=120)
        return done.stdout + done.stderr

    def told(self, text: str) -> list[str]:
        """What of it stands in a text though it must not."""
        private = [str(self.home), USER, self.host, *SECRETS.values(), *PLAIN.values()]
        return [word for word in private if word in text]


@pytest.fixture(scope="module")
def somebody(tmp_path_factory: pytest.TempPathFactory) -> Somebody:
    home = tmp_path_factory.mktemp("home") / USER
    home.mkdir()
    probe = Somebody(home, HOST).run("-c", "import socket; print(socket.gethostname())")
    # Where a host name cannot be made up, words that it never has stand for it.
    return Somebody(home, HOST if probe.strip() == HOST else "a host name that is nowhere")


def test_an_environment_that_is_captured_holds_its_short_list_and_nothing_private(somebody: Somebody) -> None:
    text = somebody.run("-c", _CAPTURE)
    assert set(json.loads(text)) == SHORT_LIST
    assert somebody.told(text) == []


def test_the_environments_that_are_kept_in_the_course_have_the_same_short_list() -> None:
    kept = list((Path(__file__).parents[2] / "benchmarks" / "reference").glob("*/**/environment.json"))
    assert kept
    assert [file for file in kept if not set(json.loads(file.read_text())) <= SHORT_LIST] == []
    assert set(environment()) == SHORT_LIST


def test_the_doctor_s_report_holds_nothing_private(somebody: Somebody) -> None:
    text = somebody.run("-m", "mgpu_utils.cli", "doctor", "--json")
    assert json.loads(text)["findings"]
    assert somebody.told(text) == []


def test_the_report_of_a_failed_benchmark_holds_nothing_private(somebody: Somebody) -> None:
    records = runs()
    reason = f"rank 1: OSError: {somebody.home}/course/data of {USER} on {somebody.host} refused {TOKEN}"
    records[2] = failed(run("ddp", 0, 1.0), reason)
    folder = write_result(somebody.home / "results", records, LAPTOP)
    page, table = somebody.home / "page.html", somebody.home / "table.csv"
    said = somebody.run("-m", "mgpu_utils.cli", "report", str(folder), "--out", str(page), "--csv", str(table))
    assert page.is_file(), said
    text = page.read_text(encoding="utf-8")
    assert "OSError" in text, "the reason is shown"
    assert "refused ***" in text
    assert somebody.told(text) == []
    assert somebody.told(table.read_text(encoding="utf-8")) == []


def test_the_error_of_a_rank_holds_nothing_private(somebody: Somebody) -> None:
    text = somebody.run("-c", _RANKS)
    assert "raised OSError: ~/data of USER on " in text, text
    # The folder of the course stands in a traceback as it is; where it lies in a home, that home is "~".
    assert somebody.told(text) == []
