"""Why a key changed in an epoch: the input rows that fell on it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.query_plans.spark_plan import STATEFUL
from streamstate.snapshots.spark.catalyst import kind_of, walk
from streamstate.snapshots.spark.incremental import EpochClock, incremental
from streamstate.state_inspect.inputs.epoch_offsets import epoch_ranges
from streamstate.state_inspect.inputs.epoch_plan import (
    SOURCE,
    OperatorInput,
    column_of,
    operator_inputs,
    over_input,
    stateful_nodes,
)
from streamstate.state_inspect.inputs.inputs import InputRows, checkpoint_of, required_plan, rows_of, sources_of
from streamstate.state_inspect.inputs.read_files import check_unchanged
from streamstate.state_inspect.inputs.source_batches import SourceReader
from streamstate.state_inspect.recorded_query import RecordedQuery
from streamstate.state_inspect.results.results import shown_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INDEX = "index"
"""The last key column of a join's state, which numbers the rows of a key."""
SHOWN = 200
"""How many rows are shown; all are counted."""


@dataclass(frozen=True)
class SideInput:
    """What came into one side of a stateful operator in an epoch."""

    came: OperatorInput
    rows: InputRows
    """All rows, late ones included, with the sources' whole rows in ``_source0``, …"""


class EpochInput:
    """What came into a query's stateful operators in an epoch."""

    def __init__(self, query: RecordedQuery, epoch: int) -> None:
        self._query = query
        self._epoch = epoch
        self._planned = required_plan(query, epoch)
        spark = self._planned.spark
        checkpoint = checkpoint_of(query, spark)
        self.clock = _clock(query, checkpoint, epoch)
        before = _clock(query, checkpoint, epoch - 1) if epoch else None
        mode = self._planned.plan.mode
        made = incremental(
            spark,
            self._planned.analyzed,
            mode,
            epoch=epoch,
            before=before,
            now=self.clock,
            state=f"{checkpoint.path}/state",
        )
        physical = {
            int(node.stateInfo().get().operatorId()): node
            for node in walk(made.executedPlan())
            if kind_of(node) in STATEFUL
        }
        self._physical = [physical[number] for number in sorted(physical)]
        self._nodes = stateful_nodes(self._planned.analyzed)
        self._reader = SourceReader(spark, checkpoint.path, checkpoint.files)
        self._close = weakref.finalize(self, self._reader.close)
        ranges = epoch_ranges(query, checkpoint, epoch)
        distinct = {source.name: source.leaf for source in sources_of(self._planned.analyzed)}
        self._batches = [(leaf, self._reader.batch(leaf, ranges[name])) for name, leaf in distinct.items()]
        check_unchanged(query.name, epoch, self._reader.changed)

    def of(self, operator: int) -> list[SideInput]:
        """What came into an operator: one side, or both of a join."""
        jvm: Any = self._planned.spark._jvm
        node, physical = self._nodes[operator], self._physical[operator]
        found = []
        for came in operator_inputs(jvm, node, physical, self._planned.plan.mode):
            plan = over_input(jvm, came.plan, self._batches, self.clock)
            found.append(SideInput(came, rows_of(self._planned.spark, plan)))
        return found

    def matching(self, side: SideInput, key: Sequence[Any], session: Mapping[str, Any] | None) -> DataFrame:
        """The rows that fell on a key and were not late."""
        jvm: Any = self._planned.spark._jvm
        rows: DataFrame = side.rows
        if side.came.late is not None:
            rows = rows.where(~side.came.late | side.came.late.isNull())
        for expression, value in zip(side.came.keys, key, strict=True):
            # Without its metadata: a later groupBy on a session window would merge sessions.
            rows = rows.select("*", column_of(jvm, expression).alias("_key", metadata={}))
            rows = rows.where(_equal(F.col("_key"), value, rows.schema["_key"].dataType)).drop("_key")
        if side.came.session is not None and session is not None:
            rows = rows.select("*", column_of(jvm, side.came.session).alias("_key", metadata={}))
            own = F.col("_key")
            rows = rows.where((own["start"] >= F.lit(session["start"])) & (own["end"] <= F.lit(session["end"])))
            rows = rows.drop("_key")
        return rows


