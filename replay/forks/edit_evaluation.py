"""Evaluating edits: Spark reads a state table, and applies them to its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType
from sqlglot import exp

from streamstate.errors import InvalidArgumentError, UnknownColumnError, UnsupportedStateError
from streamstate.replay.forks.edits import Edit, ParsedEdit, SqlEdit
from streamstate.replay.state_writing.state_values import (
    StateField,
    fitted,
    literal,
    rebuilt,
    state_fields,
    to_state_type,
)
from streamstate.snapshots.checkpoint.state_tables import (
    JOIN,
    KEY_PARTS,
    NO_KEY,
    ORDER,
    POSITION,
    VALUE_PARTS,
    Columns,
    Shape,
    StateSource,
    flatten,
)
from streamstate.snapshots.spark.state_reader import with_list_positions
from streamstate.snapshots.store.canonical_rows import canonical_text, column_named
from streamstate.state_inspect.sql.spark_errors import spark_errors
from streamstate.state_inspect.sql.spark_policy import check_expression_for_spark

MAX_EDITS = 60
"""How many edits a table may have: each is a bit of a number, and a level of Spark's plan."""

# Columns beside the table's own; the leading blank avoids clashes with a user's names.
OLD, EXISTED, EDITS = " old", " existed", " edits"
"""The row as text before the edits; whether the original has it; the sum of 2 to the power of the number of each edit
that touched it."""
_INSTEAD = (
    "An edit uses the row's columns and Spark's own functions. Compute other values in Python:"
    " ss.Edit('op0', key={'k': 'a'}, set={'n': 0})."
)
_DELETED, _FALLBACK = " deleted", " fallback"
LIVE = f"NOT `{_DELETED}`"
"""Whether a row is part of the edited table, as SQL."""
ROW, KEY = " row as text", " key as text"
"""A row, and its key, as text."""


def apply_edits(source: StateSource, state: DataFrame, edits: Sequence[ParsedEdit]) -> EditedRows:
    """Apply edits, in their order, to a state table as Spark's state reader returns it."""
    if len(edits) > MAX_EDITS:
        raise InvalidArgumentError(
            f"{source.table} has {len(edits)} edits; at most {MAX_EDITS} are supported.\nCombine several into one"
            " statement: UPDATE with CASE and IN, INSERT with several rows of VALUES."
        )
    table = EditedRows.of(source, state)
    for number, edit in enumerate(edits):
        table = table.edited(edit, number)
    return table


