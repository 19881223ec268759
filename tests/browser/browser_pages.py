"""A page of a browser, and what it complained of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, LocatorAssertions, Page

# For one step of a page, in seconds: far above what it takes, for a machine that is busy with other things.
PATIENCE = 90
_complaints: dict[int, list[str]] = {}


@contextmanager
def opened(
    browser: Browser, width: int = 1280, height: int = 900, dark: bool = False, **options: Any
) -> Iterator[Page]:
    """A page in a context of its own; `options` go to Browser.new_context."""
    scheme: Any = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    told = _complaints[id(page)] = []
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    try:
        yield page
    finally:
        context.close()
        _complaints.pop(id(page), None)


def complaints(page: Page) -> list[str]:
    """Errors in the console of a page, and exceptions of its scripts, so far."""
    return _complaints[id(page)]


def expect(locator: Locator) -> LocatorAssertions:
    """Playwright's assertions, which wait until they hold; imported here, as it may be missing."""
    from playwright import sync_api

    sync_api.expect.set_options(timeout=PATIENCE * 1000)
    return sync_api.expect(locator)
