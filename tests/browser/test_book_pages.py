"""The pages of the site in a browser, as one opens them from a folder: quiet, not too wide, searchable, dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_pages import complaints
from made_sites import Made, small_site, whole_site

if TYPE_CHECKING:
    from playwright.sync_api import Page

PHONE = 390
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return whole_site(tmp_path_factory)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return small_site(tmp_path_factory)


def test_no_page_complains_asks_the_network_or_is_wider_than_a_phone(
    new_page: Callable[..., Page], site: Made, small: Made
) -> None:
    page = new_page(width=PHONE, height=844)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    too_wide = {}
    paths = sorted(site.out.rglob("*.html")) + sorted(small.out.rglob("0*.html"))
    for path in paths:
        if "_static" not in path.parts:
            page.goto(path.as_uri())
            if (more := page.evaluate(_OVERFLOW)) > 0:
                too_wide[path.name] = more
    assert complaints(page) == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert too_wide == {}


def test_pictures_fit_a_phone_and_lie_on_white_in_the_dark(
    new_page: Callable[..., Page], small: Made, keep: Callable[..., Path]
) -> None:
    page = new_page(width=PHONE, height=844, dark=True)
    page.goto((small.out / "benchmarks/02_scale_out.html").as_uri())
    picture = page.locator("article img").first
    picture.scroll_into_view_if_needed()
    keep(page, "book_benchmark_phone_dark")
    box = picture.bounding_box()
    assert box is not None
    assert box["width"] > PHONE / 2
    assert box["x"] + box["width"] <= PHONE
    assert picture.evaluate("picture => getComputedStyle(picture).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_the_search_leads_to_a_lesson(page: Page, site: Made, keep: Callable[..., Path]) -> None:
    page.goto((site.out / "index.html").as_uri())
    page.get_by_placeholder("Search").first.fill("scatter")
    page.keyboard.press("Enter")
    found = page.locator("#search-results a", has_text="Wrap a model in DataParallel").first
    found.wait_for()
    keep(page, "book_search")
    found.click()
    page.locator("h1", has_text="Wrap a model in DataParallel").wait_for()
    assert "not run for this page" in page.locator(".origin").inner_text().lower()
