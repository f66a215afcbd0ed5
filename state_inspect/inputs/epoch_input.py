"""Input of a query's stateful operators in an epoch, as DataFrames of Spark."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from streamstate.errors import EpochGoneError, NotReplayableError
from streamstate.snapshots.checkpoint.bindings import binding_in, binds, seen_by
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.catalyst import delay_of, each, kind_of, walk
from streamstate.snapshots.spark.epoch_planning import EpochClock, incremental
from streamstate.snapshots.spark.plan_building import column_of
from streamstate.snapshots.spark.private_classes import private_calls
from streamstate.snapshots.store.query_plans.plan_inputs import sources_of, stateful_nodes
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.frames import frame_records
from streamstate.state_inspect.inputs.epoch_offsets import end_offsets
from streamstate.state_inspect.inputs.inputs import (
    InputRows,
    batch_rows,
    captured_checkpoint,
    delivered,
    ranges_of,
    required_plan,
)
from streamstate.state_inspect.inputs.operator_inputs import (
    OperatorInput,
    operator_inputs,
    over_input,
)
from streamstate.state_inspect.inputs.rerun import made_inputs, physical_operators, rerun
from streamstate.state_inspect.inputs.sessions import Window
from streamstate.state_inspect.inputs.shown_rows import LATENESS, fetched_frame, source_rows
from streamstate.state_inspect.inputs.source_batches import SourceReader
from streamstate.state_inspect.suspects.plan_suspects import suspects_of
from streamstate.state_inspect.suspects.suspect import Suspect
from streamstate.state_inspect.unix_time import milliseconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class SideInput:
    """Input of one side of a stateful operator in an epoch."""

    came: OperatorInput
    rows: InputRows
    """All rows, late ones included, with the sources' whole rows in ``_source0``, …"""


