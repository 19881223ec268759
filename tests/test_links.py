"""Every link inside the course leads to a file that is there, and to a heading or cell that is in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "benchmarks/reference/*.md", "notebooks/*.ipynb", "benchmarks/*.ipynb")
    for path in ROOT.glob(pattern)
)
_LINK = re.compile(r"(?<!!)\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^()\s]+(?:\([^()]*\))?[^()\s]*)\)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)


def text_of(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors_of(path: Path) -> tuple[set[str], set[str]]:
    """What may follow a # in a link to this page: on GitHub, and in JupyterLab, which keeps the case of a heading."""
    text = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    own = set(re.findall(r'<a id="([^"]+)">', text))
    github, lab = set(own), set(own)
    for heading in _HEADING.findall(text):
        shown = re.sub(r"<[^>]*>|[`*]|\\", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()
        github.add(re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-"))
        lab.add(shown.replace(" ", "-"))
    if path.suffix == ".ipynb":
        ids = {cell["id"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}
        # GitHub opens the notebook at its top for such a link.
        cells = ids | {f"cell-id={name}" for name in ids}
        github, lab = github | cells, lab | cells
    return github, lab


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    wrong = []
    for link in _LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            wrong.append(f"{link}: no such file")
        elif fragment and target.suffix in (".md", ".ipynb"):
            github, lab = anchors_of(target)
            wrong += [
                f"{link}: no such heading {where}"
                for where, known in (("on GitHub", github), ("in JupyterLab", lab))
                if fragment not in known
            ]
    assert wrong == []


def test_a_link_that_leads_nowhere_would_be_seen() -> None:
    assert _LINK.findall("see [DDP](../docs/glossary.md#ddp) and [a\nb](x.md), not ![a picture](y.png)") == [
        "../docs/glossary.md#ddp",
        "x.md",
    ]
    github, lab = anchors_of(ROOT / "docs" / "glossary.md")
    assert {"ddp", "all_reduce", "communication-hook"} <= github & lab
    assert "no-such-term" not in github | lab
