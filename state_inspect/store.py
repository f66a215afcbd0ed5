"""A store: the queries whose snapshots it holds, opened without Spark and without Java."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from streamstate.snapshots.errors import InvalidArgumentError, UnknownQueryError, choices
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.registry import registered, require_store
from streamstate.state_inspect import sql as statements
from streamstate.state_inspect.history import History
from streamstate.state_inspect.index import Index
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.timestamps import aware


class Store:
    """The snapshots of some queries; :func:`open_store` gives it. ``store["delays"]`` is one query's history."""

    def __init__(
        self, path: str | Path, storage_options: Mapping[str, str] | None = None, memory_limit: str | None = None
    ) -> None:
        self._layout = Layout.at(path, storage_options)
        self.path = self._layout.root
        """Where the store is."""
        require_store(self._layout)
        self._index = Index(self._layout, memory_limit)
        self._histories: dict[str, History] = {}

    def queries(self) -> list[str]:
        """Names of the queries, sorted."""
        return sorted(registered(self._layout))

    def __getitem__(self, name: str) -> History:
        """One query's history.

        Raises:
            UnknownQueryError: where the store has no query of that name.
        """
        if name not in self._histories:
            known = self.queries()
            if name not in known:
                raise UnknownQueryError.among("query", name, known, where=f"in {self.path}")
            self._histories[name] = History(self._layout, name, self._index)
        return self._histories[name]

    def __contains__(self, name: object) -> bool:
        return name in self.queries()

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries())

    def __len__(self) -> int:
        return len(self.queries())

    def sql(self, sql: str, at: int | datetime | None = None) -> statements.Result:
        """Run SQL over the state tables; it reads and does nothing else.

        A query's name is a relation where it has one state table; ``delays.op0`` names one of several. ``VERSION AS
        OF 12`` or ``TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'`` after a relation choose its epoch. DuckDB runs it.

        Args:
            sql: one SELECT statement.
            at: the epoch, or the moment, of relations that do not say; by default each query's newest.

        Raises:
            InvalidSQLError: where it does not parse, does more than read, or fails.
            UnknownNameError: where a relation or an epoch does not exist.
            NaiveTimestampError: where a timestamp has no time zone.

        Example:
            >>> store.sql("SELECT carrier, max FROM delays VERSION AS OF 12").to_pandas()  # doctest: +SKIP
        """
        if isinstance(at, datetime):
            at = aware(at)
        elif at is not None and (isinstance(at, bool) or not isinstance(at, int)):
            raise InvalidArgumentError(f"at={at!r} cannot be meant: give an epoch's number or an aware datetime.")
        return statements.run(sql, self._index, self._travel, self.queries(), at)

    def _travel(self, query: str, to: int | datetime | None) -> Snapshot:
        history = self[query]
        if to is None:
            return history.live()
        return history.at(timestamp=to) if isinstance(to, datetime) else history.at(to)

    def __repr__(self) -> str:
        return f"<Store {self.path}: {choices(self.queries())}>"


def open_store(
    path: str | Path, *, storage_options: Mapping[str, str] | None = None, memory_limit: str | None = None
) -> Store:
    """Open a store for reading; needs neither Spark nor Java.

    Args:
        path: the folder or URI given to :func:`streamstate.capture` or :func:`streamstate.follow`.
        storage_options: where the store is in an object store, how to reach it: deltalake's options, such as
            ``{"AWS_REGION": "eu-central-1"}``. What is left out comes from the environment.
        memory_limit: memory that the index of what was read may take, such as ``"4GB"``; a quarter of the machine's
            unless given. What does not fit goes to a temporary folder.

    Raises:
        InvalidArgumentError: where the limit is no amount of memory.
        NotAStoreError: where the path holds none.
        NewerStoreError: where a newer version of streamstate wrote it.
        StoreError: where it cannot be reached or read.

    Example:
        >>> store = ss.open_store("store")  # doctest: +SKIP
        >>> store["delays"].live().table().head()  # doctest: +SKIP
    """
    return Store(path, storage_options, memory_limit)
