"""Pages that are made at each build: reStructuredText from plain text, in files that change only with what they say."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

_SPECIAL = re.compile(r"[\\*`|_<>]")
# What is code in a help text: options, magics, dotted settings.
_CODE = re.compile(
    r"(?<![\w-])(?:--?[a-z][a-z-]*|%%?[a-z]+|VERSION AS OF|TIMESTAMP AS OF|[a-z]+\.[a-z_0-9]+|_[a-z_]+)(?![\w-])"
)


def plain(text: str) -> str:
    """Text as reStructuredText that means nothing but itself, with options and magics set as code."""
    parts, at = [], 0
    for found in _CODE.finditer(text):
        parts += [_SPECIAL.sub(r"\\\g<0>", text[at : found.start()]), f"\\ ``{found.group()}``\\ "]
        at = found.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\g<0>", text[at:])])


def literal(text: str) -> str:
    """A block that is shown as it is."""
    return f".. code-block:: none\n\n{textwrap.indent(text.strip(chr(10)), '   ')}\n"


def title(text: str, line: str) -> str:
    """A heading, underlined with a line of one character."""
    shown = _SPECIAL.sub(r"\\\g<0>", text)
    return f"{shown}\n{line * len(shown)}\n"


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write the pages of a folder, leaving those alone that say the same, and remove pages that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        write_page(folder / f"{name}.rst", text)


def write_page(path: Path, text: str) -> None:
    """Write a page unless it says the same already, so that Sphinx reads again only what changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
