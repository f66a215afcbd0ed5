"""Builds the documentation, and parses its pages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def built(factory: pytest.TempPathFactory) -> Path:
    """The site, where and as ``make docs`` builds it, of which only what changed since is built again."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the workers'
    done = folder / "docs.done"
    with (folder / "docs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _build(ROOT / "build")
            done.touch()
    return ROOT / "build" / "site"


def _build(folder: Path) -> None:
    options = ["--builder", "html", "--quiet", "--fail-on-warning", "--keep-going"]
    process = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "--doctree-dir", folder / "doctrees", DOCS, folder / "site"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode or process.stderr:
        shutil.rmtree(folder / "doctrees", ignore_errors=True)  # so that the next build warns again
        raise AssertionError(process.stderr)


@dataclass
class PageRead(HTMLParser):
    """A page's anchors, its links, and the resources that the browser loads with it."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect an element's anchors and URLs."""
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif "href" in values and not {"search", "index", "next", "prev"} & set(values.get("rel", "").split()):
            self.resources.append(values["href"])
        self.resources += [values[name] for name in ("src", "srcset", "data", "poster", "action") if name in values]


class Site:
    """A built site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = {path: PageRead(path) for path in sorted(folder.rglob("*.html"))}

    def ids(self, folder: str = "") -> set[str]:
        """The anchors of all pages in a folder."""
        return {
            anchor
            for path, page in self.pages.items()
            if path.is_relative_to(self.folder / folder)
            for anchor in page.ids
        }

    def text(self, page: str) -> str:
        """The HTML of a page."""
        return (self.folder / page).read_text(encoding="utf-8")

    def dead_links(self) -> Iterator[str]:
        """Links within the site to missing files or missing anchors."""
        for path, page in self.pages.items():
            for link in page.links:
                parts = urlsplit(link)
                if parts.scheme or parts.netloc:
                    continue
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                linked = self.pages.get(target)
                if not target.is_file() or (parts.fragment and linked and unquote(parts.fragment) not in linked.ids):
                    yield f"{path.relative_to(self.folder)}: {link}"
