"""Look at a site as a browser without a network does: each link leads somewhere, nothing comes from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_STYLE_URL = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
# Links of a page that load nothing by themselves.
_ONLY_NAMED = {"canonical", "next", "prev", "index", "search", "author", "license", "genindex"}


class _Page(HTMLParser):
    """What one page names (`anchors`), where it leads (`links`) and what it loads (`loads`)."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self._in_style = tag == "style"
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and not set(found.get("rel", "").split()) & _ONLY_NAMED:
            self.loads.append(found.get("href", ""))
        self.loads += [found[name] for name in ("src", "poster", "data") if name in found and tag != "a"]
        for part in found.get("srcset", "").split(","):
            self.loads += part.split()[:1]
        self.loads += style_urls(found.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += style_urls(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


def style_urls(text: str) -> list[str]:
    """What a style sheet loads."""
    return [first or second for first, second in _STYLE_URL.findall(text)]


def find_faults(site: Path) -> list[str]:
    """One line for each link, anchor or resource of a site that is broken or comes from the network."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        # An embedded report is a page of its own making, with everything inside.
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    faults = []
    for path, page in pages.items():
        shown = path.relative_to(site).as_posix()
        faults += [f"{shown}: {fault}" for fault in _link_faults(site, path, page.links, pages)]
        faults += [f"{shown}: {fault}" for fault in _load_faults(site, path, page.loads)]
    for path in sorted(site.rglob("*.css")):
        urls = style_urls(path.read_text(encoding="utf-8"))
        faults += [f"{path.relative_to(site).as_posix()}: {fault}" for fault in _load_faults(site, path, urls)]
    return list(dict.fromkeys(faults))


def _link_faults(site: Path, path: Path, links: list[str], pages: dict[Path, _Page]) -> Iterator[str]:
    for link in links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_relative_to(site.resolve()) and parts.path:
            yield f"the link {link!r} leads out of the site"
        elif not target.exists():
            yield f"the link {link!r} leads to no file"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors | {"top"}:
            yield f"the link {link!r} leads to no place in that page"


def _load_faults(site: Path, path: Path, urls: list[str]) -> Iterator[str]:
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "data" or not url or url.startswith("#"):
            continue
        if parts.scheme or parts.netloc:
            yield f"loads {url!r} from the network"
        elif not (path.parent / unquote(parts.path)).exists():
            yield f"loads {url!r}, which is not there"
