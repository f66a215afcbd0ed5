"""Tab completion of the magics' options, and of the names, columns and epochs that are in the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from streamstate.magics.arguments import Argument, MagicParser
from streamstate.magics.magic import Magic
from streamstate.magics.offers import Offers

if TYPE_CHECKING:
    from streamstate.magics.notebook import Notebook

__all__ = ["make_matcher"]

_LINE = re.compile(r"^\s*(?:[\w\s,]+=\s*)?(?P<marks>%%?)(?P<name>\w+)\s(?P<rest>.*)$")
_WORD = re.compile(r"(?:[^\s\"']|\"[^\"]*(?:\"|$)|'[^']*(?:'|$))+")
_SQL_WORD = re.compile(r"[\w.\-]*$")

# Before those of Python, which would guess at what is no Python.
_PRIORITY = 1000.0


@dataclass(frozen=True)
class _Line:
    """A magic's line up to the cursor."""

    parser: MagicParser
    words: list[str]
    """The words before the one at the cursor."""
    fragment: str
    """The word at the cursor, as far as it is written."""


def make_matcher(notebook: Notebook, magics: Sequence[Magic]) -> Callable[[CompletionContext], Any]:
    """A matcher to register with the shell's completer."""
    by_spelling = {("%" if magic.kind == "line" else "%%") + magic.name: magic for magic in magics}
    sql = tuple(spelling for spelling, magic in by_spelling.items() if magic.sql)
    offers = Offers(notebook)

    @context_matcher(identifier="streamstate", priority=_PRIORITY)  # type: ignore[untyped-decorator]
    def streamstate_matcher(context: CompletionContext) -> Any:
        candidates: list[str] = []
        fragment = context.token
        with suppress(Exception):  # a store that cannot be read completes nothing
            if context.cursor_line > 0 and context.full_text.lstrip().startswith(sql):
                fragment, candidates = _complete_sql(context, offers)
            elif line := _line_of(context, by_spelling):
                fragment, candidates = _complete_line(line, offers)
        completions = [SimpleCompletion(text, type="streamstate") for text in candidates]
        return {"completions": completions, "matched_fragment": fragment, "suppress": True, "ordered": True}

    return streamstate_matcher  # type: ignore[no-any-return]


def _line_of(context: CompletionContext, by_spelling: dict[str, Magic]) -> _Line | None:
    """The magic's line that the cursor is in."""
    match = _LINE.match(context.text_until_cursor)
    magic = by_spelling.get(match["marks"] + match["name"]) if match else None
    if match is None or magic is None:
        return None
    rest = match["rest"]
    words = _WORD.findall(rest)
    fragment = words.pop() if words and rest.endswith(words[-1]) else ""
    parser = magic.parser
    verb = parser.verb_at(words)
    if verb is not None:
        return _Line(parser.verbs[words[verb]], words[verb + 1 :], fragment)
    return _Line(parser, words, fragment)


def _complete_line(line: _Line, offers: Offers) -> tuple[str, list[str]]:
    """The fragment to replace, and what with."""
    if line.fragment.startswith("-") and "=" not in line.fragment:
        return line.fragment, _matching(line.fragment, _flags(line))
    argument, places = _argument_at(line)
    if argument is None:
        verbs = list(line.parser.verbs) if places in line.parser.verb_places else []
        return line.fragment, _matching(line.fragment, verbs)
    values = argument.choices or offers.values(argument.completes, _relation(line), line.fragment, _store(line))
    return line.fragment, _matching(line.fragment, values)


def _matching(fragment: str, values: Iterable[str]) -> list[str]:
    return [value for value in values if value.startswith(fragment)]


def _flags(line: _Line) -> list[str]:
    """The options that are not on the line yet."""
    flags = [flag for argument in line.parser.arguments for flag in argument.flags]
    return [flag for flag in flags if flag not in line.words or flag == "--key"]


def _argument_at(line: _Line) -> tuple[Argument | None, int]:
    """The argument whose value is at the cursor, and how many by place stand before it."""
    options = {flag: argument for argument in line.parser.arguments for flag in argument.flags}
    by_place = [argument for argument in line.parser.arguments if not argument.flags]
    pending: Argument | None = None
    left = places = 0
    for word in line.words:
        if left:
            left -= 1
        elif word in options:
            pending, left = options[word], options[word].values
        else:
            places += 1
    if left:
        return pending, places
    if by_place and by_place[-1].values == 0:
        return by_place[-1], places
    return (by_place[places] if places < len(by_place) else None), places


def _relation(line: _Line) -> str:
    """The query and table that the line names."""
    return next((word for word in line.words if not word.startswith("-")), "").strip("\"'")


def _store(line: _Line) -> str | None:
    """The store that the line names."""
    return next((value.strip("\"'") for word, value in pairwise(line.words) if word == "--store"), None)


def _complete_sql(context: CompletionContext, offers: Offers) -> tuple[str, list[str]]:
    """Names of relations, and of the columns of those that the cell mentions."""
    match = _SQL_WORD.search(context.text_until_cursor)
    fragment = match[0] if match else ""
    body = context.full_text.partition("\n")[2]
    relations = offers.relations(None, within=fragment)
    if "." in fragment:
        queries = offers.values("query", "", "", None)
        relations += [f"{one}.{kind}" for one in [*queries, *relations] for kind in ("history", "changes")]
    named = [name for name in relations if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", body)]
    columns = [column for name in named for column in offers.columns(name, None)]
    values = dict.fromkeys([*relations, *columns])
    return fragment, [value for value in values if value.lower().startswith(fragment.lower())]
