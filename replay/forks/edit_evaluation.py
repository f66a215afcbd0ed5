"""Evaluating edits: Spark reads the state, applies them to its rows, and returns the rows that they touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType
from sqlglot import exp

from streamstate.errors import InvalidArgumentError, UnknownColumnError, UnsupportedStateError
from streamstate.replay.forks.edits import Edit, ParsedEdit, SqlEdit
from streamstate.replay.forks.state_values import (
    StateField,
    fitted,
    key_and_value,
    literal,
    rebuilt_struct,
    state_fields,
    struct_type,
    to_state_type,
)
from streamstate.snapshots.canonical_rows import canonical_text, column_named
from streamstate.snapshots.operators import KEY_PARTS, NO_KEY, VALUE_PARTS, Columns, StateSource, flatten

MAX_EDITS = 60
"""How many edits a table may have: each is a bit of a number, and a level of Spark's plan."""

# Columns beside the table's own; the leading blank avoids clashes with a user's names.
_KEY, _VALUE, _OLD = " key", " value", " old"
_EXISTED, _DELETED, _EDITS, _FALLBACK = " existed", " deleted", " edits", " fallback"


def apply_edits(source: StateSource, state: DataFrame, edits: Sequence[ParsedEdit]) -> DataFrame:
    """Apply edits, in their order, to a state table as Spark's state reader returns it, and return the touched rows.

    Columns: ``key`` and ``value`` (Spark's structs), ``existed`` (the original has the row), ``deleted``, ``fallback``
    (it was added in case its key does not exist yet), ``edits`` (the sum of 2 to the power of the number of each edit
    that touched it), ``old`` and ``new`` (the row as text).
    """
    if len(edits) > MAX_EDITS:
        raise InvalidArgumentError(
            f"{source.table} has {len(edits)} edits; at most {MAX_EDITS} are supported.\nCombine several into one"
            " statement: UPDATE with CASE and IN, INSERT with several rows of VALUES."
        )
    table = _Table.of(source, state)
    for number, edit in enumerate(edits):
        table = table.edited(edit, number)
    return table.touched()


