"""A store: the queries whose snapshots it holds. Reading needs neither Spark nor Java."""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamstate.errors import InvalidArgumentError, UnknownQueryError, choices
from streamstate.snapshots.checkpoint.bindings import SHARED
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.snapshots.store.declared_variables import DeclaredVariables
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.registry import Lineage, require_store
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.epoch_names import Moment, moment
from streamstate.state_inspect.history import History
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.duckdb_engine import DuckDBEngine, read_in_duckdb
from streamstate.state_inspect.sql.result import Result
from streamstate.state_inspect.sql.statement import Parameters, parse_statement
from streamstate.state_inspect.sql.time_travel import Catalog, bind
from streamstate.state_inspect.sql.user_data import user_data
from streamstate.state_inspect.temporal_index.background_loading import Tail
from streamstate.state_inspect.temporal_index.index import Index

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from streamstate.sharing.contract_list import ContractList
    from streamstate.state_inspect.store_facts import KnownFacts


class Store:
    """The snapshots of some queries; :func:`open_store` returns it. ``store["delays"]`` is one query's history."""

    def __init__(
        self, path: str | Path, storage_options: Mapping[str, str] | None = None, memory_limit: str | None = None
    ) -> None:
        self._layout = Layout.at(path, storage_options)
        self.path = self._layout.root
        """Where the store is."""
        self._lineage = Lineage(self._layout, require_store(self._layout))
        self._memory_limit = memory_limit
        self._index = Index(self._layout, memory_limit)
        self._histories: dict[str, History] = {}
        self._known: KnownFacts | None = None
        self._variables = DeclaredVariables(self._layout)

    @property
    def layout(self) -> Layout:
        """Where its tables are, for parts of streamstate that read them directly."""
        return self._layout

    @property
    def lineage(self) -> Lineage:
        """Its queries, for parts of streamstate that join stores."""
        return self._lineage

    def opened(self, name: str) -> History | None:
        """Return a query's history if it has been used, for parts of streamstate that need no more than is read."""
        return self._histories.get(name)

    def queries(self) -> list[str]:
        """Names of the queries, sorted."""
        return [branch.name for branch in self._lineage.branches()]

    def overview(self) -> pd.DataFrame:
        """Return one row per query: first those that cannot be read, whose capture is behind, or that have advice.

        Each fork is below its parent. A query is read again only if it has new epochs. In a store of more than 50
        queries no state is read: rows that capture did not count are missing, and so is advice that needs them.

        Columns: ``query``; ``parent`` (of a fork); ``version`` of a pipeline's flow, and the history that it was
        ``replaced_by`` at a full refresh; ``state`` (``captured``, ``empty``, or why it cannot be read);
        ``captured`` and ``gaps`` (how many epochs); ``epoch`` (the newest captured one), its ``committed_at``,
        ``watermark``, ``watermark_lag`` (from the watermark to the commit), ``lag`` (from its commit until its
        capture); ``backlog`` (committed epochs that are not captured yet; missing if the checkpoint is not on this
        machine); ``rows`` (of all state tables; missing if they are not counted and counting takes long); ``changes``
        (rows that an epoch changes, the mean of the newest ten); ``bytes`` on disk; ``advice``, a list of sentences as
        :meth:`History.advise` returns them.

        Example:
            >>> store.overview().set_index("query").loc[["airports", "by_route"], ["epoch", "rows"]]
                      epoch  rows
            query
            airports     13     3
            by_route     13     8
        """
        from streamstate.state_inspect.overview import overview_frame
        from streamstate.state_inspect.store_facts import KnownFacts, StoreFacts

        self._known = self._known or KnownFacts()
        return overview_frame(StoreFacts(self, self._known).listed(advised=True))

    def contracts(self) -> ContractList:
        """Return the contracts by which the store grants state to others, those that have ended too.

        A notebook shows the list as a table: what is granted to whom, until when, how fresh, and at which price; what
        the recipient suggests instead; and how much it has read, up to which epoch, and when last.

        Example:
            >>> contract = store["delays"].publish("partner")
            >>> [(contract.name, contract.to, contract.state) for contract in store.contracts()]
            [('delays', 'partner', 'active')]
        """
        from streamstate.sharing.contract_list import ContractList
        from streamstate.sharing.contracts import Contracts

        return ContractList(Contracts(self._layout).all(), self._layout)

    def usage(self) -> pd.DataFrame:
        """Return what was granted to others: a row for each recipient, table, epoch and kind of file.

        Columns: ``recipient``, ``contract``, ``version`` (of the contract), ``table``, ``epoch``, ``kind`` (``rows`` or
        ``changes``), ``times``, ``rows``, ``at``, and ``cost`` by the contract's price.
        """
        from streamstate.sharing.metering import usage

        return usage(self._layout)

    def full_name(self, name: str) -> str:
        """Return the name of a query, for parts of streamstate that join stores."""
        return name

    def variables(self) -> list[str]:
        """Names of the shared variables, sorted. ``store["shared.limit"]`` has the versions of one as its epochs.

        Example:
            >>> limit = ss.shared("store", "limit", "double", init=60.0)
            >>> store.variables()
            ['limit']
            >>> store["shared.limit"].live().table().head()
        """
        return list(self._variables.all())

    def __getitem__(self, name: str) -> History:
        """One query's history, or that of a shared variable: ``shared.limit``.

        Raises:
            UnknownQueryError: the store has no query of that name.
        """
        if name not in self._histories:
            known = self.queries()
            if name.startswith(f"{SHARED}."):
                known = [*known, *map(f"{SHARED}.{{}}".format, self.variables())]
            if name not in known:
                raise UnknownQueryError.among("query", name, known, where=f"in {self.path}")
            related = _related(self, self._index, self._lineage)
            self._histories[name] = History(CapturedQuery(self._layout, name, self._index, self._lineage, related))
        return self._histories[name]

    def __contains__(self, name: object) -> bool:
        return name in self.queries()

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries())

    def __len__(self) -> int:
        return len(self.queries())

    @consistent_read()
    def sql(
        self,
        sql: str,
        *,
        at: Moment | str | None = None,
        params: Parameters = None,
        frames: Mapping[str, Any] | None = None,
        allow_files: bool = False,
        engine: Literal["duckdb", "spark"] = "duckdb",
        spark: SparkSession | None = None,
    ) -> Result:
        """Run SQL over the state tables. Only statements that read are allowed.

        A query with one state table is a relation by its name; ``delays.op0`` names one of several tables.
        ``shared.limit`` is a shared variable, whose versions are its epochs.
        ``delays.result`` has the columns that the query returns (see :meth:`Snapshot.result`);
        ``delays.history`` has all versions with the epochs from and to which each was valid, ``delays.changes`` the
        changelog, and with ``engine="spark"`` ``delays.inputs`` what an epoch read. ``VERSION AS OF 12``,
        ``VERSION AS OF 'live - 10'`` or ``TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'`` after a relation choose its
        epoch. The statement runs when the result is used; its epochs are fixed now.

        Args:
            sql: one SELECT statement, in DuckDB's SQL.
            at: the epoch or time of relations that do not name one: a number, ``"live - 10"``, or an aware datetime; by
                default each query's newest epoch.
            params: values for the statement's parameters: a list for ``?``, a dict for ``$name``.
            frames: tables of your own, by the names that the statement uses: pandas, Polars, Arrow or Spark frames,
                Arrow datasets, paths of CSV or Parquet files.
            allow_files: let the statement itself read local files: ``FROM 'x.csv'``, ``read_parquet('…')``.
            engine: ``duckdb``, which is embedded, or ``spark``, for states that are too large for one machine.
            spark: the session for ``engine="spark"``, classic or of Spark Connect; by default the running one.

        Raises:
            InvalidSQLError: it does not parse, does more than read, or is invalid.
            UnknownNameError: a relation, a column or an epoch does not exist.
            NaiveTimestampError: a timestamp has no time zone.
            InvalidArgumentError: another argument is invalid, or a parameter has no value.
            SessionError: Spark is to run it and no session is running.
            SparkConnectError: Spark is to run it, and the Spark Connect server does not answer.

        Example:
            >>> store.sql("SELECT carrier, max FROM delays VERSION AS OF ?", params=[12]).to_pandas()
            >>> names = pd.DataFrame({"carrier": ["AA", "HA"], "airline": ["American", "Hawaiian"]})
            >>> store.sql("SELECT airline, max FROM delays JOIN names USING (carrier)", frames={"names": names})
             airline  max
            American   60
            Hawaiian 1301
            2 rows
        """
        queries = self.queries()
        if SHARED in sql.casefold():
            queries = [*queries, *map(f"{SHARED}.{{}}".format, self.variables())]
        at_default = None if at is None else moment(at)
        catalog = Catalog(queries, self._travel, user_data(frames, queries), at_default, allow_files)
        if engine not in ("duckdb", "spark"):
            raise InvalidArgumentError(f"Invalid engine={engine!r}: expected 'duckdb' or 'spark'.")
        statement = parse_statement(sql, params)
        if engine == "duckdb":
            bound = bind(statement, catalog, read_in_duckdb)
            return Result(DuckDBEngine(self._index, bound), bound.epochs)
        from streamstate.snapshots.spark.session import session_in_use

        session = session_in_use(spark, connect=True)  # says so if Spark is missing, before the next import fails
        from streamstate.state_inspect.sql.spark_engine import SparkEngine
        from streamstate.state_inspect.sql.spark_relations import read_in_spark

        in_spark = bind(statement, catalog, read_in_spark)
        return Result(SparkEngine(session, in_spark), in_spark.epochs)

    def tail(self, interval: float = 0.5) -> Tail:
        """Load new epochs in the background as they arrive, for all tables that have been read.

        Without it, reading the newest epoch first loads what has arrived since the last read. It makes no difference
        whether this process or another one writes the epochs.

        Args:
            interval: seconds between checks of the store.

        Raises:
            InvalidArgumentError: ``interval`` is not a number of seconds above 0.

        Example:
            >>> with store.tail():
            ...     store["delays"].live().table().lookup(carrier="UA", origin="EWR")["count"]
            75
        """
        return Tail(self._advance, interval)

    def _advance(self) -> None:
        for history in list(self._histories.values()):
            history.recorded.advance()

    def _travel(self, query: str, to: int | datetime | None) -> Snapshot:
        history = self[query]
        if to is None:
            return history.live()
        return history.at(timestamp=to) if isinstance(to, datetime) else history.at(to)

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[object, ...]]:
        return _reopened, (*_place(self._layout), self._memory_limit)

    def __repr__(self) -> str:
        return f"<Store {self.path}: {choices(self.queries())}>"


