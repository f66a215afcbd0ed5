"""State tables after edits, checked before anything is written.

Spark's executors evaluate the edits, and keep the rows until they are written and read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from streamstate.errors import InvalidArgumentError, UnknownTableError, UnsupportedStateError, first_line
from streamstate.replay.forks.edit_evaluation import EDITS, EXISTED, KEY, LIVE, OLD, ROW, apply_edits
from streamstate.replay.forks.edits import EditInput, ParsedEdit, parse_edits
from streamstate.replay.state_writing.state_rewriter import StateRewriter
from streamstate.snapshots.checkpoint.state_tables import JOIN, LIMIT, POSITION, Shape, StateSource
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.state_reader import StateReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class EditedTable:
    """A state table after edits."""

    source: StateSource
    state: DataFrame = field(repr=False)
    """Its rows as Spark's state reader returns them; those of a list have their order."""
    rows: DataFrame = field(repr=False)
    """Its rows with the columns of the state table."""
    changed: int
    """How many keys were added, deleted, or given another row."""
    kept: DataFrame = field(repr=False)
    """What the executors keep until :meth:`release`."""

    @property
    def operator(self) -> int:
        """Spark's id of its operator."""
        return int(self.source.options["operatorId"])

    def release(self) -> None:
        """Let the executors drop its rows."""
        self.kept.unpersist()


def edited_tables(rewriter: StateRewriter, edits: EditInput) -> list[EditedTable]:
    """Evaluate edits over a state.

    Raises:
        UnknownTableError, UnknownColumnError: an edit names a table or a column that does not exist.
        InvalidArgumentError: an edit matches no row, has a value that does not fit, or adds a row that exists.
        UnsupportedStateError: the state cannot be edited.
    """
    reader = StateReader(rewriter.spark, rewriter.original)
    # A value that does not fit its column is an error here, whatever the query's own setting is.
    reader.session(rewriter.epoch).conf.set("spark.sql.ansi.enabled", "true")
    sources = reader.sources(rewriter.epoch)
    by_table: dict[str, list[ParsedEdit]] = {}
    for edit in parse_edits(edits):
        by_table.setdefault(_table(edit.table, sources), []).append(edit)
    edited = [source for source in sources if source.table in by_table]
    for source in edited:
        _check_editable(source)
    tables: list[EditedTable] = []
    try:
        for source in edited:
            state = reader.frame(source, rewriter.epoch)
            tables += [_edited(source, state, by_table[source.table], rewriter.epoch)]
    except BaseException:
        for table in tables:
            table.release()
        raise
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
    if source.operator == LIMIT:
        why = "Spark cannot rewrite the state of a limit"
    elif source.operator == JOIN and source.shape is Shape.LIST:
        why = "a join in state format 4 also orders its rows by time in other stores"
    if why:
        raise UnsupportedStateError(f"{source.table} cannot be edited: {why}.")


def _edited(source: StateSource, state: DataFrame, edits: Sequence[ParsedEdit], epoch: int) -> EditedTable:
    try:
        table = apply_edits(source, state, edits)
        kept = table.texted().persist()  # evaluated once; executors spill what does not fit to disk
        try:
            changed = _checked(source, kept, edits, epoch, adds=table.added)
        except BaseException:
            kept.unpersist()
            raise
    except errors_of_spark() as error:
        raise InvalidArgumentError(f"An edit of {source.table} failed: {first_line(error)}") from error
    edited = table.numbered(kept.where(LIVE))
    return EditedTable(source, edited.state, edited.flat, changed, kept)


def _checked(source: StateSource, rows: DataFrame, edits: Sequence[ParsedEdit], epoch: int, *, adds: bool) -> int:
    """Return the number of keys that changed.

    Raises:
        InvalidArgumentError: an edit matches no row, or adds a row that exists.
    """
    # Without added rows, no key can be there twice.
    considered = rows if adds else rows.where(F.col(EDITS) > 0)
    by_key = considered.groupBy(KEY).agg(
        F.count_if(F.expr(LIVE)).alias("live"),
        F.bit_or(EDITS).alias("edits"),
        F.max(F.when(F.col(EXISTED), F.col(OLD))).alias("old"),
        F.max(F.when(F.expr(LIVE), F.col(ROW))).alias("new"),
    )
    matched = [F.count_if(F.col("edits").bitwiseAND(F.lit(1 << at)) > 0) for at in range(len(edits))]
    twice = F.min(F.when(F.col("live") > 1, F.col("new")))
    changed = F.count_if((F.col("edits") > 0) & ~F.col("old").eqNullSafe(F.col("new")))
    found = by_key.agg(changed, twice, *matched).first()
    assert found is not None
    for edit, count in zip(edits, found[2:], strict=True):
        if not count:
            raise InvalidArgumentError(
                f"No row of {source.table} at epoch {epoch} matches: {edit}\n"
                "Look at the rows with %state, or with the snapshot's table(); text and keys are case-sensitive."
            )
    if found[1] is not None:
        number = f" The position of an element is its {POSITION}." if source.shape is Shape.LIST else ""
        raise InvalidArgumentError(
            f"{source.table} already has a row with this key, or an edit adds it twice: {found[1]}\n"
            f"UPDATE it, or DELETE it first.{number}"
        )
    return int(found[0])
