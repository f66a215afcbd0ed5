"""Edited rows as the bytes that Spark's state stores hold, checked against the stores before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamstate.errors import InvalidArgumentError, UnknownTableError, UnsupportedStateError, first_line
from streamstate.replay.forks.edit_evaluation import apply_edits
from streamstate.replay.forks.edits import EditInput, ParsedEdit, parse_edits
from streamstate.replay.forks.state_rewriter import PARTITION_KEY, RewritableOperator, StateRewriter
from streamstate.replay.forks.state_values import key_and_value, struct_type
from streamstate.snapshots.operators import Shape, StateSource
from streamstate.snapshots.state_reader import StateReader

MAX_EDITED_ROWS = 20_000
"""How many rows of a table the edits of a fork may touch: they pass through the driver one by one."""

_SAMPLE = 20
_TTL = "ttlExpirationMs"
_JOIN, _LIMIT = "symmetricHashJoin", "globalLimit"
_SUPPORTED = (
    "Edits work on aggregations, windows, session windows, deduplication, applyInPandasWithState, and value and map"
    " variables without TTL."
)


@dataclass(frozen=True)
class EncodedRow:
    """One edited row, as a state store holds it."""

    key: bytes
    value: bytes | None
    """None: the row is deleted."""
    existed: bool
    """Whether the original has the row."""
    edits: int
    """The sum of 2 to the power of the number of each edit that touched it."""
    partition: int
    old: str | None
    new: str
    fallback: bool
    """Whether it was added in case its key does not exist yet."""


@dataclass(frozen=True)
class EditedTable:
    """What edits make of one state table: the rows that they touched."""

    source: StateSource
    operator: RewritableOperator
    rows: Sequence[EncodedRow] = field(repr=False)

    @property
    def removed(self) -> Counter[str]:
        """Rows, as text, that the original has and the fork does not."""
        return self._old - self._new

    @property
    def added(self) -> Counter[str]:
        """Rows, as text, that the fork has and the original does not."""
        return self._new - self._old

    @property
    def changed(self) -> int:
        """How many keys were added, deleted, or given another row."""
        old = {row.key: row.old for row in self.rows if row.existed}
        new = {row.key: row.new for row in self.rows if row.value is not None}
        return sum(old.get(key) != new.get(key) for key in {*old, *new})

    @property
    def _old(self) -> Counter[str]:
        return Counter(row.old for row in self.rows if row.existed and row.old is not None)

    @property
    def _new(self) -> Counter[str]:
        return Counter(row.new for row in self.rows if row.value is not None)

    def encoded(self) -> Iterator[tuple[str, bytearray, bytearray | None, int]]:
        """Column family, key, value (None: deleted) and partition of each row, one per key."""
        family = _column_family(self.source)
        # If a key is deleted and added again, the added row counts.
        last = {row.key: row for row in sorted(self.rows, key=lambda row: row.value is not None)}
        for row in last.values():
            yield family, bytearray(row.key), None if row.value is None else bytearray(row.value), row.partition


def encode_edits(rewriter: StateRewriter, edits: EditInput, partitions: int) -> list[EditedTable]:
    """Evaluate edits over a state, and encode the rows that they touch for a fork with that many partitions."""
    parsed = parse_edits(edits)
    reader = StateReader(rewriter.spark, rewriter.original)
    # A value that does not fit its column is an error here, whatever the query's own setting is.
    reader.session(rewriter.epoch).conf.set("spark.sql.ansi.enabled", "true")
    sources = reader.sources(rewriter.epoch)
    by_table: dict[str, list[ParsedEdit]] = {}
    for edit in parsed:
        by_table.setdefault(_table(edit.table, sources), []).append(edit)
    operators = {operator.number: operator for operator in rewriter.operators()}
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
    known = {source.table.casefold(): source.table for source in sources}
    if name.casefold() in known:
        return known[name.casefold()]
    if len(sources) == 1 and not name.startswith("op"):
        return sources[0].table
    raise UnknownTableError.among("state table", name, [source.table for source in sources])


def _check_editable(source: StateSource) -> None:
    why = ""
    if source.operator == _JOIN:
        why = "a join also counts and orders the rows of its sides in other stores, which would no longer agree"
    elif source.operator == _LIMIT:
        why = "Spark cannot rewrite the state of a limit"
    elif source.shape is Shape.LIST:
        why = "the elements of a list have no keys of their own"
    elif source.shape is Shape.TIMERS:
        why = "Spark keeps timers twice, by key and by time"
    if why:
        raise UnsupportedStateError(f"{source.table} cannot be edited: {why}.\n{_SUPPORTED}")


def _check_no_ttl(source: StateSource, state: DataFrame) -> None:
    if any(_TTL in getattr(part.dataType, "names", ()) for part in state.schema.fields):
        raise UnsupportedStateError(
            f"{source.table} cannot be edited: Spark keeps the expiry time of a variable with TTL twice.\n{_SUPPORTED}"
        )


def _column_family(source: StateSource) -> str:
    """Spark's name of the column family of a state table."""
    return source.options.get("stateVarName", "default")


