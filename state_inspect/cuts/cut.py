"""Consistent cuts: snapshots of several queries that belong together.

Queries commit their epochs independently, so the newest state of one may reflect more input than that of another. A cut
picks an epoch of each such that all reflect the same prefix of the sources they share or, if that cannot be determined,
the same event time or the same moment; it says which. (After Mattern, "Virtual Time and Global States of Distributed
Systems", 1989, with queries as processes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pandas as pd

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownQueryError
from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.cuts.choice import By, Choice, chosen
from streamstate.state_inspect.joined_store import Stores
from streamstate.state_inspect.joined_store import joined as joined_stores
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.result import Result
from streamstate.state_inspect.store import Store, open_store


class Cut:
    """A consistent cut; :func:`cut` returns it. ``cut["delays"]`` is the snapshot of one query.

    Like its snapshots it is pinned: epochs captured later do not change it. ``with ss.cut(…) as cut:`` reads all tables
    at the start and releases them at the end.
    """

    def __init__(self, store: Store, choice: Choice) -> None:
        self._snapshots = choice.snapshots
        self._store = _AtCut(store, self._snapshots)
        self._open = ExitStack()
        self.by = choice.by
        """The kind of agreement between the epochs: ``offsets``, ``event_time`` or ``commit_time``."""
        self.exact = choice.exact
        """True if all queries are known to reflect the same prefix of every source that they share."""
        self.note = choice.note
        """The same in words, including what is not known."""

    @property
    def epochs(self) -> dict[str, int]:
        """Each query's epoch."""
        return {query: snapshot.epoch for query, snapshot in self._snapshots.items()}

    def sql(self, sql: str, **options: Any) -> Result:
        """Run SQL with the cut's queries as relations, each at its epoch of the cut.

        Relations cannot name another epoch (``VERSION AS OF``); use ``store.sql`` for that.

        Args:
            sql: one SELECT statement.
            **options: the options of :meth:`Store.sql`, except ``at``.

        Raises:
            InvalidSQLError: it does not parse, does more than read, fails, or names another epoch.
            UnknownNameError: a relation does not belong to the cut's queries.

        Example:
            >>> cut = ss.cut("store", ["delays", "airports"])
            >>> cut.sql("SELECT (SELECT sum(count) FROM delays), (SELECT sum(count) FROM airports)").to_pandas()
        """
        if "at" in options:
            raise InvalidArgumentError(
                "Invalid argument at: the epochs of a cut are fixed.\nLeave it out, or use store.sql."
            )
        return self._store.sql(sql, **options)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per query: ``query``, ``epoch``, ``committed_at``, ``watermark``, ``rows`` (of all tables)."""
        return self._frame([sum(snapshot.rows().values()) for snapshot in self._snapshots.values()])

    def _frame(self, rows: Sequence[Any]) -> pd.DataFrame:
        snapshots = self._snapshots.values()
        return pd.DataFrame(
            {
                "query": list(self._snapshots),
                "epoch": [snapshot.epoch for snapshot in snapshots],
                "committed_at": pd.Series([at.committed_at for at in snapshots], dtype="datetime64[us, UTC]"),
                "watermark": pd.Series([at.watermark for at in snapshots], dtype="datetime64[us, UTC]"),
                "rows": pd.Series([*rows], dtype="int64" if None not in rows else "Int64"),
            }
        )

    def __getitem__(self, query: str) -> Snapshot:
        if query not in self._snapshots:
            raise UnknownQueryError.among("query", query, self._snapshots, where="in the cut")
        return self._snapshots[query]

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshots)

    def __len__(self) -> int:
        return len(self._snapshots)

    def __contains__(self, query: object) -> bool:
        return query in self._snapshots

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for snapshot in self._snapshots.values():
                opened.enter_context(snapshot)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __repr__(self) -> str:
        epochs = ", ".join(f"{query} {epoch}" for query, epoch in self.epochs.items())
        return f"<Cut by {self.by}{'' if self.exact else ', not exact'}: {epochs}>"

    def _repr_html_(self) -> str:
        frame = self._frame([_total(snapshot.known_rows().values()) for snapshot in self._snapshots.values()])
        return joined(Html(frame.to_html(index=False, na_rep="not counted")), tag("p", self.note))


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a number is not known."""
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None


class _AtCut(Store):
    """The same store with only the queries of a cut, each at its epoch."""

    def __init__(self, store: Store, snapshots: Mapping[str, Snapshot]) -> None:
        vars(self).update(vars(store))  # the same index, so that nothing is read twice
        self._at = snapshots

    def queries(self) -> list[str]:
        return sorted(self._at)

    def _travel(self, query: str, to: int | str | datetime | None) -> Snapshot:
        if to is not None:
            raise InvalidSQLError(
                f"SQL over this cut reads {query} only at epoch {self._at[query].epoch}.\n"
                "Leave out VERSION AS OF and TIMESTAMP AS OF, or use store.sql."
            )
        return self._at[query]


@consistent_read()
def cut(
    store: Store | str | Path | Stores,
    queries: Iterable[str],
    *,
    at: int | str | Mapping[str, int] | datetime | None = None,
    by: By | None = None,
) -> Cut:
    """Take snapshots of several queries that reflect the same prefix of the sources they share.

    Args:
        store: an open store, or its path; or several by name, such as ``{"ours": …, "theirs": …}``, of which one may be
            what others share.
        queries: their names; of several stores ``ours.delays``, or ``delays`` if one of them has that query only.
        at: the position of the cut: ``"live"`` (or None) for the newest cut; an epoch of the first query (also
            ``"live - 10"``); a dict of queries and epochs, such as ``{"weather": 7}``; or an aware datetime, for the
            newest cut committed by then (with ``by="event_time"``: whose watermarks have not passed it).
        by: what the epochs have in common:

            * ``"offsets"``: how far each query has read every source that it shares with another. Sources that only one
              query reads do not matter. Of epochs that reflect the same input, the newest is used.
            * ``"event_time"``: each query's newest epoch whose watermark has not passed the same time.
            * ``"commit_time"``: each query's newest epoch committed by the same time.

            By default the first of these that is possible for all queries.

    Raises:
        UnknownCutError: there is no such cut; the message names the nearest cuts.
        UnknownQueryError, UnknownEpochError: a query or an epoch does not exist.
        InvalidArgumentError, NaiveTimestampError: an argument is invalid.

    Example:
        >>> with ss.cut("store", ["delays", "airports"]) as cut:
        ...     cut.by, cut.exact, cut.epochs
        ('offsets', True, {'delays': 13, 'airports': 13})
    """
    if isinstance(queries, str):
        raise InvalidArgumentError(f"Invalid queries={queries!r}: expected a list, such as [{queries!r}, …].")
    names = list(queries)
    if not names or len({*names}) < len(names):
        raise InvalidArgumentError(f"Invalid queries={names!r}: expected one or more queries, each named once.")
    if isinstance(store, (str, Path)):
        store = open_store(store)
    opened = store if isinstance(store, Store) else joined_stores(store)
    names = [opened.full_name(name) for name in names]
    histories = {name: opened[name] for name in names}
    return Cut(opened, chosen(histories, at, by))
