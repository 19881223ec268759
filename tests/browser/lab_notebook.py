"""A notebook in JupyterLab as its learner sees and uses it: through the page alone.

Texts are read with `text_content`: JupyterLab lays out only what is in view, and elsewhere `inner_text` is empty.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from browser_pages import PATIENCE, expect
from lab_server import Lab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

_NUMBER = re.compile(r"^\[\d+\]:")
_SHOWN = ".jp-NotebookPanel:not(.lm-mod-hidden)"
# How JupyterLab marks what stands on red: errors, and what was written to stderr.
_RED = '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]'
_NOTHING_RUNS = """([cells, count]) => {
    const prompts = [...document.querySelectorAll(cells + " .jp-InputArea-prompt")].map(one => one.textContent);
    return prompts.length === count && /\\d/.test(prompts[0]) && !prompts.some(one => one.includes("*"));
}"""


class Notebook:
    """The notebook in front."""

    def __init__(self, page: Page, lab: Lab, path: str) -> None:
        self.page = page
        self.lab = lab
        self.path = path

    def open(self) -> None:
        """By its address, as the browser does when the server starts; ready when its kernel is."""
        self.page.goto(self.lab.address(self.path))
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Until its cells stand there and its kernel has nothing to do."""
        # The debugger's button is enabled by the first answer of the kernel; a status is shown before there is one.
        self.page.locator(f'{_SHOWN} .jp-DebuggerBugButton[aria-disabled="false"]').wait_for()
        self.page.locator(f'{_SHOWN} .jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for()

    def cell(self, code: str) -> Locator:
        """The code cell that contains this text."""
        return self.page.locator(f"{_SHOWN} .jp-CodeCell", has=self.page.locator(".cm-content", has_text=code))

    def output(self, code: str) -> Locator:
        """What stands below this cell."""
        return self.cell(code).locator(".jp-OutputArea")

    def run(self, code: str, wait: bool = True) -> Locator:
        """Click into a cell and run it; gives its output."""
        self.cell(code).locator(".cm-content").click()
        return self.run_here(code, wait)

    def run_here(self, code: str, wait: bool = True) -> Locator:
        """Run the cell that the cursor is in; gives its output."""
        before = self.prompt(code).text_content() or ""
        self.page.keyboard.press("Control+Enter")
        if wait:
            self.wait_for_end(code, before)
        return self.output(code)

    def wait_for_end(self, code: str, before: str = "") -> None:
        """Until a cell has a number, and another one than `before`."""
        if before:
            expect(self.prompt(code)).not_to_have_text(before)
        expect(self.prompt(code)).to_have_text(_NUMBER)

    def prompt(self, code: str) -> Locator:
        """The number beside a cell, which is a star while it runs."""
        return self.cell(code).locator(".jp-InputArea-prompt")

    def add_cell(self, below: str, lines: str) -> None:
        """Write a new cell below the one that contains the text `below`."""
        self.cell(below).locator(".cm-content").click()
        for key in ("Escape", "b", "Enter"):
            self.page.keyboard.press(key)
        self.page.keyboard.insert_text(lines)

    def replace_line(self, code: str, old: str, new: str) -> None:
        """Type over one line of a cell, from its first letter to its end."""
        self.cell(code).locator(".cm-line", has_text=old).click()
        self.page.keyboard.press("End")
        self.page.keyboard.press("Shift+Home")
        self.page.keyboard.type(new)

    def tab_to(self, wanted: Locator) -> None:
        """Press Tab until something has the focus."""
        for _ in range(20):
            self.page.keyboard.press("Tab")
            if wanted.evaluate("one => one === document.activeElement"):
                return
        raise AssertionError(f"Tab does not lead to {wanted}")

    def choose(self, menu: str, entry: str) -> None:
        """Click an entry of a menu."""
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        # Its name would have the keys of its shortcut in it.
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{re.escape(entry)}$")).click()

    def answer(self, button: str) -> None:
        """Click a button of the dialog that stands over the page."""
        self.page.locator(".jp-Dialog-button", has_text=button).click()

    def run_all(self) -> None:
        """By the menu; returns when every cell has run, or one has failed."""
        self.choose("Run", "Run All Cells")
        arguments = [f"{_SHOWN} .jp-CodeCell", len(self.code_cells())]
        self.page.wait_for_function(_NOTHING_RUNS, arg=arguments, timeout=2 * PATIENCE * 1000)

    def not_run(self) -> list[str]:
        """The code cells without a number."""
        cells = self.page.locator(f"{_SHOWN} .jp-CodeCell .jp-InputArea").all_text_contents()
        return [cell for cell in cells if not _NUMBER.match(cell)]

    def code_cells(self) -> list[dict[str, object]]:
        """The code cells as the file holds them."""
        content = json.loads((self.lab.course / self.path).read_text())
        return [cell for cell in content["cells"] if cell["cell_type"] == "code"]

    def red(self) -> list[str]:
        """What stands on red below cells which are not there to fail."""
        shown = self.page.locator(f"{_SHOWN} .jp-CodeCell")
        told = []
        for number, cell in enumerate(self.code_cells()):
            if "raises-exception" not in cell["metadata"].get("tags", []):  # type: ignore[attr-defined]
                told += shown.nth(number).locator(_RED).all_text_contents()
        return told