def _equal(column: Any, value: Any, kind: Any) -> Any:
    """Whether a column has a value: null is equal to null, and structs are compared by their fields."""
    fields = getattr(kind, "fields", None)
    if fields and isinstance(value, Mapping):
        same = F.lit(True)
        for each in fields:
            same = same & _equal(column[each.name], value.get(each.name), each.dataType)
        return same
    return column.eqNullSafe(F.lit(value).cast(kind))


def _clock(query: RecordedQuery, checkpoint: Checkpoint, epoch: int) -> EpochClock:
    """An epoch's times: the checkpoint's or, where Spark has purged them, the store's."""
    planned = checkpoint.planned(epoch)
    if planned is not None:
        return EpochClock(_milliseconds(planned.watermark), _milliseconds(planned.began_at), planned.conf)
    entry = query.known_entries.of(epoch)
    return EpochClock(_milliseconds(None if entry is None else entry.watermark))


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)


@dataclass(frozen=True)
class Why:
    """Why a key changed in an epoch.

    Attributes:
        epoch: the epoch.
        table: the state table.
        key: the key, by the names that it was asked with.
        before: the key's row at the epoch before; None if it had none.
        after: the key's row at the epoch; None if it has none.
        cause: the cause of the change, as in :meth:`History.key_history`; None if the key did not change.
        sides: the input rows that fell on the key, by side: ``left`` and ``right`` of a join, otherwise one with the
            name ``rows``. They are DataFrames of Spark: the rows that came into the operator, and the sources' whole
            rows in ``_source0``, ….
    """

    epoch: int
    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    cause: str | None
    sides: Mapping[str, DataFrame] = field(repr=False)
    _keep: object = field(repr=False, default=None)

    @property
    def rows(self) -> pd.DataFrame:
        """The source's rows that fell on the key, at most 200 of each side, with the side in ``side`` for a join."""
        frames = []
        for side, rows in self.sides.items():
            shown = _source_rows(rows).limit(SHOWN).toPandas()
            if len(self.sides) > 1:
                shown.insert(0, "side", side)
            frames.append(shown)
        return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]

    def count(self) -> int:
        """How many rows fell on the key."""
        return sum(rows.count() for rows in self.sides.values())


def _source_rows(rows: DataFrame) -> DataFrame:
    """The columns of the source if there is one; otherwise the rows as they came into the operator."""
    sources = [name for name in rows.columns if name.startswith(SOURCE)]
    if len(sources) == 1:
        return rows.select(f"{sources[0]}.*")
    return rows.drop(*sources) if not sources else rows.select(*sources)


def why(history: Any, epoch: int, table: str | None, given: Mapping[str, Any]) -> Why:
    """The input rows behind a key's change, as :meth:`streamstate.History.why`."""
    from streamstate.state_inspect.keys import check_key, key_of
    from streamstate.state_inspect.snapshot import choose_table

    query = history.recorded
    shown = history.results()
    name = table or ("result" if "result" in shown else choose_table(None, query.tables(), query.name))
    columns = shown_columns(query, name)
    joined = columns.state.endswith(("_left", "_right"))
    named = [column for column in columns.key_columns if not (joined and column == INDEX)]
    key = key_of(given, named)
    check_key(key, named, name)
    earlier = [one for one in query.captured() if one < epoch]
    before = _row(history.at(earlier[-1]), name, key) if earlier and not joined else None
    after = None if joined else _row(history.at(epoch), name, key)
    number = operator_number(columns.state)
    state_key = [
        key[shown_name]
        for column in query.columns(columns.state).key_columns
        for shown_name, own in columns.state_keys.items()
        if own == column and shown_name in key
    ]
    came = EpochInput(query, epoch)
    session = (after or before or {}).get("session_window")
    sides = {}
    for side in came.of(number):
        wanted = state_key[: len(side.came.keys)]
        sides[side.came.side or "rows"] = came.matching(side, wanted, session)
    return Why(epoch, columns.state, key, before, after, None, sides, came)


def operator_number(table: str) -> int:
    """The number of the operator that a state table belongs to."""
    return int(table.removeprefix("op").partition("_")[0])


def _row(snapshot: Any, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
    if table == "result" or table.endswith(".result"):
        found = snapshot.result(None if table == "result" else table.removesuffix(".result"))
    else:
        found = snapshot.table(table)
    row: dict[str, Any] | None = found.lookup(key=dict(key))
    return row
