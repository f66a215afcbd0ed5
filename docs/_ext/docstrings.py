"""Reads the docstrings of attributes as prose.

Napoleon takes the words before a colon in an attribute's first line for its type: "The epoch: Spark's batch id." The
code has annotations for that, so such a line is a sentence here like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sphinx.ext.napoleon.docstring import GoogleDocstring

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ATTRIBUTES = ("attribute", "data", "property")
_BEFORE_NAPOLEON, _AFTER_NAPOLEON = 400, 600

_written: dict[str, list[str]] = {}


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("autodoc-process-docstring", remember, priority=_BEFORE_NAPOLEON)
    app.connect("autodoc-process-docstring", read_again, priority=_AFTER_NAPOLEON)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def remember(_app: Sphinx, what: str, name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Keep an attribute's docstring as it was written."""
    if what in _ATTRIBUTES:
        _written[name] = list(lines)


def read_again(  # noqa: PLR0917 (Sphinx calls it)
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Read it as that of a method: prose, then sections."""
    if what in _ATTRIBUTES:
        read = GoogleDocstring(_written.pop(name), app.config, app, "method", name, value, options)
        lines[:] = [*str(read).splitlines(), ""]
