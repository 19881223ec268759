"""Two sites of the course that several tests look at, each made once a test run when it is first asked for."""

from __future__ import annotations

import html
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mgpu_utils.book.build import build_site
from mgpu_utils.book.recorded import newest_suite

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = newest_suite(ROOT)
LESSON = """\
# %% [markdown]
# # Count two things
#
# See [the word](../docs/words.md#rank), [the cell below](#cell-id=counting_01) and [the first page](../README.md).

# %% [markdown]
# ## Counting

# %%
print("forty", 40 + 2)

# %% tags=["raises-exception"]
raise ValueError("this was to be expected")

# %%
import matplotlib.pyplot as plt
import mgpu_utils as mgpu

figure, axes = mgpu.plots.new_figure()
axes[0, 0].plot([1, 2, 3])
axes[0, 0].set_title("Three points")
plt.show()

# %%
import os
import ipywidgets
import torch

print("here:", os.getcwd())
print("torch:", os.path.dirname(torch.__file__))
ipywidgets.IntSlider(description="a slider")

# %%
### BEGIN SOLUTION
answer = 1234567
### END SOLUTION
"""
README = """\
# A small course

Read [the lesson](notebooks/00_count.ipynb), [its settings](benchmarks/configs/laptop.yaml), [all words](docs/).

```text
a fence stays [as it is](nowhere.md)
```

<a href="docs/words.md#rank">raw</a>
"""


@dataclass
class Made:
    """A site that was made: its course, its folder, what lies beside it, and what was told meanwhile."""

    root: Path
    out: Path
    work: Path
    told: list[str] = field(default_factory=list)

    def text(self, page: str) -> str:
        """The words of a page, without tags."""
        return html.unescape(re.sub(r"<[^>]*>", "", (self.out / page).read_text(encoding="utf-8")))

    def again(self) -> bool:
        """Make it once more."""
        return build_site(self.root, self.out, self.work, tell=self.told.append)


_made: dict[str, Made] = {}


def whole_site(factory: pytest.TempPathFactory) -> Made:
    """The whole course, without running its notebooks."""
    if "whole" not in _made:
        _made["whole"] = _whole(factory.mktemp("site"))
    return _made["whole"]


def small_site(factory: pytest.TempPathFactory) -> Made:
    """A course of one lesson and one benchmark, run for real."""
    if "small" not in _made:
        _made["small"] = _small(factory.mktemp("small"))
    return _made["small"]


def _whole(folder: Path) -> Made:
    made = Made(ROOT, folder / "book", folder / "work")
    assert build_site(ROOT, made.out, made.work, execute=False, tell=made.told.append)
    return made


def _small(folder: Path) -> Made:
    root = folder / "a course"
    for name in ("sources/lessons", "sources/benchmarks", "docs", "benchmarks/reference"):
        (root / name).mkdir(parents=True)
    for name in ("pyproject.toml", "benchmarks/configs/laptop.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    # Its links lead to notebooks that are not in this course.
    scale_out = (ROOT / "sources/benchmarks/02_scale_out.py").read_text()
    (root / "sources/benchmarks/02_scale_out.py").write_text(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", scale_out))
    shutil.copytree(ROOT / "book", root / "book")
    assert REFERENCE is not None
    shutil.copytree(REFERENCE, root / "benchmarks" / "reference" / REFERENCE.name)
    (root / "sources/lessons/00_count.py").write_text(LESSON)
    (root / "docs/words.md").write_text('# Words\n\n### Rank\n\nOne process.\n\n<a id="own-anchor"></a>\n')
    (root / "README.md").write_text(README)
    made = Made(root, folder / "book", folder / "work")
    assert made.again()
    return made