@dataclass(frozen=True)
class _Table:
    """A state table's rows with the edits so far."""

    source: StateSource
    frame: DataFrame
    columns: Columns
    kinds: Mapping[str, DataType]
    fields: tuple[StateField, ...]
    key: StructType
    value: StructType
    changed: frozenset[str] = frozenset()
    """Columns that an edit gave new values."""
    added: bool = False
    """Whether rows were added."""

    @classmethod
    def of(cls, source: StateSource, state: DataFrame) -> _Table:
        columns = flatten(state.schema, source.shape)
        names = [*columns.keys, *columns.values]
        key, value = key_and_value(state)
        flags = {_EXISTED: "true", _DELETED: "false", _FALLBACK: "false", _EDITS: "cast(0 AS bigint)"}
        fixed = [key.alias(_KEY), value.alias(_VALUE), *(F.expr(text).alias(name) for name, text in flags.items())]
        flat = state.select(*fixed, *columns.select)
        kinds = {name: flat.schema[name].dataType for name in names}
        flat = flat.withColumn(_OLD, canonical_text(flat.schema, names))
        fields = tuple(state_fields(state.schema, columns))
        key_type, value_type = struct_type(flat.schema, _KEY), struct_type(flat.schema, _VALUE)
        return cls(source, flat, columns, kinds, fields, key_type, value_type)

    def edited(self, edit: ParsedEdit, number: int) -> _Table:
        """The table after one more edit."""
        if isinstance(edit, Edit):
            return self._by_key(edit, number)
        if edit.kind == "INSERT":
            return self._with_rows(edit, number)
        where = self._expression(edit, edit.where) if edit.where is not None else None
        if edit.kind == "DELETE":
            return self._without(where, number)
        return self._set({name: self._expression(edit, value) for name, value in edit.set}, where, number)

    def _by_key(self, edit: Edit, number: int) -> _Table:
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

    def _set(self, new: Mapping[str, Column], where: Column | None, number: int) -> _Table:
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
            _KEY, _VALUE, _EXISTED, _DELETED, _OLD, _FALLBACK, self._marked(matches, number), *columns
        )
        return replace(self, frame=frame, changed=self.changed | {*values})

    def _without(self, where: Column | None, number: int) -> _Table:
        matches = self._matches(where)
        unchanged = [column_named(name) for name in self.frame.columns if name not in (_DELETED, _EDITS)]
        deleted = (F.col(_DELETED) | matches).alias(_DELETED)
        return replace(self, frame=self.frame.select(*unchanged, deleted, self._marked(matches, number)))

    def _with_rows(self, edit: SqlEdit, number: int) -> _Table:
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
        absent = {_KEY: self.key, _VALUE: self.value, _OLD: "string"}
        fixed = [F.lit(None).cast(kind).alias(name) for name, kind in absent.items()]  # type: ignore[arg-type]
        flags = {
            _EXISTED: "false",
            _DELETED: "false",
            _FALLBACK: "true" if fallback else "false",
            _EDITS: f"cast({1 << number} AS bigint)",
        }
        return given.select("*", *fixed, *(F.expr(text).alias(name) for name, text in flags.items()))

    def plus(self, rows: DataFrame) -> _Table:
        """The table with more rows."""
        for field in self.fields:
            self._check_convertible(field)
        return replace(self, frame=self.frame.unionByName(rows), added=True)

    def _matches(self, where: Column | None) -> Column:
        present = ~F.col(_DELETED)
        return present if where is None else present & F.coalesce(where, F.expr("false"))

    def _marked(self, matches: Column, number: int) -> Column:
        return (F.col(_EDITS) + F.when(matches, F.lit(1 << number)).otherwise(F.lit(0))).alias(_EDITS)

    def _expression(self, edit: SqlEdit, node: Any) -> Column:
        """An expression of an edit over the table's columns."""
        names = [*self.columns.keys, *self.columns.values]
        node = node.copy()
        for column in [*node.find_all(exp.Column)]:
            # ``op0.k`` is the table's column k, ``window.start`` a field of the column window.
            name = next((part.name for part in column.parts if part.name not in (edit.alias, edit.table)), column.name)
            self._known(name, names)
            if column.table in (edit.alias, edit.table) and column.table not in names:
                column.set("table", None)
        return F.expr(node.sql(dialect="spark"))

    def _constant(self, node: Any) -> Column:
        if (column := node.find(exp.Column)) is not None:
            raise InvalidArgumentError(
                f"VALUES cannot refer to columns such as {column.sql()}. Put text in single quotes: 'a'."
            )
        return F.expr(node.sql(dialect="spark"))

    def _value(self, name: str) -> str:
        """The name of a value column, as the table spells it."""
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

    def touched(self) -> DataFrame:
        """The rows that an edit touched."""
        names = [*self.columns.keys, *self.columns.values]
        return self.frame.where(f"`{_EDITS}` > 0").select(
            self._struct(_KEY, self.key).alias("key"),
            self._struct(_VALUE, self.value).alias("value"),
            *(F.col(name).alias(name.strip()) for name in (_EXISTED, _DELETED, _EDITS, _OLD, _FALLBACK)),
            canonical_text(self.frame.schema, names).alias("new"),
        )

    def _struct(self, column: str, kind: StructType) -> Column:
        """A key or value struct: the original one, except for changed columns and added rows."""
        parts = KEY_PARTS if column == _KEY else VALUE_PARTS
        fields = [field for field in self.fields if field.part in parts]
        if not self.added and not self.changed & {field.name for field in fields}:
            return column_named(column)
        return rebuilt_struct(column_named(column), kind, fields, self.changed, column_named(_EXISTED))
