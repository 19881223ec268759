"""Two machines measure together, and one of them dies in the middle: the run says so, and nothing hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu_utils.benchmark.records import read
from mgpu_utils.cores import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1]))
from network_namespaces import ADDRESSES, Namespaces, two_machines

ENDPOINT = f"{ADDRESSES[0]}:29400"
SILENCE = 5.0
# Far beyond what any of this takes: whoever waits for it has hung.
TIMEOUT = 120.0

# Ranks that talk to each other.
GROUP = """
import os, sys, time
import torch, torch.distributed as dist

mode, rank = sys.argv[1], int(os.environ["RANK"])
dist.init_process_group("gloo")
if mode == "raise" and rank == 1:
    raise ValueError("label 12 is out of range")
dist.all_reduce(torch.ones(1))
if mode == "hang":
    with open(os.path.join(sys.argv[2], f"pid-{rank}"), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
dist.all_reduce(torch.ones(1))
"""
# Ranks that need no import, and so are there at once.
ALONE = """
import json, os, sys, time

if sys.argv[1] == "tell":
    print(json.dumps({name: os.environ.get(name) for name in sys.argv[2:]}))
else:
    with open(os.path.join(sys.argv[2], "pid-" + os.environ["RANK"]), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""

JOB = {
    **{"strategy": "ddp", "device_type": "cpu", "backend": "gloo", "world_size": 2, "model": "digits_cnn"},
    **{"per_device_batch": 8, "global_batch": 16, "steps": 2, "warmup": 1, "threads_per_process": 1, "seed": 0},
}


class Story:
    """A lead and a follower, each on its machine, and what they did."""

    def __init__(self, namespaces: Namespaces, folder: Path) -> None:
        self.namespaces, self.folder = namespaces, folder
        self.group, self.alone = str(folder / "group.py"), str(folder / "alone.py")
        Path(self.group).write_text(GROUP, encoding="utf-8")
        Path(self.alone).write_text(ALONE, encoding="utf-8")
        self.lead, self.follower = self._start(0, "lead"), self._start(1, "follow")
        assert self._answer() == {"ready": True}

    def run(self, **run: Any) -> dict[str, Any]:
        self.begin(**run)
        return self._answer()

    def begin(self, **run: Any) -> None:
        assert self.lead.stdin is not None
        self.lead.stdin.write(json.dumps({"nproc_per_node": 1, "nnodes": 2, "timeout": TIMEOUT} | run) + "\n")
        self.lead.stdin.flush()

    def begin_to_hang(self, script: str, **run: Any) -> list[psutil.Process]:
        """Start a run that never ends; return its two ranks when both are in the middle of it."""
        folder = self.folder / f"hang-{time.monotonic_ns()}"
        folder.mkdir()
        self.begin(target=script, args=["hang", str(folder)], **run)
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            texts = [path.read_text() for path in sorted(folder.glob("pid-*"))]
            if len(texts) == 2 and all(texts):
                return [psutil.Process(int(text)) for text in texts]
            time.sleep(0.05)
        raise AssertionError("the ranks never got to the middle of their run")

    def end_of(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        _, said = process.communicate(timeout=TIMEOUT / 2)
        return process.returncode, said

    def new_follower(self) -> None:
        self.follower = self._start(1, "follow")

    def _start(self, machine: int, role: str) -> subprocess.Popen[str]:
        program = str(Path(__file__).with_name("machine_process.py"))
        # A pipe that nobody reads would block who writes into it.
        with (self.folder / f"{role}.err").open("a") as errors:
            return self.namespaces.start(
                machine,
                [sys.executable, program, role, ENDPOINT, str(SILENCE)],
                stdin=subprocess.PIPE if role == "lead" else subprocess.DEVNULL,
                stderr=errors if role == "lead" else subprocess.PIPE,
            )

    def _answer(self) -> dict[str, Any]:
        assert self.lead.stdout is not None
        line = self.lead.stdout.readline()
        assert line, (self.folder / "lead.err").read_text()
        return json.loads(line)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with two_machines() as namespaces:
        yield Story(namespaces, tmp_path_factory.mktemp("machines"))


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


# In the order in which they stand: each takes the machines as the one before left them.


def test_ranks_on_both_machines_train_together_and_deliver_to_node_rank_0(story: Story) -> None:
    result = story.run(target="mgpu_utils.benchmark.worker", args=[json.dumps(JOB)])
    assert result["reason"] is None
    assert [rank["samples"] for rank in result["delivered"]] == [16, 16]
    assert all(rank["seconds"] > 0 for rank in result["delivered"])


def test_ranks_are_numbered_by_node_rank_and_meet_over_the_network_between_them(story: Story) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "GLOO_SOCKET_IFNAME", "GREETING"]
    result = story.run(target=story.alone, args=["tell", *names], nproc_per_node=2, env={"GREETING": "good day"})
    assert result["reason"] is None
    lines = result["stdout"].splitlines()
    assert [line[:9] for line in lines] == ["[rank 0] ", "[rank 1] ", "[rank 2] ", "[rank 3] "]
    cable = (ADDRESSES[0], "good day")
    told = [tuple(json.loads(line[9:]).values()) for line in lines]
    assert told == [
        ("0", "0", "4", "0", cable[0], "mgpu-left", cable[1]),
        ("1", "1", "4", "0", cable[0], "mgpu-left", cable[1]),
        ("2", "0", "4", "1", cable[0], "mgpu-right", cable[1]),
        ("3", "1", "4", "1", cable[0], "mgpu-right", cable[1]),
    ]


def test_a_rank_that_fails_on_the_other_machine_is_the_reason(story: Story) -> None:
    result = story.run(target=story.group, args=["raise"])
    assert result["reason"] == "node rank 1, rank 1: ValueError: label 12 is out of range"


def test_a_run_past_its_timeout_ends_on_both_machines(story: Story, tmp_path: Path) -> None:
    result = story.run(target=story.alone, args=["hang", str(tmp_path)], timeout=4)
    assert "did not finish within 4 s" in result["reason"]
    # Its launcher and all that this one started.
    assert gone(psutil.Process(story.follower.pid).children(recursive=True))


def test_a_machine_that_dies_in_the_middle_fails_the_run_by_its_name(story: Story) -> None:
    ranks = story.begin_to_hang(story.group)
    story.follower.kill()
    result = story._answer()
    assert result["reason"] == (f"node rank 1 of 2 ({ADDRESSES[1]}) was lost during the run: its connection closed")
    assert result["seconds"] < TIMEOUT / 2
    assert gone(ranks)


def test_runs_after_a_machine_died_fail_at_once_except_on_node_rank_0_alone(story: Story) -> None:
    result = story.run(target=story.alone, args=["tell", "RANK"])
    assert str(result["reason"]).startswith(f"node rank 1 of 2 ({ADDRESSES[1]}) was lost before this run")
    assert "--resume" in result["reason"]
    alone = story.run(target=story.alone, args=["tell", "WORLD_SIZE"], nnodes=1)
    assert (alone["reason"], alone["stdout"]) == (None, '[rank 0] {"WORLD_SIZE": "1"}\n')


def test_a_machine_may_come_back_and_a_cut_network_counts_as_its_death(story: Story) -> None:
    story.new_follower()
    ranks = story.begin_to_hang(story.alone, wait_for_others=True)
    story.namespaces.cut()
    result = story._answer()
    assert result["reason"] == (
        f"node rank 1 of 2 ({ADDRESSES[1]}) was lost during the run: nothing was heard from it for {SILENCE:g} s"
    )
    status, said = story.end_of(story.follower)
    assert status == 1
    assert f"node rank 0 at {ENDPOINT} was lost: nothing was heard from it for {SILENCE:g} s" in said
    assert gone(ranks)
    story.namespaces.mend()


def test_when_node_rank_0_dies_the_others_end_with_all_their_ranks(story: Story) -> None:
    story.new_follower()
    ranks = story.begin_to_hang(story.alone, wait_for_others=True)
    story.lead.kill()
    status, said = story.end_of(story.follower)
    assert status == 1
    assert f"node rank 0 at {ENDPOINT} was lost: its connection closed" in said
    assert gone(ranks)


def bench(namespaces: Namespaces, machine: int, config: Path, out: Path) -> subprocess.Popen[str]:
    where = ["--nnodes", "2", "--node-rank", str(machine), "--rdzv-endpoint", ENDPOINT]
    command = [sys.executable, "-m", "mgpu_utils.cli", "bench", "--config", str(config), "--out", str(out), *where]
    return namespaces.start(machine, command)


def test_the_command_measures_over_both_machines_and_records_the_loss_of_one(tmp_path: Path) -> None:
    # As many threads a rank as cores: so each machine holds one rank, and two ranks need both.
    threads = usable_cores()
    config = tmp_path / "config.yaml"
    config.write_text(
        "models: [{name: digits_cnn, per_device_batch: 8, global_batch: 16, steps: 5, warmup: 1}]\n"
        f"strategies: [single, ddp]\nworld_sizes: [2]\nthreads_per_process: {threads}\nrounds: 2\ndevice: cpu\n",
        encoding="utf-8",
    )
    out = tmp_path / "results"
    with two_machines() as namespaces:
        lead, follower = (bench(namespaces, machine, config, out) for machine in (0, 1))

        def together() -> list[dict[str, Any]]:
            return [record for record in read(out / "records.jsonl") if record["strategy"] == "ddp"]

        deadline = time.monotonic() + TIMEOUT
        while not together() and lead.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        ranks = psutil.Process(follower.pid).children(recursive=True)
        follower.kill()
        _, said = lead.communicate(timeout=TIMEOUT)
    assert lead.returncode == 1, said
    first, second = together()
    assert (first["status"], first["nnodes"], first["world_size"]) == ("ok", 2, 2), first
    assert len(first["seconds_per_rank"]) == 2
    assert second["status"] == "failed"
    assert f"node rank 1 of 2 ({ADDRESSES[1]}) was lost" in second["reason"]
    assert second["reason"] in said
    alone = [record for record in read(out / "records.jsonl") if record["strategy"] == "single"]
    assert {(record["status"], record["nnodes"]) for record in alone} == {("ok", 1)}
    machines = json.loads((out / "environment.json").read_text(encoding="utf-8"))["machines"]
    assert len(machines) == 1
    assert gone(ranks)
