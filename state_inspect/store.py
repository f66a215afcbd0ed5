"""A store: the queries whose snapshots it holds, opened without Spark and without Java."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import UnknownQueryError, choices
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.registry import registered, require_store
from streamstate.state_inspect import sql as statements
from streamstate.state_inspect.history import History
from streamstate.state_inspect.moments import Moment, moment
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.tail import Tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    @property
    def layout(self) -> Layout:
        """Where its tables are, for parts of streamstate that read them themselves."""
        return self._layout

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
            self._histories[name] = History(self._layout, name, self._index, _related(self, self._index))
        return self._histories[name]

    def __contains__(self, name: object) -> bool:
        return name in self.queries()

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries())

    def __len__(self) -> int:
        return len(self.queries())

    def sql(
        self,
        sql: str,
        at: Moment | str | None = None,
        *,
        params: statements.Parameters = None,
        frames: Mapping[str, Any] | None = None,
        allow_files: bool = False,
        engine: statements.EngineName = "duckdb",
        spark: SparkSession | None = None,
    ) -> statements.Result:
        """Run SQL over the state tables; it reads and does nothing else.

        A query's name is a relation where it has one state table; ``delays.op0`` names one of several.
        ``delays.history`` has all versions with the epochs from and to which each held, ``delays.changes`` the change
        log. ``VERSION AS OF 12``, ``VERSION AS OF 'live - 10'`` or ``TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'``
        after a relation choose its epoch. The result runs when it is looked at; its epochs are settled now.

        Args:
            sql: one SELECT statement, in DuckDB's SQL.
            at: the epoch, or the moment, of relations that do not say: a number, ``"live - 10"``, an aware datetime;
                by default each query's newest epoch.
            params: values for the statement's ``?``, a list, or for its ``$name``, a dict.
            frames: tables of your own, by the names that the statement calls them: pandas, Polars, Arrow or Spark
                frames, Arrow datasets, paths of CSV or Parquet files.
            allow_files: let the statement itself read local files: ``FROM 'x.csv'``, ``read_parquet('…')``.
            engine: ``duckdb``, which is embedded, or ``spark``, for states that are too large for one machine.
            spark: the session that ``spark`` uses; by default the one in use.

        Raises:
            InvalidSQLError: where it does not parse, does more than read, or cannot be made sense of.
            UnknownNameError: where a relation, a column or an epoch does not exist.
            NaiveTimestampError: where a timestamp has no time zone.
            InvalidArgumentError: where another argument cannot be meant, or parameters lack values.
            SessionError: where Spark is to run it and there is no session.

        Example:
            >>> store.sql("SELECT carrier, max FROM delays VERSION AS OF ?", params=[12]).to_pandas()  # doctest: +SKIP
            >>> store.sql("FROM delays JOIN names USING (carrier)", frames={"names": frame})  # doctest: +SKIP
        """
        queries = self.queries()
        names = statements.Names(
            queries,
            self._travel,
            statements.user_data(frames, queries),
            None if at is None else moment(at),
            allow_files,
        )
        return statements.run(sql, self._index, names, params, engine=engine, spark=spark)

    def tail(self, every: float = 0.5) -> Tail:
        """Load new epochs as they arrive, in the background, of whatever is read meanwhile or was read before.

        Without it a reader that asks for the newest epoch loads what has arrived since the last question. Whether the
        epochs are written by this process or by another does not matter.

        Args:
            every: seconds between two looks at the store.

        Raises:
            InvalidArgumentError: where ``every`` is no number of seconds.

        Example:
            >>> with store.tail():  # doctest: +SKIP
            ...     store["delays"].live().table().lookup(carrier="UA", origin="EWR")
        """
        return Tail(self._advance, every)

    def _advance(self) -> None:
        for history in list(self._histories.values()):
            history.advance()

    def _travel(self, query: str, to: int | datetime | None) -> Snapshot:
        history = self[query]
        if to is None:
            return history.live()
        return history.at(timestamp=to) if isinstance(to, datetime) else history.at(to)

    def __repr__(self) -> str:
        return f"<Store {self.path}: {choices(self.queries())}>"


def _related(store: Store, index: Index) -> Callable[[str], History]:
    """Gives the histories of a store's queries, without keeping the store for the sake of a fork's parent."""
    layout, there = store.layout, weakref.ref(store)

    def history(name: str) -> History:
        known = there()
        return History(layout, name, index, history) if known is None else known[name]

    return history


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
