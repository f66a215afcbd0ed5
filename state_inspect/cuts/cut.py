"""Snapshots of several queries that belong together: a consistent cut.

Each query commits its epochs when it likes, so "now" in one has seen more of the input than "now" in another. A cut
takes an epoch of each such that all reflect the same prefix of the sources they share, or, where that cannot be known,
the same event time or the same moment; it says which. (After Mattern, "Virtual Time and Global States of Distributed
Systems", 1989, whose processes are the queries here.)
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, UnknownQueryError
from streamstate.state_inspect.cuts.choice import By, chosen
from streamstate.state_inspect.store import Store, open_store

if TYPE_CHECKING:
    from streamstate.state_inspect.snapshot import Snapshot
    from streamstate.state_inspect.sql import Result


class Cut:
    """Snapshots of several queries that belong together; :func:`cut` gives it, ``cut["delays"]`` is one of them.

    Like each of its snapshots it is pinned: what is captured later does not change it. ``with ss.cut(…) as cut:``
    reads all tables at the start, and lets go of them at the end.
    """

    def __init__(self, store: Store, snapshots: Mapping[str, Snapshot], by: By, *, exact: bool, note: str) -> None:
        self._snapshots = dict(snapshots)
        self._store = _AtCut(store, self._snapshots)
        self._open = ExitStack()
        self.by = by
        """What the epochs have in common: ``offsets``, ``event_time`` or ``commit_time``."""
        self.exact = exact
        """Whether all are known to reflect the same prefix of every source that they share."""
        self.note = note
        """The same in words, with what is not covered."""

    @property
    def epochs(self) -> dict[str, int]:
        """Each query's epoch."""
        return {query: snapshot.epoch for query, snapshot in self._snapshots.items()}

    def sql(self, sql: str, **options: Any) -> Result:
        """Run SQL in which the cut's queries are relations, each at its epoch of the cut.

        A relation cannot say another epoch (``VERSION AS OF``): ``store.sql`` is for that.

        Args:
            sql: one SELECT statement.
            **options: as :meth:`Store.sql` takes them, but for ``at``.

        Raises:
            InvalidSQLError: where it does not parse, does more than read, fails, or names another epoch.
            UnknownNameError: where a relation is not of one of the cut's queries.

        Example:
            >>> cut.sql("SELECT * FROM delays JOIN weather USING (origin)").to_pandas()  # doctest: +SKIP
        """
        if "at" in options:
            raise InvalidArgumentError("A cut's epochs are settled: leave out at, or use store.sql.")
        return self._store.sql(sql, **options)

    def to_pandas(self) -> pd.DataFrame:
        """One row per query: ``query``, ``epoch``, ``committed_at``, ``watermark``, ``rows`` (of all its tables)."""
        told = self._snapshots.items()
        return pd.DataFrame(
            {
                "query": [query for query, _ in told],
                "epoch": [one.epoch for _, one in told],
                "committed_at": pd.Series([one.committed_at for _, one in told], dtype="datetime64[us, UTC]"),
                "watermark": pd.Series([one.watermark for _, one in told], dtype="datetime64[us, UTC]"),
                "rows": [sum(one.rows().values()) for _, one in told],
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
        return f"<Cut by {self.by}{'' if self.exact else ', not exact'}: {_listed(self.epochs)}>"

    def _repr_html_(self) -> str:
        return f"{self.to_pandas().to_html(index=False)}<p>{html.escape(self.note)}</p>"


class _AtCut(Store):
    """The same store, in which there are the queries of a cut alone, each at its epoch."""

    def __init__(self, store: Store, snapshots: Mapping[str, Snapshot]) -> None:
        vars(self).update(vars(store))  # the same index, so that nothing is read twice
        self._at = snapshots

    def queries(self) -> list[str]:
        return sorted(self._at)

    def _travel(self, query: str, to: int | str | datetime | None) -> Snapshot:
        if to is not None:
            raise InvalidSQLError(
                f"SQL over a cut reads {query} at epoch {self._at[query].epoch} and at no other.\n"
                "Leave out VERSION AS OF and TIMESTAMP AS OF, or use store.sql."
            )
        return self._at[query]


def cut(
    store: Store | str | Path,
    queries: Iterable[str],
    *,
    at: int | str | Mapping[str, int] | datetime | None = None,
    by: By | None = None,
) -> Cut:
    """Snapshots of several queries that reflect the same prefix of the sources they share.

    Args:
        store: an open store, or its path.
        queries: their names.
        at: which cut: ``"live"`` (or None), the newest that exists; an epoch of the first query (also ``"live - 10"``),
            or of the queries in a dict, such as ``{"weather": 7}``; or an aware datetime: the newest cut that was
            committed by then (with ``by="event_time"``: whose watermarks had not passed it).
        by: what the epochs are to have in common:

            * ``"offsets"``: how far each has read every source that it shares with another. Sources that a query has
              for itself do not matter. Of epochs that reflect the same, the newest is taken.
            * ``"event_time"``: each query's newest epoch whose watermark has not passed the same moment.
            * ``"commit_time"``: the epochs that were the newest committed ones at the same moment.

            By default the first of these that is possible for all queries.

    Raises:
        UnknownCutError: where there is no such cut; the message names the nearest that exist.
        UnknownQueryError, UnknownEpochError: where a query or an epoch that is named does not exist.
        InvalidArgumentError, NaiveTimestampError: where an argument cannot be meant.

    Example:
        >>> with ss.cut("store", ["delays", "weather"]) as cut:  # doctest: +SKIP
        ...     cut.by, cut.exact, cut.epochs
        ('offsets', True, {'delays': 12, 'weather': 7})
    """
    if isinstance(queries, str):
        raise InvalidArgumentError(f"Give a list of queries, such as [{queries!r}, …], not {queries!r}.")
    names = list(queries)
    if not names or len({*names}) < len(names):
        raise InvalidArgumentError(f"A cut is of one or more queries, each named once, not {names!r}.")
    opened = store if isinstance(store, Store) else open_store(store)
    histories = {name: opened[name] for name in names}
    choice = chosen(histories, at, by)
    return Cut(opened, choice.snapshots, choice.by, exact=choice.exact, note=choice.note)


def _listed(epochs: Mapping[str, int]) -> str:
    return ", ".join(f"{query} {epoch}" for query, epoch in epochs.items())
