"""Edited rows as the bytes that Spark's state stores keep, checked against the stores before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownTableError, UnsupportedStateError
from streamstate.snapshots.forks.edited_table import EditedRow, EditedTable, family_of
from streamstate.snapshots.forks.editing import EditedRows, edited_rows
from streamstate.snapshots.forks.edits import Edit, Edits, Statement, statements
from streamstate.snapshots.forks.rewriting import KEY, Operator, Rewriter
from streamstate.snapshots.operators import Shape, StateSource
from streamstate.snapshots.state_reader import StateReader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["EDITED_ROWS", "edited_tables"]

EDITED_ROWS = 20_000
"""How many rows a fork's edits may touch in a table: they pass through the driver one by one."""

_SAMPLE = 20
_TTL = "ttlExpirationMs"
_JOIN, _LIMIT = "symmetricHashJoin", "globalLimit"
_WORKS = (
    "Edits work on aggregations, windows, session windows, deduplication, applyInPandasWithState, and value and map"
    " variables without TTL."
)


def edited_tables(rewriter: Rewriter, edits: Edits, partitions: int) -> list[EditedTable]:
    """Evaluate edits over a state, and encode the rows that they touch.

    Args:
        rewriter: of the state that is edited.
        edits: SQL, edits, or several of these.
        partitions: over how many partitions the fork's state is spread.

    Raises:
        InvalidArgumentError: an edit cannot be meant, matches no row, adds a row that is there, or touches too many.
        UnknownTableError: there is no such state table.
        UnknownColumnError: the table has no such column.
        UnsupportedStateError: Spark cannot take back such a state.
    """
    given = statements(edits)
    reader = StateReader(rewriter.spark, rewriter.original)
    # A value that does not fit its column is an error here, whatever the query was set to.
    reader.session(rewriter.epoch).conf.set("spark.sql.ansi.enabled", "true")
    sources = reader.sources(rewriter.epoch)
    by_table: dict[str, list[Edit | Statement]] = {}
    for one in given:
        by_table.setdefault(_table(one.table, sources), []).append(one)
    operators = {one.number: one for one in rewriter.operators()}
    tables = []
    for source in sources:
        if source.table in by_table:
            _check_editable(source)
            state = reader.frame(source, rewriter.epoch)
            _check_no_ttl(source, state)
            encoder = _Encoder(rewriter, source, operators[int(source.options["operatorId"])], partitions)
            tables.append(encoder.encoded(state, by_table[source.table]))
    return tables


def _table(name: str, sources: Sequence[StateSource]) -> str:
    known = {one.table.casefold(): one.table for one in sources}
    if name.casefold() in known:
        return known[name.casefold()]
    if len(sources) == 1 and not name.startswith("op"):
        return sources[0].table
    raise UnknownTableError.among("state table", name, [one.table for one in sources])


def _check_editable(source: StateSource) -> None:
    why = ""
    if source.operator == _JOIN:
        why = "a join counts and orders the rows of its sides in other stores, which would no longer agree"
    elif source.operator == _LIMIT:
        why = "Spark cannot write the state of a limit anew"
    elif source.shape is Shape.LIST:
        why = "the place of a list's elements has no key of its own"
    elif source.shape is Shape.TIMERS:
        why = "timers are kept twice, by key and by time"
    if why:
        raise UnsupportedStateError(f"{source.table} cannot be edited: {why}.\n{_WORKS}")


def _check_no_ttl(source: StateSource, state: DataFrame) -> None:
    parts = (one.dataType for one in state.schema.fields)
    if any(_TTL in getattr(part, "names", ()) for part in parts):
        raise UnsupportedStateError(
            f"{source.table} cannot be edited: Spark keeps the time of expiry of such a variable twice.\n{_WORKS}"
        )


