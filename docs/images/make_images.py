"""Make the pictures of README.md: `python docs/images/make_images.py` in the root of the repository.

`deadlock.png` is a cell that was run on two real ranks, photographed by Chromium. The figures of the named machines in
`benchmarks/reference/` are drawn from their records; nothing is measured.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbconvert.exporters import HTMLExporter
from PIL import Image, ImageChops, ImageOps

from mgpu_utils.benchmark.report import draw
from mgpu_utils.benchmark.summary import summarise_each

ROOT = Path(__file__).resolve().parents[2]
DEADLOCK = Path(__file__).with_name("deadlock.png")
START = "import mgpu_utils as mgpu\n\nranks = mgpu.start_ranks(2, timeout=5)"
CELL = """\
%%ranks
loss = torch.tensor(0.5 + rank)
if rank == 0:
    dist.all_reduce(loss)
print("loss", loss.item())"""
# As wide as a notebook; the page is cut to what it shows.
WIDTH, HEIGHT, SCALE = 880, 1200, 1.5
LOOKS = "<style>body { margin: 0; } .jp-Notebook, .jp-Cell { padding: 0; } .jp-Cell-inputWrapper { margin: 0; }</style>"
MARGIN = 14
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def run_cell() -> Any:
    """Run the cell on two ranks; the notebook that holds it and what it showed, without the cell that starts them."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (START, CELL)])
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    del notebook.cells[0]
    return notebook


def photograph(page: str, picture: Path) -> None:
    """Save what a page of HTML looks like, cut to its content and with few colours, so that the file is small."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"No browser was found. Install Chromium, or put one of {', '.join(BROWSERS)} on the PATH.")
    with tempfile.TemporaryDirectory() as folder:
        html, whole = Path(folder, "page.html"), Path(folder, "page.png")
        html.write_text(page, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/user"]
        size = [f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}"]
        subprocess.run(
            [browser, *options, *size, f"--screenshot={whole}", html.as_uri()],
            check=True, timeout=120, capture_output=True,
        )  # fmt: skip
        shot = Image.open(whole).convert("RGB")
        box = ImageChops.difference(shot, Image.new("RGB", shot.size, "white")).getbbox()
        assert box is not None, "the page is empty"
        ImageOps.expand(shot.crop(box), MARGIN, "white").quantize(128).save(picture, optimize=True)


def make_deadlock() -> None:
    """The README's picture of a deadlock, and on the terminal the words that it must be given."""
    notebook = run_cell()
    words = [
        output.metadata["image/png"]["alt"]
        for output in notebook.cells[0].outputs
        if "image/png" in output.get("data", {})
    ]
    page, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    # Its scripts would load from a network.
    page = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL).replace("</head>", f"{LOOKS}</head>")
    photograph(page, DEADLOCK)
    print(f"{DEADLOCK.relative_to(ROOT)}: {''.join(words)}")


def draw_comparisons() -> None:
    """`throughput.png` of each named machine, from its records."""
    for path in sorted(ROOT.glob("benchmarks/reference/*/records.jsonl")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        picture = path.with_name("throughput.png")
        draw(summarise_each(records)).savefig(picture, dpi=120)
        print(picture.relative_to(ROOT))


if __name__ == "__main__":
    make_deadlock()
    draw_comparisons()
