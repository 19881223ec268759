"""Chromium for the tests of this folder, driven by Playwright. Fixtures for any test here:

    chromium     the browser (playwright.sync_api.Browser), one a module; skips where there is none, with the reason
    new_page     a function: new_page(width=1280, height=900, dark=False, **options) -> Page, in a context of its own;
                 options go to Browser.new_context. `browser_pages.complaints(page)` gives the errors in its console
    page         new_page() with its defaults, for one test
    keep         a function: keep(page, "name") writes build/browser/name.png, and gives its path;
                 full_page=True and the other options of Page.screenshot are passed on

They live for one module, not for the session: while Playwright's loop is open, no other test could run one of asyncio.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_pages import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURES = ROOT / "build" / "browser"
# Without these it looks for updates and hosts outside at each start.
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_told = pytest.StashKey[bool]()


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome that runs; a stub that only says how to install one does not count."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is None:
            continue
        try:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said.returncode == 0 and re.search(r"Chrom\w+ \d+\.", said.stdout):
            return path
    return None


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One Chromium, without a window."""
    if sys.platform == "win32":
        pytest.skip("the browser tests run on Linux and macOS")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: the extra `test` has it"
    )
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium found: on Debian, `apt-get install chromium` (make test does it where it may)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages; each has cookies and a size of its own, and all are closed after the test."""
    with ExitStack() as pages:

        def open_page(width: int = 1280, height: int = 900, dark: bool = False, **options: Any) -> Page:
            return pages.enter_context(opened(chromium, width, height, dark, **options))

        yield open_page


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """One page of a laptop's size."""
    return new_page()


@pytest.fixture
def keep(request: pytest.FixtureRequest, note: Callable[[str], None]) -> Callable[..., Path]:
    """Keeps a picture of a page for people to look at."""

    def take(page: Page, name: str, **options: Any) -> Path:
        path = PICTURES / f"{name}.png"
        page.screenshot(path=path, **options)
        if not request.config.stash.setdefault(_told, False):
            request.config.stash[_told] = True
            note(f"pictures of pages, to look at: {PICTURES.relative_to(ROOT)}")
        return path

    return take
