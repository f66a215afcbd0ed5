"""Tab completion of the magics, anywhere in a cell. It never raises, blocks or starts anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from streamstate.magics.arguments import Argument, MagicParser
from streamstate.magics.completion_values import CompletionValues, directories
from streamstate.magics.magic import Magic
from streamstate.magics.sql_completion import Completed, Names, SparkNames, StoreNames, complete_sql

if TYPE_CHECKING:
    from streamstate.magics.notebook_context import NotebookContext

_LINE = re.compile(r"^\s*(?:[^=%#'\"]+=\s*)?(?P<marks>%%?)(?P<name>\w+)(?:\s(?P<rest>.*))?$")
_WORD = re.compile(r"(?:[^\s\"']|\"[^\"]*(?:\"|$)|'[^']*(?:'|$))+")
_NAME = re.compile(r"[\w.]*$")
_REPEATED = ("--key", "--storage-option", "--frame", "--edit", "--conf")

# Before Python's completions, which would guess at what is not Python.
_PRIORITY = 1000.0


def make_matcher(notebook: NotebookContext, magics: Sequence[Magic]) -> Callable[[CompletionContext], Any]:
    """A matcher to register with the shell's completer."""
    by_spelling = {("%" if magic.kind == "line" else "%%") + magic.name: magic for magic in magics}

    @context_matcher(identifier="streamstate", priority=_PRIORITY)  # type: ignore[untyped-decorator]
    def streamstate_matcher(context: CompletionContext) -> Any:
        fragment, candidates = context.token, list[str]()
        with suppress(Exception):  # a store that cannot be read has no completions
            found, values = _complete(context, by_spelling, notebook)
            # A word that continues on the next line cannot be replaced.
            if context.text_until_cursor.endswith(found):
                fragment, candidates = found, values
        completions = [SimpleCompletion(text, type="streamstate") for text in candidates]
        return {"completions": completions, "matched_fragment": fragment, "suppress": True, "ordered": True}

    return streamstate_matcher  # type: ignore[no-any-return]


def _complete(context: CompletionContext, by_spelling: dict[str, Magic], notebook: NotebookContext) -> Completed:
    """The text at the cursor, and what can replace it."""
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
    return _complete_line(magic.parser, match["rest"], notebook)


def _logical_line(lines: list[str], context: CompletionContext) -> str:
    """The line up to the cursor, joined with those before it that end in a backslash."""
    text = context.text_until_cursor
    for line in reversed(lines[: context.cursor_line]):
        if not line.rstrip().endswith("\\"):
            break
        text = f"{line.rstrip()[:-1]} {text}"
    return text


def _sql_names(header: str, by_spelling: dict[str, Magic], notebook: NotebookContext) -> Names | None:
    """The names that the SQL of a cell magic may use; None if the cell is not SQL."""
    match = _LINE.match(header)
    magic = by_spelling.get(match["marks"] + match["name"]) if match else None
    if match is None or magic is None or magic.kind != "cell":
        return None
    words = _WORD.findall(match["rest"] or "")
    if magic.sql:
        return StoreNames(notebook, _value_of("--store", words))
    return SparkNames() if "--sql" in words else None


@dataclass(frozen=True)
class _Line:
    """A magic's line up to the cursor."""

    parser: MagicParser
    words: list[str]
    """The words before the one at the cursor."""
    fragment: str
    """The text of the word at the cursor, up to the cursor."""
    query: str = ""
    """The query named before a verb."""


def _complete_line(parser: MagicParser, rest: str, notebook: NotebookContext) -> Completed:
    """Return the completions of a magic's line; ``rest`` is its text from the magic's name to the cursor."""
    line = _read(parser, rest)
    names = CompletionValues(notebook, _value_of("--store", line.words))
    argument, before = _argument_at(line)
    if argument is None or not argument.flags or argument.values is None:  # another option's value is still missing
        if line.fragment.startswith("--") and "=" in line.fragment:
            return _complete_joined(line, names)
        if line.fragment.startswith("-"):
            return line.fragment, _matching(line.fragment, _flags(line))
    verbs = list(line.parser.verbs) if len(before) in line.parser.verb_places else []
    if argument is None:
        return line.fragment, _matching(line.fragment, verbs)
    fragment, values = _values(argument, line, line.fragment, names)
    return fragment, [*values, *(_matching(line.fragment, verbs) if line.fragment and not argument.flags else [])]


