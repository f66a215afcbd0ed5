"""Completing a magic's line: options, their values, and what is known by its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from streamstate.magics.arguments import Argument, MagicParser
from streamstate.magics.offers import Offers
from streamstate.magics.places_offered import places

if TYPE_CHECKING:
    from streamstate.magics.notebook import Notebook

__all__ = ["Completed", "complete_line"]

Completed = tuple[str, list[str]]
"""What is replaced at the cursor, and what with."""

_WORD = re.compile(r"(?:[^\s\"']|\"[^\"]*(?:\"|$)|'[^']*(?:'|$))+")
_NAME = re.compile(r"[\w.]*$")
_REPEATED = ("--key", "--storage-option", "--frame", "--edit", "--conf")
_PLAIN = re.compile(r"[^\s\"'\\{}$]+")


@dataclass(frozen=True)
class _Line:
    """A magic's line up to the cursor."""

    parser: MagicParser
    words: list[str]
    """The words before the one at the cursor."""
    fragment: str
    """The word at the cursor, as far as it is written."""
    query: str = ""
    """The query that stands before a verb."""


def complete_line(parser: MagicParser, rest: str, notebook: Notebook) -> Completed:
    """What the line of a magic can go on with.

    Args:
        parser: the magic's.
        rest: what stands between the magic's name and the cursor.
        notebook: whose names are offered.
    """
    line = _read(parser, rest)
    offers = Offers(notebook, _value_of("--store", line.words))
    argument, places_taken = _argument_at(line)
    if argument is None or not _is_pending(line, argument):
        if line.fragment.startswith("--") and "=" in line.fragment:
            return _complete_joined(line, offers, notebook)
        if line.fragment.startswith("-"):
            return line.fragment, _matching(line.fragment, _flags(line))
    verbs = list(line.parser.verbs) if places_taken in line.parser.verb_places else []
    if argument is None:
        return line.fragment, _matching(line.fragment, verbs)
    fragment, values = _values(argument, line, line.fragment, offers, notebook)
    return fragment, [*values, *(_matching(line.fragment, verbs) if line.fragment and not argument.flags else [])]


def _read(parser: MagicParser, rest: str) -> _Line:
    words = _WORD.findall(rest)
    fragment = words.pop() if words and rest.endswith(words[-1]) else ""
    verb = parser.verb_at(words)
    if verb is None:
        return _Line(parser, words, fragment)
    return _Line(parser.verbs[words[verb]], words[verb + 1 :], fragment, words[0] if verb else "")


def _complete_joined(line: _Line, offers: Offers, notebook: Notebook) -> Completed:
    """A value that is written behind its option: ``--at=1``."""
    flag, _, written = line.fragment.partition("=")
    argument = next((one for one in line.parser.arguments if flag in one.flags), None)
    return (written, []) if argument is None else _values(argument, line, written, offers, notebook)


def _values(argument: Argument, line: _Line, fragment: str, offers: Offers, notebook: Notebook) -> Completed:
    """The values of an argument."""
    if argument.choices:
        return fragment, _matching(fragment, argument.choices)
    if argument.completes == "where":
        name = _NAME.search(fragment)
        begun = name[0] if name else ""
        return begun, _matching(begun, offers.columns(_relation(line))) if fragment else []
    begun = fragment.lstrip("\"'")
    found = _matching(begun, _named(argument, line, begun, offers, notebook))
    return fragment, [one if one.endswith("=") else _quoted(one) for one in found]


def _named(argument: Argument, line: _Line, begun: str, offers: Offers, notebook: Notebook) -> Iterable[str]:
    """What there is of an argument's kind."""
    relation = _relation(line)
    ways: dict[str, Callable[[], Iterable[str]]] = {
        "query": offers.queries,
        "relation": lambda: offers.relations(begun),
        "running": lambda: [name for name in offers.running() if name not in line.words],
        "table": lambda: offers.tables(relation.partition(".")[0]),
        "column": lambda: offers.columns(relation),
        "key": lambda: _keys(line, relation, begun, offers),
        "epoch": lambda: offers.epochs(relation),
        "moment": lambda: [*offers.epochs(relation), *offers.times(relation)],
        "time": lambda: offers.times(relation),
        "variable": offers.variables,
        "frame": offers.frames,
        "code": offers.codes,
        "store": lambda: places(begun, "store", notebook.known_stores()),
        "checkpoint": lambda: places(begun, "checkpoint"),
        "path": lambda: places(begun, "path"),
    }
    return ways.get(argument.completes, lambda: argument.suggestions)()


def _keys(line: _Line, relation: str, begun: str, offers: Offers) -> list[str]:
    """The key columns that are not on the line yet; behind one, its values."""
    column, equals, value = begun.partition("=")
    if equals:
        return [f"{column}={one}" for one in offers.values(relation, column, value) if one]
    given = {word.lstrip("\"'").partition("=")[0] for flag, word in pairwise(line.words) if flag == "--key"}
    return [f"{name}=" for name in offers.key_columns(relation) if name not in given]


def _quoted(text: str) -> str:
    """A word as the line has to spell it."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("{", "{{").replace("}", "}}").replace("$", "$$") + '"'


def _matching(fragment: str, values: Iterable[str]) -> list[str]:
    return [value for value in values if value.startswith(fragment)]


def _flags(line: _Line) -> list[str]:
    """The options that are not on the line yet."""
    flags = [flag for argument in line.parser.arguments for flag in argument.flags]
    given = {word.partition("=")[0] for word in line.words} - {*_REPEATED}
    return [flag for flag in flags if flag not in given]


def _argument_at(line: _Line) -> tuple[Argument | None, int]:
    """The argument whose value is at the cursor, and how many by place stand before it."""
    options = {flag: argument for argument in line.parser.arguments for flag in argument.flags}
    by_place = [argument for argument in line.parser.arguments if not argument.flags]
    pending: Argument | None = None
    left = places_taken = 0
    for word in line.words:
        if left:
            left -= 1
        elif word in options:
            pending, left = options[word], options[word].values
        elif not word.startswith("--"):
            places_taken += 1
    if left:
        return pending, places_taken
    if by_place and by_place[-1].values == 0:
        return by_place[-1], places_taken
    return (by_place[places_taken] if places_taken < len(by_place) else None), places_taken


def _is_pending(line: _Line, argument: Argument) -> bool:
    """Whether the argument's option stands before the cursor and waits for its value."""
    return bool(argument.flags) and any(word in argument.flags for word in line.words[-argument.values :])


def _relation(line: _Line) -> str:
    """The query and table that the line names."""
    if line.query:
        return line.query
    options = {flag: argument for argument in line.parser.arguments for flag in argument.flags}
    left = 0
    for word in line.words:
        if left:
            left -= 1
        elif word in options:
            left = options[word].values
        elif not word.startswith("-"):
            return word.strip("\"'")
    return ""


def _value_of(flag: str, words: list[str]) -> str | None:
    """The value of an option that the line has."""
    joined = (word.partition("=")[2] for word in words if word.startswith(f"{flag}="))
    apart = (value for word, value in pairwise(words) if word == flag)
    return next((value.strip("\"'") for value in (*apart, *joined)), None)