class EpochInput:
    """Input of a query's stateful operators in an epoch."""

    def __init__(self, query: CapturedQuery, epoch: int) -> None:
        self._query = query
        self.epoch = epoch
        self._planned = required_plan(query, epoch)
        spark = self._planned.spark
        self._checkpoint = checkpoint = captured_checkpoint(query, spark)
        self.clock = _clock(query, checkpoint, epoch)
        self._before = before = _clock(query, checkpoint, epoch - 1) if epoch else None
        mode, state = self._planned.plan.mode, f"{checkpoint.path}/state"
        with private_calls(spark):
            made = incremental(
                spark, self._planned.analyzed, mode, epoch=epoch, before=before, now=self.clock, state=state
            )
            self._physical = physical_operators(made)
        self._nodes = stateful_nodes(self._planned.analyzed, mode)
        if len(self._nodes) != len(self._physical):
            raise NotReplayableError(
                f"Spark runs {query.name} with other stateful operators than its plan names, so the input of each is"
                " unknown.\nUse history.inputs, which returns all rows of a source."
            )
        self._reader = SourceReader(spark, checkpoint.path, checkpoint.files)
        self._close = weakref.finalize(self, self._reader.close)
        self._batches = self._delivered(epoch)
        self._notes = list(self._reader.notes)

    def bound(self) -> AbstractContextManager[None]:
        """Within the block, what Spark runs sees the versions of shared variables that the epoch saw."""
        binding = binding_in(end_offsets(self._query, self._checkpoint, self.epoch).values())
        return seen_by(self._planned.spark, self.epoch, binding)

    @property
    def notes(self) -> list[str]:
        """Sentences about what the sources delivered."""
        return self._notes

    @property
    def lowest(self) -> int:
        """The number of the operator that has no other one below it."""
        return len(self._nodes) - 1

    def _delivered(self, epoch: int, *, streaming: bool = False) -> list[tuple[Any, Any]]:
        """Return each leaf of the plan, and what it delivered in an epoch."""
        sources = sources_of(self._planned.analyzed)
        ranges = ranges_of(self._query, self._checkpoint, epoch, sources)
        distinct = {source.name: source.leaf for source in sources}
        batches = delivered(
            self._query, self._reader, epoch, distinct, ranges, sources=len(sources), streaming=streaming, located=True
        )
        bound = [leaf for leaf in each(self._planned.analyzed.collectLeaves()) if leaf.isStreaming() and binds(leaf)]
        return batches + [(leaf, self._reader.nothing(leaf, streaming=streaming)) for leaf in bound]

    def of(self, operator: int) -> list[SideInput]:
        """Return an operator's input: one side, or both of a join."""
        jvm: Any = self._planned.spark._jvm
        sides = operator_inputs(jvm, self._nodes[operator], self._physical[operator], self._planned.plan.mode)
        if any(stateful_nodes(came.plan, self._planned.plan.mode) for came in sides):
            sides = self._made_again(operator)
        found = []
        for came in sides:
            plan = over_input(jvm, came.plan, self._batches, self.clock)
            found.append(SideInput(came, batch_rows(self._planned.spark, plan)))
        return found

    def nondeterministic(self, operator: int) -> tuple[Suspect, ...]:
        """Return what may be nondeterministic below an operator and give it other rows when it runs again."""
        found = [suspect for below in each(self._nodes[operator].children()) for suspect in suspects_of(below)]
        return tuple(dict.fromkeys(found))

    def _made_again(self, operator: int) -> list[OperatorInput]:
        """Return the input of an operator with others below it, which run again."""
        batches = self._delivered(self.epoch, streaming=True)
        with rerun(self._planned, self._checkpoint, self.epoch, (self._before, self.clock), batches) as physical:
            return made_inputs(self._planned, self._nodes[operator], physical[operator])

    def key_columns(self, side: SideInput) -> list[Column]:
        """Return the key of a side's rows, a session's own window included."""
        session = [] if side.came.session is None else [side.came.session]
        jvm: Any = self._planned.spark._jvm
        # Without their metadata: a later distinct on session windows would merge sessions.
        return [
            column_of(jvm, expression).alias(f"_key{at}", metadata={})
            for at, expression in enumerate([*side.came.keys, *session])
        ]

    def keys_of(self, side: SideInput, rows: DataFrame) -> DataFrame:
        """Return the keys of some rows of a side."""
        columns = self.key_columns(side)
        return rows.select(*columns) if columns else rows.select(F.lit(1))

    def moved_by(self) -> dict[str, Any] | None:
        """Return the row of the epoch before that moved the watermark; None if it cannot be read again."""
        if self._before is None:
            return None
        jvm: Any = self._planned.spark._jvm
        try:
            batches = self._delivered(self.epoch - 1)
        except (EpochGoneError, NotReplayableError):
            return None
        for node in walk(self._planned.analyzed):
            if kind_of(node) != "EventTimeWatermark" or stateful_nodes(node, self._planned.plan.mode):
                continue
            time = column_of(jvm, node.eventTime())
            rows = batch_rows(self._planned.spark, over_input(jvm, node.child(), batches, self._before))
            found = rows.withColumn("_time", time).orderBy(F.desc("_time")).limit(1)
            micros = found.select(F.unix_micros(F.col("_time").cast("timestamp"))).head()
            if micros is None or micros[0] is None:
                continue
            if micros[0] // 1000 - delay_of(jvm, node) == self.clock.watermark:
                return frame_records(fetched_frame(source_rows(found.drop("_time"))))[0]
        return None

    def on_time(self, side: SideInput) -> DataFrame:
        """Return the rows of a side that were not late."""
        rows: DataFrame = side.rows
        return rows if side.came.late is None else rows.where(~side.came.late | side.came.late.isNull())

    def late(self, side: SideInput) -> DataFrame:
        """Return the rows of a side that the operator dropped, with ``_late_by``."""
        rows: DataFrame = side.rows
        if side.came.late is None or side.came.late_by is None:
            return rows.withColumn(LATENESS, F.expr("INTERVAL '0' SECOND")).limit(0)
        return rows.where(side.came.late).withColumn(LATENESS, side.came.late_by)

    def matching(self, side: SideInput, rows: DataFrame, key: Sequence[Any]) -> DataFrame:
        """Return those rows of a side that fell on a key, of any of its sessions."""
        jvm: Any = self._planned.spark._jvm
        for expression, value in zip(side.came.keys, key, strict=True):
            # Without its metadata: a later groupBy on a session window would merge sessions.
            rows = rows.select("*", column_of(jvm, expression).alias("_key", metadata={}))
            rows = rows.where(_equal(F.col("_key"), value, rows.schema["_key"].dataType)).drop("_key")
        return rows

    def windows_of(self, side: SideInput, rows: DataFrame) -> list[Window]:
        """Return the session windows of some rows of a side, before they are merged."""
        with self.bound():
            found = rows.select(*self._window(side)).distinct().collect()
        return [(start, end) for start, end in found]

    def within(self, side: SideInput, rows: DataFrame, session: Window | None) -> DataFrame:
        """Return those rows of a side whose session windows were merged into a session."""
        if session is None:
            return rows.limit(0)
        start, end = self._window(side)
        # Not by a condition on the window itself, from whose metadata Spark would merge sessions.
        return rows.where((start >= session[0]) & (end <= session[1]))

    def beside(self, side: SideInput, rows: DataFrame, session: Window) -> DataFrame:
        """Return those rows of a side whose session windows overlap with a session, or touch it."""
        start, end = self._window(side)
        return rows.where((start <= session[1]) & (end >= session[0]))

    def _window(self, side: SideInput) -> tuple[Column, Column]:
        window = column_of(self._planned.spark._jvm, side.came.session)
        return F.unix_micros(window["start"]), F.unix_micros(window["end"])


def _equal(column: Any, value: Any, kind: Any) -> Any:
    """Return a condition that a column has a value: null equals null, and structs are compared by field."""
    fields = getattr(kind, "fields", None)
    if fields and isinstance(value, Mapping):
        same = F.lit(True)
        for each in fields:
            same = same & _equal(column[each.name], value.get(each.name), each.dataType)
        return same
    return column.eqNullSafe(F.lit(value).cast(kind))


def _clock(query: CapturedQuery, checkpoint: CheckpointFiles, epoch: int) -> EpochClock:
    """Return an epoch's times: the checkpoint's or, where Spark has purged them, the store's."""
    planned = checkpoint.planned(epoch)
    if planned is not None:
        return EpochClock(_milliseconds(planned.watermark), _milliseconds(planned.began_at), planned.conf)
    entry = query.known_entries.of(epoch)
    return EpochClock(_milliseconds(None if entry is None else entry.watermark))


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else milliseconds(moment)