def _read(parser: MagicParser, rest: str) -> _Line:
    words = _WORD.findall(rest)
    fragment = words.pop() if words and rest.endswith(words[-1]) else ""
    verb = parser.verb_at(words)
    if verb is None:
        return _Line(parser, words, fragment)
    return _Line(parser.verbs[words[verb]], words[verb + 1 :], fragment, words[0] if verb else "")


def _complete_joined(line: _Line, names: CompletionValues) -> Completed:
    """A value joined to its option: ``--at=1``."""
    flag, _, written = line.fragment.partition("=")
    argument = next((known for known in line.parser.arguments if flag in known.flags), None)
    return (written, []) if argument is None else _values(argument, line, written, names)


def _values(argument: Argument, line: _Line, fragment: str, names: CompletionValues) -> Completed:
    """The completions of an argument's value."""
    if argument.choices:
        return fragment, _matching(fragment, argument.choices)
    if argument.completes == "where":
        name = _NAME.search(fragment)
        begun = name[0] if name else ""
        return begun, _matching(begun, names.columns(_relation(line))) if fragment else []
    from streamstate.state_inspect.keys.key_text import magic_word  # loads the engine for reading

    begun = fragment.lstrip("\"'")
    found = _matching(begun, _named(argument, line, begun, names))
    return fragment, [value if value.endswith("=") else magic_word(value) for value in found]


def _named(argument: Argument, line: _Line, begun: str, names: CompletionValues) -> Iterable[str]:
    """All known values of an argument's kind."""
    relation = _relation(line)
    sources: dict[str, Callable[[], Iterable[str]]] = {
        "query": names.queries,
        "relation": lambda: names.relations(begun),
        "running": lambda: [name for name in names.running() if name not in line.words],
        "table": lambda: names.tables(relation.partition(".")[0]),
        "column": lambda: names.columns(relation),
        "key": lambda: _keys(line, relation, begun, names),
        "epoch": lambda: names.epochs(relation),
        "moment": lambda: [*names.epochs(relation), *names.times(relation)],
        "time": lambda: names.times(relation),
        "variable": names.variables,
        "frame": names.frames,
        "code": names.codes,
        "shared": names.shared_variables,
        "store": lambda: names.stores(begun),
        "checkpoint": lambda: directories(begun, "checkpoint"),
        "path": lambda: directories(begun, "path"),
    }
    return sources.get(argument.completes, lambda: argument.suggestions)()


def _keys(line: _Line, relation: str, begun: str, names: CompletionValues) -> list[str]:
    """The key columns that are not on the line yet; after ``COLUMN=``, the column's values."""
    column, equals, value = begun.partition("=")
    if equals:
        return [f"{column}={known}" for known in names.values(relation, column, value) if known]
    given = {word.lstrip("\"'").partition("=")[0] for word in line.words if "=" in word}
    return [f"{name}=" for name in names.key_columns(relation) if name not in given]


def _matching(fragment: str, values: Iterable[str]) -> list[str]:
    return [value for value in values if value.startswith(fragment)]


def _flags(line: _Line) -> list[str]:
    """The options that are not on the line yet."""
    flags = [flag for argument in line.parser.arguments for flag in argument.flags]
    given = {word.partition("=")[0] for word in line.words} - {*_REPEATED}
    return [flag for flag in flags if flag not in given]


def _argument_at(line: _Line) -> tuple[Argument | None, list[str]]:
    """The argument whose value is at the cursor, and the values of positional arguments before it."""
    options = {flag: argument for argument in line.parser.arguments for flag in argument.flags}
    positional = [argument for argument in line.parser.arguments if not argument.flags]
    pending: Argument | None = None
    left = 0
    before: list[str] = []
    for word in line.words:
        if word in options:
            pending = options[word]
            left = len(line.words) if pending.values is None else pending.values
        elif left:
            left -= 1
        elif not word.startswith("--"):
            before.append(word.strip("\"'"))
    if left:
        return pending, before
    if positional and positional[-1].values is None:
        return positional[min(len(before), len(positional) - 1)], before
    return (positional[len(before)] if len(before) < len(positional) else None), before


def _relation(line: _Line) -> str:
    """The query and table that the line names."""
    return line.query or next(iter(_argument_at(line)[1]), "")


def _value_of(flag: str, words: list[str]) -> str | None:
    """The value of an option that the line has."""
    joined = (word.partition("=")[2] for word in words if word.startswith(f"{flag}="))
    apart = (value for word, value in pairwise(words) if word == flag)
    return next((value.strip("\"'") for value in (*apart, *joined)), None)
