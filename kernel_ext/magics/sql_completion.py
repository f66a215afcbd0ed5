"""Completion of SQL: relations, the columns of those that the statement names, epochs, and keywords."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from streamstate.magics.completion_values import CompletionValues
from streamstate.magics.sql_scanner import KEYWORDS, Scan
from streamstate.snapshots.checkpoint.bindings import SHARED, relation_of

Completed = tuple[str, list[str]]
"""The text at the cursor, and what can replace it."""

_FRAGMENT = re.compile(r"(?:[\w.]|\"[^\"\n]*\"(?=\.)|`[^`\n]*`(?=\.))*[\w.\"`]*$")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_TRAVEL = ["VERSION AS OF", "TIMESTAMP AS OF"]
_FOLLOWING = ["AS", "JOIN", "LEFT JOIN", "ON", "USING", "WHERE", "GROUP BY", "ORDER BY", "LIMIT"]
_LIVE = ["'live'", "'live - 1'", "'live - 10'"]
_KINDS = ("history", "changes")


class Names(Protocol):
    """The names that a statement may use."""

    travels: bool = False
    """Whether VERSION AS OF is supported."""

    def relations(self, begun: str) -> list[str]:
        """The relations that may begin with a text."""

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation; none if it is unknown."""

    def epochs(self, relation: str) -> list[str]:
        """The epochs of a relation, the newest first, if statements can travel in time."""
        return []

    def times(self, relation: str) -> list[str]:
        """Commit times."""
        return []


def complete_sql(sql: str, cursor: int, names: Names) -> Completed:
    """The completions of a statement at the cursor; the names that it may use also come from the text after it."""
    before = sql[:cursor]
    match = _FRAGMENT.search(before)
    fragment = match[0] if match else ""
    here = Scan(before[: len(before) - len(fragment)])
    if here.open_text:
        written = here.open_text + fragment  # inside quotes only epochs and times are completed
        timed = here.expects in ("version", "timestamp") and names.travels
        return written, _matching(written, _moments(here, names)) if timed else []
    if here.expects == "nothing":
        return fragment, []
    whole = Scan(sql)
    if here.expects in ("version", "timestamp") and names.travels:
        return fragment, _matching(fragment, _moments(here, names))
    if here.expects == "relation":
        return fragment, _matching(fragment, [*whole.defined, *names.relations(fragment)])
    if here.expects == "after relation" and "." not in fragment:
        following = [*(_TRAVEL if names.travels else []), *_FOLLOWING, *(KEYWORDS if fragment else [])]
        return fragment, _matching(fragment, following, cased=True)
    return fragment, _in_expression(fragment, whole, names)


def _in_expression(fragment: str, whole: Scan, names: Names) -> list[str]:
    """Columns first, then qualifiers, then keywords."""
    qualifier, dot, _last = fragment.rpartition(".")
    if dot:
        relation = whole.relation_of(qualifier.replace('"', "").replace("`", "")) or qualifier
        return _matching(fragment, [f"{qualifier}.{_spelled(name)}" for name in _columns(relation, names)])
    named = [table.relation for table in whole.named]
    if not named:
        known = names.relations("")
        named = known[:1] if len(known) == 1 else []
    columns = [_spelled(name) for relation in named for name in _columns(relation, names)]
    aliases = [name for table in whole.named if "." not in (name := table.alias or table.relation)]
    found = _matching(fragment, [*columns, *aliases])
    return found + (_matching(fragment, KEYWORDS, cased=True) if fragment and not found else [])


def _columns(relation: str, names: Names) -> list[str]:
    """The columns of a relation; none if it is unknown."""
    with suppress(LookupError, OSError, RuntimeError, ValueError):
        return names.columns(relation)
    return []


def _moments(here: Scan, names: Names) -> list[str]:
    """The epochs or times that may follow AS OF."""
    relation = here.named[-1].relation if here.named else ""
    if here.expects == "timestamp":
        return [f"'{time}'" for time in names.times(relation)]
    return [*(epoch for epoch in names.epochs(relation) if epoch.isdigit()), *_LIVE]


def _matching(fragment: str, values: Iterable[str], *, cased: bool = False) -> list[str]:
    """The values that begin with the fragment, ignoring case; keywords (``cased``) in the fragment's case."""
    folded = fragment.casefold()
    found = [value for value in dict.fromkeys(values) if value.casefold().startswith(folded)]
    return [value.lower() for value in found] if cased and fragment and fragment == fragment.lower() else found


def _spelled(name: str) -> str:
    """A column's name, quoted if SQL needs it."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


class StoreNames(CompletionValues):
    """The names of SQL over a store: state tables, their histories and changes, and the notebook's DataFrames."""

    travels = True

    def relations(self, begun: str = "") -> list[str]:
        """Queries and their tables (after a dot also histories and changes), then DataFrames."""
        found = super().relations(begun)
        found += [relation_of(name) for name in self.shared_variables()]
        if "." in begun:
            queries = [query for query in self.queries() if begun.startswith(f"{query}.")]
            return found + [f"{relation}.{kind}" for relation in [*queries, *found] for kind in _KINDS]
        return [*found, *(name for name in self.frames() if name not in found)]

    def _default_table(self, query: str, kind: str) -> str:
        return self._history(query).tables()[0]

    def columns(self, relation: str) -> list[str]:
        """The columns of a state table, a result or a DataFrame."""
        query = relation.partition(".")[0].casefold()
        known = {name.casefold(): name for name in self.queries()}
        if query == SHARED and SHARED not in known:
            return super().columns(relation)
        if query in known:
            return super().columns(known[query] + relation[len(query) :])
        frames = self.frames()
        return _columns_of(frames[relation]) if relation in frames else []


class SparkNames(Names):
    """The names of Spark SQL: the views and tables of the session, if one is running."""

    def relations(self, begun: str) -> list[str]:
        """The views and tables of the session."""
        spark = _running_session()
        return [] if spark is None else [table.name for table in spark.catalog.listTables()]

    def columns(self, relation: str) -> list[str]:
        """The columns of a view; no data is read."""
        spark = _running_session()
        known = [] if spark is None or relation not in self.relations("") else spark.table(relation).columns
        return list(known)


def _running_session() -> Any:
    """The running session; completion neither starts one nor imports PySpark."""
    if "pyspark" not in sys.modules:
        return None
    from streamstate.snapshots.spark.session import running_session

    return running_session()


def _columns_of(frame: Any) -> list[str]:
    """The columns of a DataFrame of any library."""
    if hasattr(frame, "collect_schema"):
        return list(frame.collect_schema().names())
    schema = getattr(frame, "schema", None)
    names = getattr(schema, "names", None) if not hasattr(frame, "columns") or hasattr(frame, "num_rows") else None
    return [str(name) for name in (frame.columns if names is None else names)]