@dataclass(frozen=True)
class _Encoder:
    """Turns a table's rows into the bytes of its store."""

    rewriter: Rewriter
    source: StateSource
    operator: Operator
    partitions: int

    def encoded(self, state: DataFrame, edits: Sequence[Edit | Statement]) -> EditedTable:
        with _as_ours(self.source.table):
            touched = edited_rows(self.source, state, edits)
            stored = self._stored()
            frame = touched.frame.withColumn("partition", self._partition(touched.key, stored))
            rows = _without_spares([*_rows(frame.limit(EDITED_ROWS + 1), touched)])
        self._check(rows, edits, stored, state)
        return EditedTable(self.source, self.operator, rows)

    def _stored(self) -> DataFrame:
        """All rows of the table's column family, as bytes."""
        from pyspark.sql import functions as F

        rows = self.rewriter.rows(self.operator, self.operator.stores[0])
        return rows.where(F.col("column_family_name") == family_of(self.source))

    def _partition(self, key: StructType, stored: DataFrame) -> Column:
        """The partition of a row: Spark hashes the part of its key that the query groups by."""
        from pyspark.sql import functions as F

        if self.operator.single:
            return F.lit(0)
        wanted = _kinds(stored.schema[KEY].dataType)
        names = [f"key.`{one.name}`" for one in key.fields]
        if "user_map_key" in key.names or _kinds(key)[: len(wanted)] != wanted:
            if _kinds(key.fields[0].dataType) == wanted:
                return F.pmod(F.hash(names[0]), F.lit(self.partitions))
            raise self._unknown("which partition a row belongs to")
        return F.pmod(F.hash(*names[: len(wanted)]), F.lit(self.partitions))

    def _check(
        self, rows: Sequence[EditedRow], edits: Sequence[Edit | Statement], stored: DataFrame, state: DataFrame
    ) -> None:
        if len(rows) > EDITED_ROWS:
            raise InvalidArgumentError(
                f"The edits touch more than {EDITED_ROWS:,} rows of {self.source.table}, which pass through one"
                " process.\nNarrow their WHERE, or change the query's code and replay it."
            )
        for number, edit in enumerate(edits):
            if not any(one.hit >> number & 1 for one in rows):
                raise InvalidArgumentError(
                    f"No row of {self.source.table} at epoch {self.rewriter.epoch} is meant by: {edit}\n"
                    "Look at the rows with %state, or with the snapshot's table(); text and keys are case-sensitive."
                )
        present = self._present(stored, [one.key for one in rows])
        if any(one.was and one.key not in present for one in rows) or not self._alike(state, stored):
            raise self._unknown("its rows")
        gone = {one.key for one in rows if one.was and one.value is None}
        counted = Counter(one.key for one in rows if one.value is not None)
        there = [one for one in rows if not one.was and (counted[one.key] > 1 or one.key in present - gone)]
        if there:
            raise InvalidArgumentError(
                f"{self.source.table} has a row with this key already, or an edit adds it twice: {there[0].new}\n"
                "UPDATE it, or DELETE it first."
            )

    def _present(self, stored: DataFrame, keys: Sequence[bytes]) -> set[bytes]:
        from pyspark.sql import functions as F

        session = self.rewriter.session
        asked = session.createDataFrame([(bytearray(one),) for one in {*keys}], "key_bytes binary")
        found = stored.join(F.broadcast(asked), "key_bytes", "left_semi").select("key_bytes").collect()
        return {bytes(row[0]) for row in found}

    def _alike(self, state: DataFrame, stored: DataFrame) -> bool:
        """Whether some rows, encoded here, are what the store holds, byte by byte."""
        from pyspark.sql import functions as F

        ours = dict(_pairs(state, _SAMPLE))
        asked = self.rewriter.session.createDataFrame([(bytearray(one),) for one in ours], "key_bytes binary")
        found = stored.join(F.broadcast(asked), "key_bytes", "left_semi").select("key_bytes", "value_bytes").collect()
        return {bytes(key): bytes(value) for key, value in found} == ours

    def _unknown(self, what: str) -> UnsupportedStateError:
        return UnsupportedStateError(
            f"{self.source.table} cannot be edited: Spark keeps it in a form of which {what} cannot be rebuilt.\n"
            f"{_WORKS}"
        )


def _without_spares(rows: Sequence[EditedRow]) -> list[EditedRow]:
    """The rows without those for which there turned out to be one with the same key."""
    live: set[bytes] = {one.key for one in rows if one.value is not None and not one.spare}
    kept = [one for one in rows if not one.spare]
    for one in rows:
        if one.spare and one.value is not None and one.key not in live:
            live.add(one.key)
            kept.append(one)
    return kept


def _rows(frame: DataFrame, touched: EditedRows) -> Iterator[EditedRow]:
    wanted = frame.select("key", "value", "was", "gone", "hit", "partition", "old", "new", "spare")
    keys, values = len(touched.key.fields), len(touched.value.fields)
    for row in _collected(wanted):
        value = None if row.getBoolean(3) else bytes(row.getStruct(1, values).getBytes())
        old = None if row.isNullAt(6) else str(row.getString(6))
        key = bytes(row.getStruct(0, keys).getBytes())
        yield EditedRow(
            key, value, row.getBoolean(2), row.getLong(4), row.getInt(5), old, str(row.getString(7)), row.getBoolean(8)
        )


def _pairs(state: DataFrame, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of some rows of a state as bytes."""
    from pyspark.sql import functions as F

    from streamstate.snapshots.operators import KEY_PARTS, VALUE_PARTS

    parts = [part for part in KEY_PARTS if part in state.columns]
    value = next(part for part in VALUE_PARTS if part in state.columns)
    key = F.col(parts[0]) if len(parts) == 1 else F.struct(*parts)
    frame = state.select(key.alias("key"), F.col(value).alias("value")).limit(count)
    sizes = [len(one.dataType.fields) for one in frame.schema.fields]  # type: ignore[attr-defined]
    for row in _collected(frame):
        yield tuple(bytes(row.getStruct(at, size).getBytes()) for at, size in enumerate(sizes))  # type: ignore[misc]


def _collected(frame: DataFrame) -> Any:
    """A frame's rows in Spark's own form, of which a state store keeps the bytes."""
    return frame._jdf.queryExecution().executedPlan().executeCollect()


def _kinds(kind: Any) -> list[str]:
    return [one.dataType.simpleString() for one in getattr(kind, "fields", ())]


@contextmanager
def _as_ours(table: str) -> Iterator[None]:
    """Spark's errors about an edit's expressions as errors of the edit."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        told = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(f"An edit of {table} does not work: {told}") from error
