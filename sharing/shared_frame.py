"""State that others share as a frame, whose epoch is bound to each epoch of the query that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.errors import (
    EpochDroppedError,
    InvalidArgumentError,
    ShareError,
    UnknownEpochError,
    VariableConflictError,
)
from streamstate.sharing.following import Following, Freshness
from streamstate.sharing.replica import COPY
from streamstate.sharing.shared_store import SharedStore
from streamstate.snapshots.spark.session import session_in_use
from streamstate.state_inspect.history import History
from streamstate.state_inspect.store import Store
from streamstate.variables.declaring import shared
from streamstate.variables.shared_variable import SharedVariable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_BATCH = 10_000


class SharedFrame(SharedVariable):
    """A state to join streams with, at one epoch in each epoch of the query; :func:`shared_frame` returns it.

    It is a shared variable with the epoch to read as its value. Each epoch of the query is bound to the value at its
    beginning. ``set(12)`` chooses an epoch by hand, ``history()`` lists the chosen ones, and a step with
    ``shared={"delays": 12}`` reads another one.
    """

    def __init__(self, variable: SharedVariable, theirs: Store, query: str, table: str) -> None:
        super().__init__(variable.declaration, variable.transport, variable.storage_options)
        self._theirs, self._query, self._table = theirs, query, table

    def frame(self) -> DataFrame:
        """Return the rows as a DataFrame, to join streams with, in a query that is started with ``shared=(…,)``.

        Its columns are those of the newest epoch. One task reads the rows in each epoch of the query, and Spark
        broadcasts them: give the frame a hint, such as ``.hint("merge")``, if there are too many for that.

        Raises:
            SessionError: no Spark session is running.
            SparkConnectError: this process uses Spark Connect.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        spark, variable, history, table = session_in_use(None), self, self._history, self._table
        schema = pa.schema([field for field in history.live().table(table).schema if field.name != COPY])

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            yield from rows_bound(variable, history, table, schema).to_batches(_ROWS_PER_BATCH)

        return spark.range(0, 1, 1, 1).mapInArrow(rows, from_arrow_schema(schema, prefer_timestamp_ntz=True))

    def refresh(self) -> int:
        """Copy the epochs that are new, and choose the newest for the next epoch that begins.

        Returns:
            The chosen epoch.

        Raises:
            ShareError: the server cannot be reached, or refuses; the newest epoch of the copy is chosen.
            TransportError: the variable's transport cannot be reached.
        """
        try:
            if isinstance(self._theirs, SharedStore):
                self._theirs.refresh()
        finally:
            epoch = self.choose_newest()
        return epoch

    def follow(self, every: timedelta | float = 1.0, *, late: Callable[[Freshness], None] | None = None) -> Following:
        """Refresh in the background. A new epoch starts one of the query's, even without other input.

        Args:
            every: the seconds between two times.
            late: called when the newest epoch is older than the contract promises, once until it is fresh again.
        """
        # With a log of its own, because another thread reads it.
        return Following(SharedFrame(self, self._theirs, self._query, self._table), every, late)

    def freshness(self) -> list[Freshness]:
        """Return how old the copy is, without asking the server; nothing for a store of one's own."""
        known = self._theirs.freshness() if isinstance(self._theirs, SharedStore) else []
        return [fresh for fresh in known if fresh.name == self._query]

    def choose_newest(self) -> int:
        """Choose the newest epoch that is on this machine, unless a later one is chosen, and return what is chosen."""
        newest, chosen = self._history.live().epoch, self.get()
        if chosen is None or newest > chosen:
            with suppress(VariableConflictError):  # another process has just chosen, and will again
                self.set(newest)
        return int(self.get())

    @property
    def _history(self) -> History:
        return self._theirs[self._query]


def rows_bound(variable: SharedVariable, history: History, table: str, schema: pa.Schema) -> pa.Table:
    """Return the rows at the epoch that a variable has here: in a task, the one that the query's epoch is bound to.

    Raises:
        ShareError: the epoch is not on this machine.
    """
    epoch = variable.get()
    try:
        found = history.at(epoch).table(table).to_arrow()
    except (UnknownEpochError, EpochDroppedError) as error:
        raise ShareError(
            f"{variable.name} is bound to epoch {epoch} of {history.name}, which {history.recorded.layout.root} does"
            f" not have: {error}\nIf that copy is behind, refresh it. A step can read another epoch:"
            f" shared={{{variable.name!r}: …}}."
        ) from error
    columns = [_column(found, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(rows: pa.Table, field: pa.Field) -> Any:
    """Return a column; of one that came later, nulls."""
    return rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)


def shared_frame(
    store: str | Path,
    name: str,
    theirs: Store,
    *,
    query: str | None = None,
    table: str | None = None,
    transport: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SharedFrame:
    """Return what others share as a frame to join streams with, at one epoch in each epoch of the query.

    The epoch is a shared variable of one's own store. A query that is started with ``shared=(…,)`` is bound to its
    value, so that a retry, a restart, a step, a replay and an audit read the rows that the run has read.

    Args:
        store: the store of the query that reads it.
        name: the variable's name: letters, digits and ``_``.
        theirs: what :func:`open_share` returns, or another store that :func:`open_store` opened.
        query: the query whose state it is; by default the one called ``name``.
        table: the state table, or ``"result"``; may be left out if there is only one table.
        transport: as for :func:`shared`.
        storage_options: deltalake's options for ``store``.

    Returns:
        The variable, with ``.frame()``, ``.refresh()`` and ``.follow()``. If it is new, it has the newest epoch.

    Raises:
        InvalidArgumentError: ``theirs`` is no open store, or ``table`` is left out and there are several.
        UnknownQueryError, UnknownTableError: there is no such query or table.
        UnknownEpochError: the query has no epoch yet.
        InvalidNameError, VariableConflictError: the name is invalid, or that of a variable of another kind.
        TransportError: the transport cannot be reached.
        StoreError: a store cannot be read or written.

    Example:
        >>> theirs = ss.open_store("elsewhere")
        >>> their_delays = ss.shared_frame("store", "their_delays", theirs, query="delays")
        >>> their_delays.get()
        61
        >>> frame = flights.join(their_delays.frame(), ["carrier", "origin"]).groupBy("carrier").count()
        >>> running = ss.start(frame, "compared", "store", shared=(their_delays,))
    """
    if not isinstance(theirs, Store):
        raise InvalidArgumentError(
            f"Invalid theirs={theirs!r}: expected an open store, as ss.open_share and ss.open_store return it."
        )
    history = theirs[name if query is None else query]
    chosen = history.live().table(table).name
    variable = shared(store, name, "bigint", transport=transport, storage_options=storage_options)
    found = SharedFrame(variable, theirs, history.name, chosen)
    if found.get() is None:
        found.choose_newest()
    return found
