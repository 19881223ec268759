"""The batch file for Slurm: bash reads it, and every machine gets its own command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_utils.benchmark.slurm import Batch, batch_file, write
from mgpu_utils.machines import MachinesError

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to run a batch file")

# What Slurm would do: one task a machine, each with its own number.
STAND_INS = """
scontrol() { [ "$1 $2 $3" = "show hostnames node[7-8]" ] && printf 'node7\\nnode8\\n'; }
srun() {
  while [ "${1#--}" != "$1" ]; do echo "$1" >> "$SRUN_OPTIONS"; shift; done
  for SLURM_NODEID in 0 1; do SLURM_NODEID=$SLURM_NODEID "$@"; done
}
"""


@needs_bash
def test_every_machine_of_the_job_gets_its_number_and_the_first_one_s_endpoint(tmp_path: Path) -> None:
    folder = tmp_path / "a folder's bin"
    folder.mkdir()
    command = folder / "mgpu"
    command.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8")
    command.chmod(0o755)
    arguments = ["--config", "it's $HOME/big run.yaml", "--out", "results/x"]
    text = batch_file(Batch(2, arguments, path=str(folder)))
    environment = os.environ | {
        **{"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_ID": "123456", "SLURM_NNODES": "2"},
        **{"SLURM_CPUS_ON_NODE": "16", "SRUN_OPTIONS": str(tmp_path / "options")},
    }
    done = subprocess.run(
        ["bash", "-c", STAND_INS + text], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    started = [json.loads(line) for line in done.stdout.splitlines()]
    machines = ["--nnodes", "2", "--node-rank"]
    assert started == [["bench", *arguments, *machines, rank, "--rdzv-endpoint", "node7:23456"] for rank in ("0", "1")]
    options = (tmp_path / "options").read_text().split()
    assert options == ["--ntasks-per-node=1", "--cpus-per-task=16", "--kill-on-bad-exit=0"]


@needs_bash
def test_the_file_is_written_whole_says_how_to_submit_it_and_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "bench.sbatch"
    said = write(path, Batch(4, ["--config", "cluster.yaml"], gpus_per_node=8, time="02:00:00"))
    assert said == f"{path} starts 4 machines; submit it with: sbatch {path}"
    header = [line for line in path.read_text().splitlines() if line.startswith("#SBATCH")]
    assert "#SBATCH --nodes=4" in header
    assert "#SBATCH --gpus-per-node=8" in header
    assert "#SBATCH --time=02:00:00" in header
    assert subprocess.run(["bash", "-n", path], capture_output=True, check=False).stderr == b""
    with pytest.raises(MachinesError, match="is there already and differs"):
        write(path, Batch(2, []))
    assert "--nodes=4" in path.read_text()
    assert [found.name for found in tmp_path.iterdir()] == ["bench.sbatch"]


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (Batch(0, []), "--nnodes is 0"),
        (Batch(2, [], time="two hours"), "--time is 'two hours'"),
        (Batch(2, [], gpus_per_node=0), "--gpus-per-node is 0"),
        (Batch(2, [], output="my log"), "holds a space"),
    ],
)
def test_what_slurm_would_not_take_is_refused(batch: Batch, sentence: str) -> None:
    with pytest.raises(MachinesError, match=sentence):
        batch_file(batch)
    assert "#SBATCH --gpus-per-node" not in [line[:22] for line in batch_file(Batch(2, [])).splitlines()]
