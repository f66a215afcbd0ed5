"""Tab completion of the magics, wherever in a cell they stand; it never raises, never waits, never starts anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from streamstate.magics.line_completion import Completed, complete_line
from streamstate.magics.magic import Magic
from streamstate.magics.offers import Offers
from streamstate.magics.sql_completion import Names, SparkNames, StoreNames, complete_sql

if TYPE_CHECKING:
    from streamstate.magics.notebook import Notebook

__all__ = ["make_matcher"]

_LINE = re.compile(r"^\s*(?:[^=%#'\"]+=\s*)?(?P<marks>%%?)(?P<name>\w+)(?:\s(?P<rest>.*))?$")
_STORE = re.compile(r"--store[=\s]+(\S+)")

# Before those of Python, which would guess at what is no Python.
_PRIORITY = 1000.0


def make_matcher(notebook: Notebook, magics: Sequence[Magic]) -> Callable[[CompletionContext], Any]:
    """A matcher to register with the shell's completer."""
    by_spelling = {("%" if magic.kind == "line" else "%%") + magic.name: magic for magic in magics}

    @context_matcher(identifier="streamstate", priority=_PRIORITY)  # type: ignore[untyped-decorator]
    def streamstate_matcher(context: CompletionContext) -> Any:
        fragment, candidates = context.token, list[str]()
        with suppress(Exception):  # a store that cannot be read completes nothing
            found, offered = _complete(context, by_spelling, notebook)
            # A word that goes on over the end of a line stands nowhere as such, and cannot be replaced.
            if context.text_until_cursor.endswith(found):
                fragment, candidates = found, offered
        completions = [SimpleCompletion(text, type="streamstate") for text in candidates]
        return {"completions": completions, "matched_fragment": fragment, "suppress": True, "ordered": True}

    return streamstate_matcher  # type: ignore[no-any-return]


def _complete(context: CompletionContext, by_spelling: dict[str, Magic], notebook: Notebook) -> Completed:
    """What is at the cursor, and what it can go on with."""
    lines = context.full_text.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if context.cursor_line > first and (names := _sql_names(lines[first], by_spelling, notebook)) is not None:
        body = lines[first + 1 :]
        cursor = sum(len(line) + 1 for line in body[: context.cursor_line - first - 1]) + context.cursor_position
        return complete_sql("\n".join(body), cursor, names)
    match = _LINE.match(_logical_line(lines, context))
    magic = by_spelling.get(match["marks"] + match["name"]) if match else None
    if match is None or magic is None or match["rest"] is None:
        return context.token, []
    return complete_line(magic.parser, match["rest"], notebook)


def _logical_line(lines: list[str], context: CompletionContext) -> str:
    """The line up to the cursor, with those before it that end in a backslash and so go on in it."""
    text = context.text_until_cursor
    for line in reversed(lines[: context.cursor_line]):
        if not line.rstrip().endswith("\\"):
            break
        text = f"{line.rstrip()[:-1]} {text}"
    return text


def _sql_names(header: str, by_spelling: dict[str, Magic], notebook: Notebook) -> Names | None:
    """What the SQL below a cell magic may name; None where it is none."""
    match = _LINE.match(header)
    magic = by_spelling.get(match["marks"] + match["name"]) if match else None
    if match is None or magic is None or magic.kind != "cell":
        return None
    words = (match["rest"] or "").split()
    if magic.sql:
        store = _STORE.search(match["rest"] or "")
        return StoreNames(Offers(notebook, store[1].strip("\"'") if store else None))
    return SparkNames() if "--sql" in words else None
