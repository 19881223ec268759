"""A batch file for Slurm that starts `mgpu bench` on every machine of a job.

Options after https://slurm.schedmd.com/sbatch.html and https://slurm.schedmd.com/srun.html.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu_utils.machines import MachinesError
from mgpu_utils.whole_file import write_whole

_TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}")

_FILE = """\
#!/bin/bash
#SBATCH --job-name=mgpu-bench
#SBATCH --nodes={nnodes}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
{gpus}
#SBATCH --time={time}
#SBATCH --output={output}
# Your site may want more; take the first # away and fill in:
# #SBATCH --partition=...
# #SBATCH --account=...

set -euo pipefail
export PATH={path}:$PATH

# Node rank 0 is the first machine of the job, and the others meet it at its name. Where that name is no address
# that the others can reach, set MGPU_HOST to one that is.
host=${{MGPU_HOST:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}}
# One port a job, so that two jobs on one machine do not meet.
export MGPU_ENDPOINT="$host:${{MGPU_PORT:-$((20000 + SLURM_JOB_ID % 10000))}}"

# One process a machine; it starts the ranks itself. A machine that fails must not end the others: node rank 0
# records what happened, and ends them. Without --cpus-per-task a task would get one core.
srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" --kill-on-bad-exit=0 \\
  bash -c 'exec "$@" --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --rdzv-endpoint "$MGPU_ENDPOINT"' \\
  node {command}
"""


@dataclass(frozen=True)
class Batch:
    """What a batch file is made from. ``arguments`` are those of `mgpu bench`, without the machines' own.

    ``time`` as Slurm reads it (minutes, or hours:minutes:seconds); ``path`` is the folder of the `mgpu` command.
    """

    nnodes: int
    arguments: Sequence[str]
    gpus_per_node: int | None = None
    time: str = "01:00:00"
    output: str = "mgpu-bench-%j.log"
    path: str = ""


def batch_file(batch: Batch) -> str:
    """Return the text of the batch file. Raises: MachinesError for what Slurm would not take."""
    if batch.nnodes < 1:
        raise MachinesError(f"--nnodes is {batch.nnodes}, but must be 1 or more.")
    if not _TIME.fullmatch(batch.time):
        raise MachinesError(
            f"--time is {batch.time!r}, but must be minutes or HOURS:MINUTES:SECONDS, like 01:00:00, as Slurm reads it."
        )
    if batch.gpus_per_node is not None and batch.gpus_per_node < 1:
        raise MachinesError(f"--gpus-per-node is {batch.gpus_per_node}, but must be 1 or more (leave it out for none).")
    # Slurm reads a line of options up to the first space that is not quoted.
    if re.search(r"[\s'\"\\]", batch.output):
        raise MachinesError(f"the log's name {batch.output!r} holds a space or a quote, which Slurm does not take.")
    gpus = f"#SBATCH --gpus-per-node={batch.gpus_per_node}" if batch.gpus_per_node else "# #SBATCH --gpus-per-node=..."
    return _FILE.format(
        nnodes=batch.nnodes,
        gpus=gpus,
        time=batch.time,
        output=batch.output,
        path=shlex.quote(batch.path or str(Path(sys.executable).parent)),
        command=shlex.join(["mgpu", "bench", *batch.arguments]),
    )


def write(path: Path, batch: Batch) -> str:
    """Write the batch file, and return in a sentence how to use it.

    Raises: MachinesError as `batch_file` does, and where the file is there already with other contents.
    """
    text = batch_file(batch)
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != text:
        raise MachinesError(f"{path} is there already and differs; remove it, or choose another name.")
    write_whole(path, text)
    return f"{path} starts {batch.nnodes} machines; submit it with: sbatch {shlex.quote(str(path))}"
