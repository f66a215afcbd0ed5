"""HTML in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from typing import TypeAlias


class Html(str):
    """Text that is already HTML. A text put together with it is an ordinary ``str``, which :func:`tag` escapes."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[Content] | None"
"""Texts, HTML, and sequences of both; None is left out."""


def joined(*content: Content) -> Html:
    """Return contents one after the other.

    Example:
        >>> joined("a < b ", [tag("b", "bold"), None])
        'a &lt; b <b>bold</b>'
    """
    return Html("".join(map(_escaped, content)))


def _escaped(content: Content) -> str:
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return escape(content)
    return "" if content is None else "".join(map(_escaped, content))


def tag(name: str, *content: Content, **attributes: str | float | None) -> Html:
    """Return an element.

    Args:
        name: its name.
        content: what it holds.
        attributes: None and empty ones are left out. In names, ``_`` becomes ``-``; a final one is dropped.

    Example:
        >>> tag("td", "<1 %", class_="number", aria_label="share", title=None)
        '<td class="number" aria-label="share">&lt;1 %</td>'
    """
    written = [
        f' {_written(key)}="{escape(str(value))}"' for key, value in attributes.items() if value not in (None, "")
    ]
    inner = "".join(map(_escaped, content))
    return Html(f"<{name}{''.join(written)}>{inner}</{name}>")


@cache
def _written(attribute: str) -> str:
    return attribute.rstrip("_").replace("_", "-")


def paragraphs(texts: Iterable[Content]) -> Html:
    """Return a paragraph for each text that is not empty."""
    return joined(tag("p", text) for text in texts if text)


def folded(headline: str, texts: Iterable[Content]) -> Html:
    """Return paragraphs that are hidden until their headline is clicked; nothing without any."""
    hidden = paragraphs(texts)
    return tag("details", tag("summary", headline), hidden) if hidden else hidden


def listed(headline: Content, lines: Iterable[Content]) -> Html:
    """Return a headline and a list of lines."""
    return joined(tag("p", headline), tag("ul", (tag("li", line) for line in lines)))


def table(heads: Iterable[Content], rows: Iterable[Content], *, caption: str | None = None, **attributes: str) -> Html:
    """Return a table: heads that are texts become cells; rows are elements ``tr`` or sequences of cells."""
    return tag(
        "table",
        tag("caption", caption) if caption and not isinstance(caption, Html) else caption,
        tag("thead", tag("tr", [text if isinstance(text, Html) else head(text) for text in heads])),
        tag("tbody", [row if isinstance(row, Html) else tag("tr", row) for row in rows]),
        **attributes,
    )


def head(content: Content, class_: str = "", **attributes: str) -> Html:
    """Return the head of a column."""
    return tag("th", content, scope="col", class_=class_, **attributes)


def td(content: Content, class_: str = "", **attributes: str | float | None) -> Html:
    """Return a table cell."""
    return tag("td", content, class_=class_, **attributes)
