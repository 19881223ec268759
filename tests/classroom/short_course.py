"""A course of one short lesson with three real exercises, and what learners hand in of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mgpu_utils.authoring import find_sources, generate

SHORT = """\
# %% [markdown]
# # Pick devices, in short
#
# A lesson with the exercises that run fastest.

# %%
import mgpu_utils as mgpu

first_words = "the course's own cell"

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: pick devices

# %%
import torch

def pick_devices(wanted, usable):
    ### BEGIN SOLUTION
    if not 0 < wanted <= usable:
        raise ValueError(f"{wanted} wanted, {usable} usable")
    return [torch.device("cuda", number) for number in range(wanted)]
    ### END SOLUTION

mgpu.check("01/pick", pick_devices)

# %% [markdown]
# ### Exercise 2: which GPU is it?

# %%
def physical(value, number):
    ### BEGIN SOLUTION
    entries = [int(entry) for entry in value.split(",")] if value else []
    seen = []
    for entry in entries:
        if entry < 0:
            break
        if entry in seen:
            return None
        seen.append(entry)
    return seen[number] if number < len(seen) else None
    ### END SOLUTION

mgpu.check("01/physical", physical)

# %% [markdown]
# ## Ranks

# %%
ranks = mgpu.start_ranks(2, timeout=2.0)

# %% [markdown]
# ### Exercise 3: the mean of all ranks

# %%
import torch.distributed as dist

def average(number):
    total = torch.tensor(number, device=device)
    ### BEGIN SOLUTION
    dist.all_reduce(total)
    return (total / world_size).item()
    ### END SOLUTION

mgpu.check("00/average", average, ranks=ranks)

# %%
ranks.shutdown()
"""


def make_course(root: Path) -> Path:
    """The folder of a course with the short lesson."""
    (root / "sources/lessons").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "sources/lessons/01_pick_devices.py").write_text(SHORT)
    return root


class HandIn:
    """A submission of the short lesson, solved or as it was handed out, to be changed and written."""

    def __init__(self, course: Path, *, solved: bool = True) -> None:
        self.course = course
        (source,) = find_sources(course)
        self.notebook: Any = generate(source.path, solutions=solved)
        self._cells = {name: self._with(name) for name in ("01/pick", "01/physical", "00/average")}

    def _with(self, name: str) -> Any:
        return next(cell for cell in self.notebook.cells if f'"{name}"' in cell.source)

    def cell(self, name: str) -> Any:
        """The cell of an exercise, wherever it stands and whatever it holds now."""
        return self._cells[name]

    def answer(self, name: str, code: str) -> HandIn:
        """Write `code` into the exercise's cell, above its check."""
        cell = self.cell(name)
        check = [line for line in cell.source.splitlines() if line.startswith("mgpu.check(")]
        cell.source = "\n".join([code, "", *check])
        return self

    def blank(self, *names: str) -> HandIn:
        """Put exercises back to what learners get."""
        handed_out = HandIn(self.course, solved=False)
        for name in names:
            self.cell(name).source = handed_out.cell(name).source
        return self

    def write(self, path: Path) -> Path:
        """Save as a notebook file; returns its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.notebook))
        return path
