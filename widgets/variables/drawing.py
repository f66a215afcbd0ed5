"""The drawing of a shared variable: its newest value in words, its history in plots and lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamstate.state_inspect.cell_text import cell, number, timestamp
from streamstate.widgets.charts_and_words import ChartsAndWords, Listing
from streamstate.widgets.number_text import amount
from streamstate.widgets.variables.charts import Held, Span, increment_chart, state_chart, value_charts
from streamstate.widgets.variables.recorded_variable import INIT, MERGE, SET, RecordedVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamstate.state_inspect.bound_versions import BoundFrom
    from streamstate.variables.declaration import Declaration
    from streamstate.widgets.chart import Chart

ITEMS = 20
"""The most items of a list, or entries of a map, that are shown."""


@dataclass(frozen=True)
class QueryBeside:
    """The facts about a query that uses the variable.

    Attributes:
        name: its name.
        query_id: its id, which contributions name.
        rows: its live state rows by epoch, ascending; None where nobody has counted them.
        bound: which versions its epochs saw.
    """

    name: str
    query_id: str = ""
    rows: Mapping[int, int | None] = field(default_factory=dict)
    bound: Sequence[BoundFrom] = ()

    @property
    def newest(self) -> int | None:
        """Its newest captured epoch."""
        return next(reversed(self.rows), None)


@dataclass(frozen=True)
class VariableFacts:
    """The facts about a variable, for a drawing.

    Attributes:
        declaration: what was declared.
        versions: its newest versions, ascending, with values where these are drawn.
        text: its newest value as text.
        entries: of a map, some entries.
        query: the query beside it; None if there is none.
        names: the names of queries by their ids.
    """

    declaration: Declaration
    versions: Sequence[RecordedVersion]
    text: str = ""
    entries: Sequence[tuple[Any, Any]] = ()
    query: QueryBeside | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The variable's name."""
        return self.declaration.name


def drawn(facts: VariableFacts) -> ChartsAndWords:
    """Return the drawing of a variable."""
    label = f"Shared variable {facts.name}"
    if not facts.versions:
        return ChartsAndWords(facts.name, label, ["No version of it is recorded yet."])
    return ChartsAndWords(facts.name, label, [*_sentences(facts)], [*_charts(facts)], _listing(facts))


def came_about(version: RecordedVersion, name_of: Callable[[str], str]) -> str:
    """Describe the origin of a version.

    Example:
        >>> came_about(RecordedVersion(3, "merge", "id", 12, 4, None), lambda _: "delays")
        'merged from 4 tasks of epoch 12 of delays'
    """
    if version.kind == SET:
        return f"set by {version.by}"
    if version.kind == MERGE:
        tasks = amount(version.contributions, "task")
        return f"merged from {tasks} of epoch {version.epoch} of {name_of(version.by)}"
    return f"declared by {version.by}" if version.kind == INIT and version.by else "declared"


def _sentences(facts: VariableFacts) -> Iterator[str]:
    newest = facts.versions[-1]
    when = f", {timestamp(newest.at)}" if newest.at else ""
    has_parts = facts.declaration.type.is_map or facts.declaration.merge.startswith("append")
    verb = "has" if has_parts else "is"
    yield f"{facts.name} {verb} {facts.text}: version {newest.number}, {_how(facts, newest)}{when}."
    before = next((version for version in reversed(facts.versions[:-1]) if version.kind == SET), None)
    if newest.kind == MERGE and before is not None:
        yield f"It was last set in version {before.number}, by {before.by}."
    if facts.query is not None:
        yield _seen(facts, facts.query, newest)


def _how(facts: VariableFacts, version: RecordedVersion) -> str:
    return came_about(version, lambda query: facts.names.get(query, query))


def _seen(facts: VariableFacts, query: QueryBeside, newest: RecordedVersion) -> str:
    """From which epoch on a query saw the newest version."""
    if not facts.declaration.is_bound:
        write_mostly = facts.declaration.access == "write-mostly"
        return f"{query.name} {'adds to it, and does not read it' if write_mostly else 'reads the newest at any time'}."
    if not query.bound:
        return f"No captured epoch of {query.name} was bound to it."
    last = query.bound[-1]
    if last.version.branch:
        return f"{query.name} is a fork, which has versions of its own from epoch {last.epoch} on."
    if last.number >= newest.number:
        return f"{query.name} saw it from epoch {last.epoch} on."
    return f"{query.name} has not seen it yet: its newest captured epoch, {query.newest}, saw version {last.number}."