@dataclass(frozen=True)
class _Encoder:
    """Turns a table's rows into the bytes of its store."""

    rewriter: StateRewriter
    source: StateSource
    operator: RewritableOperator
    partitions: int

    def encoded(self, state: DataFrame, edits: Sequence[ParsedEdit]) -> EditedTable:
        try:
            touched = apply_edits(self.source, state, edits)
            every = self.rewriter.rows(self.operator.number, self.operator.name, self.operator.stores[0])
            stored = every.where(F.col("column_family_name") == _column_family(self.source))
            frame = touched.withColumn("partition", self._partition(struct_type(touched.schema, "key"), stored))
            rows = _without_unused_fallbacks([*_rows(frame.limit(MAX_EDITED_ROWS + 1))])
        except PySparkException as error:
            raise InvalidArgumentError(f"An edit of {self.source.table} failed: {first_line(error)}") from error
        self._check(rows, edits, stored, state)
        return EditedTable(self.source, self.operator, rows)

    def _partition(self, key: StructType, stored: DataFrame) -> Column:
        """The partition of a row: Spark hashes the part of its key that the query groups by."""
        if self.operator.single_partition:
            return F.lit(0)
        hashed = _field_types(stored.schema[PARTITION_KEY].dataType)
        names = [f"key.`{part.name}`" for part in key.fields]
        if "user_map_key" in key.names or _field_types(key)[: len(hashed)] != hashed:
            if _field_types(key.fields[0].dataType) == hashed:
                return F.pmod(F.hash(names[0]), F.lit(self.partitions))
            raise self._not_rebuildable("which partition a row belongs to")
        return F.pmod(F.hash(*names[: len(hashed)]), F.lit(self.partitions))

    def _check(
        self, rows: Sequence[EncodedRow], edits: Sequence[ParsedEdit], stored: DataFrame, state: DataFrame
    ) -> None:
        if len(rows) > MAX_EDITED_ROWS:
            raise InvalidArgumentError(
                f"The edits touch more than {MAX_EDITED_ROWS:,} rows of {self.source.table}, and all of them pass"
                " through the driver.\nNarrow their WHERE, or change the query's code and replay it."
            )
        for number, edit in enumerate(edits):
            if not any(row.edits >> number & 1 for row in rows):
                raise InvalidArgumentError(
                    f"No row of {self.source.table} at epoch {self.rewriter.epoch} matches: {edit}\n"
                    "Look at the rows with %state, or with the snapshot's table(); text and keys are case-sensitive."
                )
        present = self._held(stored, [row.key for row in rows]).keys()
        # Some rows, encoded here, must be byte for byte what the store holds.
        sample = dict(_encoded_sample(state, _SAMPLE))
        if any(row.existed and row.key not in present for row in rows) or self._held(stored, sample) != sample:
            raise self._not_rebuildable("its rows")
        deleted = {row.key for row in rows if row.existed and row.value is None}
        counted = Counter(row.key for row in rows if row.value is not None)
        duplicates = [row for row in rows if not row.existed and (counted[row.key] > 1 or row.key in present - deleted)]
        if duplicates:
            raise InvalidArgumentError(
                f"{self.source.table} already has a row with this key, or an edit adds it twice: {duplicates[0].new}\n"
                "UPDATE it, or DELETE it first."
            )

    def _held(self, stored: DataFrame, keys: Collection[bytes]) -> dict[bytes, bytes]:
        """The values that the store has for those of the keys that it has."""
        requested = self.rewriter.session.createDataFrame([(bytearray(key),) for key in {*keys}], "key_bytes binary")
        found = stored.join(F.broadcast(requested), "key_bytes", "left_semi").select("key_bytes", "value_bytes")
        return {bytes(key): bytes(value) for key, value in found.collect()}

    def _not_rebuildable(self, what: str) -> UnsupportedStateError:
        return UnsupportedStateError(
            f"{self.source.table} cannot be edited: Spark keeps it in a form from which {what} cannot be rebuilt.\n"
            f"{_SUPPORTED}"
        )


def _without_unused_fallbacks(rows: Sequence[EncodedRow]) -> list[EncodedRow]:
    """The rows without fallbacks whose key turned out to exist."""
    live: set[bytes] = {row.key for row in rows if row.value is not None and not row.fallback}
    kept = [row for row in rows if not row.fallback]
    for row in rows:
        if row.fallback and row.value is not None and row.key not in live:
            live.add(row.key)
            kept.append(row)
    return kept


def _rows(frame: DataFrame) -> Iterator[EncodedRow]:
    ordered = frame.select("key", "value", "existed", "deleted", "edits", "partition", "old", "new", "fallback")
    keys, values = (len(struct_type(frame.schema, name).fields) for name in ("key", "value"))
    for row in _collected(ordered):
        value = None if row.getBoolean(3) else bytes(row.getStruct(1, values).getBytes())
        old = None if row.isNullAt(6) else str(row.getString(6))
        key = bytes(row.getStruct(0, keys).getBytes())
        yield EncodedRow(
            key, value, row.getBoolean(2), row.getLong(4), row.getInt(5), old, str(row.getString(7)), row.getBoolean(8)
        )


def _encoded_sample(state: DataFrame, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of some rows of a state as bytes."""
    key, value = key_and_value(state)
    frame = state.select(key.alias("key"), value.alias("value")).limit(count)
    sizes = [len(column.dataType.fields) for column in frame.schema.fields]  # type: ignore[attr-defined]
    for row in _collected(frame):
        yield tuple(bytes(row.getStruct(at, size).getBytes()) for at, size in enumerate(sizes))  # type: ignore[misc]


def _collected(frame: DataFrame) -> Any:
    """A frame's rows in Spark's internal form, whose bytes a state store holds."""
    return frame._jdf.queryExecution().executedPlan().executeCollect()


def _field_types(kind: Any) -> list[str]:
    return [part.dataType.simpleString() for part in getattr(kind, "fields", ())]