def _related(store: Store, index: Index, lineage: Lineage) -> Callable[[str], History]:
    """Returns a function for the histories of a store's queries that does not keep the store alive."""
    layout, there = store.layout, weakref.ref(store)

    def history(name: str) -> History:
        known = there()
        if known is not None:
            return known[name]
        return History(CapturedQuery(layout, name, index, lineage, history))

    return history


@lru_cache(maxsize=8)
def _reopened(path: str, options: tuple[tuple[str, str], ...] | None, memory_limit: str | None = None) -> Store:
    """Return a store that came from another process. Its copies here share one index."""
    return Store(path, None if options is None else dict(options), memory_limit)


def _place(layout: Layout) -> tuple[object, ...]:
    return layout.root, None if layout.options is None else tuple(sorted(layout.options.items()))


def _reduced(history: History) -> tuple[Callable[..., History], tuple[object, ...]]:
    return _history_of, (*_place(history.recorded.layout), history.name)


def _history_of(path: str, options: tuple[tuple[str, str], ...] | None, name: str) -> History:
    return _reopened(path, options, None)[name]


copyreg.pickle(History, _reduced)


def open_store(
    path: str | Path, *, storage_options: Mapping[str, str] | None = None, memory_limit: str | None = None
) -> Store:
    """Open a store for reading. Needs neither Spark nor Java.

    Args:
        path: the folder or URI given to :meth:`streamstate.Checkpoint.capture` or
            :meth:`streamstate.Checkpoint.follow`.
        storage_options: deltalake's options for a store in an object store, such as ``{"AWS_REGION": "eu-central-1"}``.
            Options that are left out come from the environment.
        memory_limit: the memory that the index may take, such as ``"4GB"``; by default a quarter of the machine's.
            The rest goes to a temporary folder.

    Raises:
        InvalidArgumentError: the limit is not an amount of memory.
        NotAStoreError: the path is not a store.
        NewerStoreError: a newer version of streamstate wrote it.
        StoreError: it cannot be reached or read.

    Example:
        >>> store = ss.open_store("store")
        >>> store["delays"].live().table().head()
    """
    return Store(path, storage_options, memory_limit)
