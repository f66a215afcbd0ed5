"""Completing SQL: relations where one may stand, columns of those that the statement names, epochs, keywords."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from streamstate.magics.sql_words import KEYWORDS, Scan, scan

if TYPE_CHECKING:
    from streamstate.magics.line_completion import Completed
    from streamstate.magics.offers import Offers

__all__ = ["SparkNames", "StoreNames", "complete_sql"]

_FRAGMENT = re.compile(r"(?:[\w.]|\"[^\"\n]*\"(?=\.)|`[^`\n]*`(?=\.))*[\w.\"`]*$")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_TRAVEL = ["VERSION AS OF", "TIMESTAMP AS OF"]
_FOLLOWING = ["AS", "JOIN", "LEFT JOIN", "ON", "USING", "WHERE", "GROUP BY", "ORDER BY", "LIMIT"]
_LIVE = ["'live'", "'live - 1'", "'live - 10'"]
_KINDS = ("history", "changes")


class Names(Protocol):
    """What a statement may name."""

    travels: bool
    """Whether VERSION AS OF is meant for it."""

    def relations(self, begun: str) -> list[str]:
        """Relations, as far as they fit what is written."""

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation; none where it is not known."""

    def epochs(self, relation: str) -> list[str]:
        """The epochs of a relation, the newest first."""

    def times(self, relation: str) -> list[str]:
        """When they were committed."""


def complete_sql(sql: str, cursor: int, names: Names) -> Completed:
    """What a statement can go on with.

    Args:
        sql: all of it, what stands behind the cursor too.
        cursor: where in it the cursor is.
        names: what it may name.
    """
    before = sql[:cursor]
    match = _FRAGMENT.search(before)
    fragment = match[0] if match else ""
    here = scan(before[: len(before) - len(fragment)])
    if here.open_text:
        written = here.open_text + fragment
        return written, _in_text(written, here, names)
    if here.expects == "nothing":
        return fragment, []
    whole = scan(sql)
    if here.expects in ("version", "timestamp") and names.travels:
        return fragment, _fitting(fragment, _moments(here, names))
    if here.expects == "relation":
        return fragment, _fitting(fragment, _relations(fragment, whole, names))
    if here.expects == "after relation" and "." not in fragment:
        following = [*(_TRAVEL if names.travels else []), *_FOLLOWING, *(KEYWORDS if fragment else [])]
        return fragment, _fitting(fragment, following, cased=True)
    return fragment, _in_expression(fragment, whole, names)


def _relations(fragment: str, whole: Scan, names: Names) -> list[str]:
    """Relations, and names that WITH defines."""
    return [*whole.defined, *names.relations(fragment)]


def _in_expression(fragment: str, whole: Scan, names: Names) -> list[str]:
    """Columns first, then what they may be qualified with, then keywords."""
    qualifier, dot, _last = fragment.rpartition(".")
    if dot:
        relation = whole.relation_of(qualifier.replace('"', "").replace("`", "")) or qualifier
        return _fitting(fragment, [f"{qualifier}.{_spelled(name)}" for name in _columns(relation, names)])
    named = [one.relation for one in whole.named]
    if not named:
        known = names.relations("")
        named = known[:1] if len(known) == 1 else []
    columns = [_spelled(name) for relation in named for name in _columns(relation, names)]
    aliases = [one.alias or one.relation for one in whole.named if "." not in (one.alias or one.relation)]
    found = _fitting(fragment, [*columns, *aliases])
    return found + (_fitting(fragment, KEYWORDS, cased=True) if fragment and not found else [])


def _columns(relation: str, names: Names) -> list[str]:
    """The columns of a relation; one that is not known has none."""
    with suppress(LookupError, OSError, RuntimeError, ValueError):
        return names.columns(relation)
    return []


def _moments(here: Scan, names: Names) -> list[str]:
    """What may stand behind AS OF."""
    relation = here.named[-1].relation if here.named else ""
    if here.expects == "timestamp":
        return [f"'{time}'" for time in names.times(relation)]
    return [*(one for one in names.epochs(relation) if one.isdigit()), *_LIVE]


def _in_text(written: str, here: Scan, names: Names) -> list[str]:
    """Inside quotes only moments are known."""
    if here.expects in ("version", "timestamp") and names.travels:
        return _fitting(written, _moments(here, names))
    return []


def _fitting(fragment: str, values: Iterable[str], *, cased: bool = False) -> list[str]:
    """The values that begin as what is written, upper and lower case alike; keywords in the case that is written."""
    folded = fragment.casefold()
    found = [one for one in dict.fromkeys(values) if one.casefold().startswith(folded)]
    return [one.lower() for one in found] if cased and fragment and fragment == fragment.lower() else found


def _spelled(name: str) -> str:
    """A column as SQL spells it."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


class StoreNames:
    """What SQL over a store may name: state tables, their histories and changes, and the notebook's own frames."""

    travels = True

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    def relations(self, begun: str) -> list[str]:
        """Queries and their tables, histories and changes behind a dot, then frames."""
        found = self._offers.relations(begun)
        if "." in begun:
            queries = [one for one in self._offers.queries() if begun.startswith(f"{one}.")]
            return found + [f"{one}.{kind}" for one in [*queries, *found] for kind in _KINDS]
        return [*found, *(name for name in self._offers.frames() if name not in found)]

    def columns(self, relation: str) -> list[str]:
        """Those of a frame where it is one, else those of a state table."""
        query = relation.partition(".")[0].casefold()
        known = {name.casefold(): name for name in self._offers.queries()}
        if query in known:
            return self._offers.columns(known[query] + relation[len(query) :])
        frames = self._offers.frames()
        return _columns_of(frames[relation]) if relation in frames else []

    def epochs(self, relation: str) -> list[str]:
        """The epochs of its query."""
        return self._offers.epochs(relation)

    def times(self, relation: str) -> list[str]:
        """When its query's epochs were committed."""
        return self._offers.times(relation)


class SparkNames:
    """What SQL for Spark may name, where Spark is running already: its temporary views and tables."""

    travels = False

    def __init__(self, session: Callable[[], Any] | None = None) -> None:
        self._session = session or _running_session

    def relations(self, begun: str) -> list[str]:
        """Views and tables of the session."""
        spark = self._session()
        return [] if spark is None else [one.name for one in spark.catalog.listTables()]

    def columns(self, relation: str) -> list[str]:
        """The columns of a view; nothing is read for it."""
        spark = self._session()
        known = [] if spark is None or relation not in self.relations("") else spark.table(relation).columns
        return list(known)

    def epochs(self, relation: str) -> list[str]:
        """None: streams have no epochs here."""
        return []

    def times(self, relation: str) -> list[str]:
        """None."""
        return []


def _running_session() -> Any:
    """The session in use; completing starts none, and does not even load Spark."""
    if "pyspark" not in sys.modules:
        return None
    from streamstate.spark_session import running_session

    return running_session()


def _columns_of(frame: Any) -> list[str]:
    """The columns of a frame of any library."""
    if hasattr(frame, "collect_schema"):
        return list(frame.collect_schema().names())
    schema = getattr(frame, "schema", None)
    names = getattr(schema, "names", None) if not hasattr(frame, "columns") or hasattr(frame, "num_rows") else None
    return [str(name) for name in (frame.columns if names is None else names)]