def _charts(facts: VariableFacts) -> Iterator[Chart]:
    query = facts.query if facts.query is not None and facts.query.newest is not None else None
    if query is None:
        span = Span(facts.versions[0].number, facts.versions[-1].number, "version")
    else:
        span = Span(next(iter(query.rows)), query.newest or 0, f"epoch of {query.name}")
    if facts.declaration.merge == "sum" and number(facts.versions[-1].value) is not None:
        added = _within(_increments(facts, query), span)
        if added:
            yield increment_chart(facts.name, added, span)
    else:
        held = [_held(facts, version) for version in facts.versions] if query is None else _by_epoch(facts, query, span)
        yield from value_charts(facts.name, held, facts.declaration.merge, span)
    if query is not None and any(count is not None for count in query.rows.values()):
        yield state_chart(query.rows, span)


def _held(facts: VariableFacts, version: RecordedVersion) -> Held:
    return Held(version.number, version.value, _how(facts, version), version.kind == SET)


def _by_epoch(facts: VariableFacts, query: QueryBeside, span: Span) -> list[Held]:
    """Return the values that the epochs of a query saw, or, of a variable to which they only add, produced."""
    by_number = {version.number: version for version in facts.versions}
    if not query.bound:
        merged = [version for version in facts.versions if version.by == query.query_id and version.epoch is not None]
        return _within((Held(version.epoch or 0, version.value, _how(facts, version)) for version in merged), span)
    found: list[Held] = []
    for bound in query.bound:
        version = None if bound.version.branch else by_number.get(bound.number)
        if version is not None:
            if bound.epoch <= span.first:
                found.clear()  # it had been replaced by then
            what = f"version {version.number}, {_how(facts, version)}"
            found.append(Held(max(bound.epoch, span.first), version.value, what, version.kind == SET))
    return found


def _increments(facts: VariableFacts, query: QueryBeside | None) -> Iterator[Held]:
    """By how much each merge made a counter grow: at the epoch of the query beside it, else at its version."""
    for before, version in pairwise(facts.versions):
        if version.kind != MERGE or version.epoch is None or (query is not None and version.by != query.query_id):
            continue
        at = version.number if query is None else version.epoch
        yield Held(at, (number(version.value) or 0) - (number(before.value) or 0), _how(facts, version))


def _within(held: Iterable[Held], span: Span) -> list[Held]:
    return [one for one in held if span.first <= one.x <= span.last]


def _listing(facts: VariableFacts) -> Listing | None:
    declaration = facts.declaration
    if declaration.type.is_map:
        rows = [[cell(key), cell(value)] for key, value in facts.entries]
        return (
            Listing(f"Entries of {facts.name}, {_of(len(rows), facts.text)}", ["Key", "Value"], rows) if rows else None
        )
    if not declaration.merge.startswith("append") or not facts.versions[-1].value:
        return None
    rows = [[cell(item), *map(cell, _origin(facts, version))] for item, version in newest_items(facts.versions, ITEMS)]
    total = f"{len(facts.versions[-1].value):,}"
    heads = ["Item", "Epoch", "Query", "When"]
    return Listing(f"The newest items of {facts.name}, {_of(len(rows), total)}", heads, rows)


def _of(shown: int, total: str) -> str:
    return f"{shown:,} of {total}"


def _origin(facts: VariableFacts, version: RecordedVersion | None) -> tuple[Any, str, str]:
    """In which epoch of which query an item was added, and when; empty for what is older than what was read."""
    if version is None:
        return "earlier", "", ""
    when = timestamp(version.at) if version.at else ""
    if version.kind != MERGE:
        return version.kind, "", when
    return version.epoch, facts.names.get(version.by, version.by), when


def newest_items(versions: Sequence[RecordedVersion], most: int) -> list[tuple[Any, RecordedVersion | None]]:
    """The newest items of a list, newest first, each with the version that added it; None if that was not read."""
    found: list[tuple[Any, RecordedVersion | None]] = []
    rest = list(versions[-1].value or ())
    for at in range(len(versions) - 1, -1, -1):
        version, before = versions[at], versions[at - 1] if at else None
        if before is None and version.kind == MERGE:
            break
        added = min(len(version.value or ()) - _kept(before, version), len(rest))
        stays = len(rest) - added
        found += [(item, version) for item in reversed(rest[stays:])]
        rest = rest[:stays]
    return [*found, *((item, None) for item in reversed(rest))][:most]


def _kept(before: RecordedVersion | None, version: RecordedVersion) -> int:
    """Count the items at the beginning of a list that were in the version before; a merge added at least one."""
    if before is None or version.kind != MERGE:
        return 0
    old, new = list(before.value or ()), list(version.value or ())
    most = min(len(old), len(new) - 1)
    return next((count for count in range(most, 0, -1) if old[-count:] == new[:count]), 0)