@dataclass(frozen=True)
class EditedRows:
    """A state table's rows with the edits so far."""

    source: StateSource
    frame: DataFrame
    columns: Columns
    kinds: Mapping[str, DataType]
    parts: Mapping[str, DataType]
    """The columns of Spark's state reader; those of the frame have a blank before their name."""
    fields: tuple[StateField, ...]
    changed: frozenset[str] = frozenset()
    """Columns that an edit gave new values."""
    added: bool = False
    """Whether rows were added."""
    removed: bool = False
    """Whether rows were deleted."""

    @classmethod
    def of(cls, source: StateSource, state: DataFrame) -> EditedRows:
        """Return the rows as Spark's state reader returns them."""
        columns = flatten(state.schema, source.shape)
        parts = {part: state.schema[part].dataType for part in (*KEY_PARTS, *VALUE_PARTS) if part in state.columns}
        flags = {EXISTED: "true", _DELETED: "false", _FALLBACK: "false", EDITS: "cast(0 AS bigint)"}
        fixed = [*(F.col(part).alias(f" {part}") for part in parts)]
        fixed += [F.expr(text).alias(name) for name, text in flags.items()]
        flat = state.select(*fixed, *columns.select)
        if source.shape is Shape.LIST:
            flat = with_list_positions(flat.withColumn(ORDER, F.monotonically_increasing_id()), columns.spark_keys)
        kinds = {name: flat.schema[name].dataType for name in columns.names}
        flat = flat.withColumn(OLD, canonical_text(flat.schema, columns.names))
        return cls(source, flat, columns, kinds, parts, tuple(state_fields(state.schema, columns)))

    def edited(self, edit: ParsedEdit, number: int) -> EditedRows:
        """Return the table after one more edit."""
        if isinstance(edit, Edit):
            return self._by_key(edit, number)
        if edit.kind == "INSERT":
            return self._with_rows(edit, number)
        where = self._expression(edit, edit.where) if edit.where is not None else None
        if edit.kind == "DELETE":
            return self._without(where, number)
        return self._set({name: self._expression(edit, value) for name, value in edit.set}, where, number)

    def _by_key(self, edit: Edit, number: int) -> EditedRows:
        for name in edit.key:
            if name not in self.columns.keys:
                raise UnknownColumnError.among("key column", name, self.columns.keys, where=f"in {self.source.table}")
        same = [
            column_named(name).eqNullSafe(fitted(literal(value, self.kinds[name]), name, self.kinds[name], self.frame))
            for name, value in edit.key.items()
        ]
        where = reduce(lambda left, right: left & right, same)
        if edit.delete:
            return self._without(where, number)
        new = {name: literal(value, self.kinds[self._value(name)]) for name, value in (edit.set or {}).items()}
        if {*edit.key, *new} != {*self.columns.keys, *self.columns.values} or self.columns.keys == (NO_KEY,):
            return self._set(new, where, number)
        # A whole row: it is added if its key does not exist yet, which only the encoded keys can tell.
        values = {name: literal(value, self.kinds[name]) for name, value in edit.key.items()} | new
        return self._set(new, where, number).plus(self._rows_of([values], number, fallback=True))

    def _set(self, new: Mapping[str, Column], where: Column | None, number: int) -> EditedRows:
        matches = self._matches(where)
        values = {
            (known := self._value(name)): fitted(value, known, self.kinds[known], self.frame)
            for name, value in new.items()
        }
        columns = []
        for name in (*self.columns.keys, *self.columns.values):
            old = column_named(name)
            columns.append(F.when(matches, values[name]).otherwise(old).alias(name) if name in values else old)
        frame = self.frame.select(
            *(f" {part}" for part in self.parts),
            EXISTED,
            _DELETED,
            OLD,
            _FALLBACK,
            self._marked(matches, number),
            *columns,
        )
        return replace(self, frame=frame, changed=self.changed | {*values})

    def _without(self, where: Column | None, number: int) -> EditedRows:
        matches = self._matches(where)
        unchanged = [column_named(name) for name in self.frame.columns if name not in (_DELETED, EDITS)]
        deleted = (F.col(_DELETED) | matches).alias(_DELETED)
        frame = self.frame.select(*unchanged, deleted, self._marked(matches, number))
        return replace(self, frame=frame, removed=True)

    def _with_rows(self, edit: SqlEdit, number: int) -> EditedRows:
        names = [*self.columns.keys, *self.columns.values]
        given = [self._known(name, names) for name in edit.columns] or names
        if self.columns.keys == (NO_KEY,):
            raise InvalidArgumentError(
                f"{self.source.table} has a single row without a key: UPDATE it instead of adding a row."
            )
        if missing := [name for name in names if name not in given]:
            raise InvalidArgumentError(
                f"An INSERT into {self.source.table} needs a value for every column; missing: {', '.join(missing)}."
            )
        if any(len(row) != len(given) for row in edit.rows):
            raise InvalidArgumentError(f"Each row of VALUES needs {len(given)} values, for {', '.join(given)}.")
        rows = [dict(zip(given, (self._constant(value) for value in row), strict=True)) for row in edit.rows]
        return self.plus(self._rows_of(rows, number))

    def _rows_of(self, rows: Sequence[Mapping[str, Column]], number: int, *, fallback: bool = False) -> DataFrame:
        """Added rows, with the columns of the frame."""
        single = self.frame.sparkSession.range(1)
        names = [*self.columns.keys, *self.columns.values]
        structs = [
            F.struct(*(fitted(row[name], name, self.kinds[name], single).alias(name) for name in names)) for row in rows
        ]
        given = single.select(F.explode(F.array(*structs)).alias("row")).select("row.*")
        absent: dict[str, DataType] = {**{f" {part}": kind for part, kind in self.parts.items()}, OLD: StringType()}
        fixed = [F.lit(None).cast(kind).alias(name) for name, kind in absent.items()]
        flags = {
            EXISTED: "false",
            _DELETED: "false",
            _FALLBACK: "true" if fallback else "false",
            EDITS: f"cast({1 << number} AS bigint)",
        }
        return given.select("*", *fixed, *(F.expr(text).alias(name) for name, text in flags.items()))

    def plus(self, rows: DataFrame) -> EditedRows:
        """Return the table with more rows."""
        for field in self.fields:
            self._check_convertible(field)
        return replace(self, frame=self.frame.unionByName(rows), added=True)

    def _matches(self, where: Column | None) -> Column:
        present = ~F.col(_DELETED)
        return present if where is None else present & F.coalesce(where, F.expr("false"))

    def _marked(self, matches: Column, number: int) -> Column:
        return (F.col(EDITS) + F.when(matches, F.lit(1 << number)).otherwise(F.lit(0))).alias(EDITS)

    def _expression(self, edit: SqlEdit, node: Any) -> Column:
        """Return an expression of an edit over the table's columns."""
        names = [*self.columns.keys, *self.columns.values]
        node = node.copy()
        for column in [*node.find_all(exp.Column)]:
            # ``op0.k`` is the table's column k, ``window.start`` a field of the column window.
            name = next((part.name for part in column.parts if part.name not in (edit.alias, edit.table)), column.name)
            self._known(name, names)
            if column.table in (edit.alias, edit.table) and column.table not in names:
                column.set("table", None)
        return self._checked(node, names)

    def _constant(self, node: Any) -> Column:
        if (column := node.find(exp.Column)) is not None:
            raise InvalidArgumentError(
                f"VALUES cannot refer to columns such as {column.sql()}. Put text in single quotes: 'a'."
            )
        return self._checked(node, ())

    def _checked(self, node: Any, columns: Sequence[str]) -> Column:
        """Return an expression as a column, if it only calls what SQL for Spark may call."""
        text = node.sql(dialect="spark")
        with spark_errors():
            check_expression_for_spark(self.frame.sparkSession, text, columns, _INSTEAD)
            return F.expr(text)

    def _value(self, name: str) -> str:
        """Return the name of a value column, as the table spells it."""
        if any(name.casefold() == key.casefold() for key in self.columns.keys):
            raise InvalidArgumentError(
                f"{name} is a key column of {self.source.table}, and keys cannot be changed.\n"
                "Delete the row, and add a new one with the other key."
            )
        known = self._known(name, self.columns.values)
        self._check_convertible(next(field for field in self.fields if field.name == known))
        return known

    def _known(self, name: str, names: Sequence[str]) -> str:
        for known in names:
            if known.casefold() == name.casefold():
                return known
        raise UnknownColumnError.among("column", name, names, where=f"in {self.source.table}")

    def _check_convertible(self, field: StateField) -> None:
        if to_state_type(F.lit(None), field.kind) is None:
            raise UnsupportedStateError(
                f"{field.name} of {self.source.table} is {field.kind.simpleString()} and cannot be edited: the table"
                " stores it as another type, from which it cannot be restored.\nEdit other columns, or delete rows."
            )

    def texted(self) -> DataFrame:
        """Return all rows and those that were deleted, with their key and themselves as text."""
        row, key = (canonical_text(self.frame.schema, names) for names in (self.columns.names, self.columns.keys))
        rows = self.frame.withColumns({ROW: row, KEY: key})
        if not self.added:
            return rows
        # A row that was added in case its key does not exist yet.
        spare = rows.where(F.col(_FALLBACK) & F.expr(LIVE))
        others = rows.where(~F.col(_FALLBACK))
        taken = others.where(LIVE).join(F.broadcast(spare.select(KEY)), KEY, "left_semi").select(KEY)
        new = spare.join(F.broadcast(taken), KEY, "left_anti").dropDuplicates([KEY])
        return others.unionByName(new)

    def numbered(self, rows: DataFrame) -> EditedRows:
        """Return the table with these rows only, numbered without gaps where the state numbers the rows of a key."""
        number = self._number
        if number is None or not (self.added or self.removed):
            return replace(self, frame=rows)
        key = canonical_text(rows.schema, [name for name in self.columns.keys if name != number])
        at = F.row_number().over(Window.partitionBy(key).orderBy(column_named(number))) - F.lit(1)
        renumbered = rows.withColumn(number, at.cast(self.kinds[number]))
        return replace(self, frame=renumbered, changed=self.changed | {number})

    @property
    def _number(self) -> str | None:
        """The key column that numbers the rows of a key from 0: in a list, and in a side of a join."""
        if self.source.shape is Shape.LIST:
            return POSITION
        return self.columns.keys[-1] if self.source.operator == JOIN else None

    @property
    def state(self) -> DataFrame:
        """The rows as Spark's state reader returns them; those of a list in a column for their order."""
        order = [column_named(POSITION).alias(ORDER)] if self.source.shape is Shape.LIST else []
        return self.frame.select(*(self._part(part, kind).alias(part) for part, kind in self.parts.items()), *order)

    @property
    def flat(self) -> DataFrame:
        """The rows with the columns of the state table."""
        return self.frame.select(*map(column_named, self.columns.names))

    def _part(self, part: str, kind: DataType) -> Column:
        """Return a column of the state reader: the original one, except for changed columns and added rows."""
        fields = [field for field in self.fields if field.part == part]
        whole = column_named(f" {part}")
        if not self.added and not self.changed & {field.name for field in fields}:
            return whole
        return rebuilt(whole, kind, fields, self.changed, column_named(EXISTED))
