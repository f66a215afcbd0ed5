"""Evaluating edits: Spark reads the state, applies them to its rows, and gives back the rows that they touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError, UnsupportedStateError
from streamstate.snapshots.forks.edit_values import back, fitted, literal
from streamstate.snapshots.forks.edits import Edit, Statement
from streamstate.snapshots.forks.state_structs import Field, fields_of, rebuilt, struct_in
from streamstate.snapshots.operators import KEY_PARTS, NO_KEY, VALUE_PARTS, Columns, StateSource, flatten
from streamstate.snapshots.row_text import row_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["EDITS", "EditedRows", "edited_rows"]

EDITS = 60
"""How many edits of a table there may be: each is a bit of a number, and a level of Spark's plan."""

# Beside the table's own columns; a blank keeps them apart from what a user would name.
_KEY, _VALUE, _OLD = " key", " value", " old"
_WAS, _GONE, _HIT, _SPARE = " was", " gone", " hit", " spare"


@dataclass(frozen=True)
class EditedRows:
    """The rows of one state table that edits touched, not collected.

    ``frame`` has the columns ``key`` and ``value`` (Spark's structs), ``was`` (the original has the row), ``gone``,
    ``spare`` (it was added for the case that there is no such row), ``hit`` (the sum of 2 to the power of each edit's
    number), ``old`` and ``new`` (the row as text).
    """

    source: StateSource
    frame: DataFrame
    key: StructType
    value: StructType
    edits: Sequence[Edit | Statement]


def edited_rows(source: StateSource, state: DataFrame, edits: Sequence[Edit | Statement]) -> EditedRows:
    """Apply edits, in their order, to the rows of a state table.

    Args:
        source: the state table.
        state: its rows as Spark's state reader gives them.
        edits: at least one.

    Raises:
        UnknownColumnError: an edit names a column that the table lacks.
        InvalidArgumentError: an edit sets key columns, or its values cannot be the columns'.
        UnsupportedStateError: a column cannot be put back into Spark's type.
    """
    if len(edits) > EDITS:
        raise InvalidArgumentError(
            f"{len(edits)} edits of {source.table} are more than {EDITS}.\nOne statement can say many: UPDATE with CASE"
            " and IN, INSERT with many rows of VALUES."
        )
    table = _Table.of(source, state)
    for number, edit in enumerate(edits):
        table = table.edited(edit, number)
    return table.touched(edits)


@dataclass(frozen=True)
class _Table:
    """A state table's rows with the edits so far."""

    source: StateSource
    frame: DataFrame
    columns: Columns
    kinds: Mapping[str, DataType]
    fields: tuple[Field, ...]
    key: StructType
    value: StructType
    changed: frozenset[str] = frozenset()
    """Columns that an UPDATE gave new values."""
    added: bool = False
    """Whether rows were added."""

    @classmethod
    def of(cls, source: StateSource, state: DataFrame) -> _Table:
        from pyspark.sql import functions as F

        columns = flatten(state.schema, source.shape)
        names = [*columns.keys, *columns.values]
        parts = [part for part in KEY_PARTS if part in state.columns]
        key = F.col(parts[0]) if len(parts) == 1 else F.struct(*parts)
        (value,) = (F.col(part) for part in VALUE_PARTS if part in state.columns)
        flags = {_WAS: "true", _GONE: "false", _SPARE: "false", _HIT: "cast(0 AS bigint)"}
        fixed = [key.alias(_KEY), value.alias(_VALUE), *(F.expr(text).alias(name) for name, text in flags.items())]
        flat = state.select(*fixed, *columns.select)
        kinds = {name: flat.schema[name].dataType for name in names}
        flat = flat.withColumn(_OLD, row_text(flat.schema, names))
        fields = tuple(fields_of(state.schema, columns))
        return cls(source, flat, columns, kinds, fields, struct_in(flat.schema, _KEY), struct_in(flat.schema, _VALUE))

    def edited(self, edit: Edit | Statement, number: int) -> _Table:
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
            self._column(name).eqNullSafe(fitted(literal(value, self.kinds[name]), name, self.kinds[name], self.frame))
            for name, value in edit.key.items()
        ]
        where = reduce(lambda one, other: one & other, same)
        if edit.delete:
            return self._without(where, number)
        new = {name: literal(value, self.kinds[self._value(name)]) for name, value in (edit.set or {}).items()}
        if {*edit.key, *new} != {*self.columns.keys, *self.columns.values} or self.columns.keys == (NO_KEY,):
            return self._set(new, where, number)
        # All of a row: it is added where it is not there yet, which the encoded keys will tell.
        values = {name: literal(value, self.kinds[name]) for name, value in edit.key.items()} | new
        return self._set(new, where, number).plus(self._rows_of([values], number, spare=True))

    def _set(self, new: Mapping[str, Column], where: Column | None, number: int) -> _Table:
        from pyspark.sql import functions as F

        hit = self._hit(where)
        values = {
            (known := self._value(name)): fitted(one, known, self.kinds[known], self.frame) for name, one in new.items()
        }
        columns = []
        for name in (*self.columns.keys, *self.columns.values):
            old = self._column(name)
            columns.append(F.when(hit, values[name]).otherwise(old).alias(name) if name in values else old)
        frame = self.frame.select(_KEY, _VALUE, _WAS, _GONE, _OLD, _SPARE, self._counted(hit, number), *columns)
        return replace(self, frame=frame, changed=self.changed | {*values})

    def _without(self, where: Column | None, number: int) -> _Table:
        from pyspark.sql import functions as F

        hit = self._hit(where)
        others = [name for name in self.frame.columns if name not in (_GONE, _HIT)]
        gone = (F.col(_GONE) | hit).alias(_GONE)
        return replace(self, frame=self.frame.select(*map(_quoted, others), gone, self._counted(hit, number)))

    def _with_rows(self, edit: Statement, number: int) -> _Table:
        names = [*self.columns.keys, *self.columns.values]
        given = [self._known(name, names) for name in edit.columns] or names
        if self.columns.keys == (NO_KEY,):
            raise InvalidArgumentError(
                f"{self.source.table} has one row, without a key: UPDATE it instead of adding one."
            )
        if missing := [name for name in names if name not in given]:
            raise InvalidArgumentError(f"An INSERT into {self.source.table} gives every column; it lacks {missing}.")
        if any(len(row) != len(given) for row in edit.rows):
            raise InvalidArgumentError(f"Each row of VALUES has to have {len(given)} values, for {', '.join(given)}.")
        rows = [dict(zip(given, (self._constant(one) for one in row), strict=True)) for row in edit.rows]
        return self.plus(self._rows_of(rows, number))

    def _rows_of(self, rows: Sequence[Mapping[str, Column]], number: int, *, spare: bool = False) -> DataFrame:
        """Rows that are to be added, in the shape of the frame."""
        from pyspark.sql import functions as F

        one = self.frame.sparkSession.range(1)
        names = [*self.columns.keys, *self.columns.values]
        structs = [
            F.struct(*(fitted(row[name], name, self.kinds[name], one).alias(name) for name in names)) for row in rows
        ]
        given = one.select(F.explode(F.array(*structs)).alias("row")).select("row.*")
        absent = {_KEY: self.key, _VALUE: self.value, _OLD: "string"}
        fixed = [F.lit(None).cast(kind).alias(name) for name, kind in absent.items()]  # type: ignore[arg-type]
        flags = {
            _WAS: "false",
            _GONE: "false",
            _SPARE: "true" if spare else "false",
            _HIT: f"cast({1 << number} AS bigint)",
        }
        return given.select("*", *fixed, *(F.expr(text).alias(name) for name, text in flags.items()))

    def plus(self, rows: DataFrame) -> _Table:
        """The table with more rows."""
        for field in self.fields:
            self._check_leads_back(field)
        return replace(self, frame=self.frame.unionByName(rows), added=True)

    def _hit(self, where: Column | None) -> Column:
        from pyspark.sql import functions as F

        there = ~F.col(_GONE)
        return there if where is None else there & F.coalesce(where, F.expr("false"))

    def _counted(self, hit: Column, number: int) -> Column:
        from pyspark.sql import functions as F

        return (F.col(_HIT) + F.when(hit, F.lit(1 << number)).otherwise(F.lit(0))).alias(_HIT)

    def _expression(self, edit: Statement, node: Any) -> Column:
        """An expression of an edit over the table's columns."""
        from pyspark.sql import functions as F
        from sqlglot import exp

        names = [*self.columns.keys, *self.columns.values]
        node = node.copy()
        for column in [*node.find_all(exp.Column)]:
            # ``op0.k`` is the table's column k, ``window.start`` a field of the column window.
            of = next((part.name for part in column.parts if part.name not in (edit.alias, edit.table)), column.name)
            self._known(of, names)
            if column.table in (edit.alias, edit.table) and column.table not in names:
                column.set("table", None)
        return F.expr(node.sql(dialect="spark"))

    def _constant(self, node: Any) -> Column:
        from pyspark.sql import functions as F
        from sqlglot import exp

        if (column := node.find(exp.Column)) is not None:
            raise InvalidArgumentError(
                f"VALUES are values, not columns such as {column.sql()}. Text stands in quotes: 'a'."
            )
        return F.expr(node.sql(dialect="spark"))

    def _value(self, name: str) -> str:
        """The value column of that name."""
        if any(name.casefold() == key.casefold() for key in self.columns.keys):
            raise InvalidArgumentError(
                f"{name} is a key column of {self.source.table}, and a key cannot become another.\n"
                "Delete the row, and add one with the other key."
            )
        known = self._known(name, self.columns.values)
        field = next(one for one in self.fields if one.name == known)
        self._check_leads_back(field)
        return known

    def _known(self, name: str, names: Sequence[str]) -> str:
        for one in names:
            if one.casefold() == name.casefold():
                return one
        raise UnknownColumnError.among("column", name, names, where=f"in {self.source.table}")

    def _column(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(_quoted(name))

    def _check_leads_back(self, field: Field) -> None:
        from pyspark.sql import functions as F

        if back(F.lit(None), field.kind) is None:
            raise UnsupportedStateError(
                f"{field.name} of {self.source.table} is {field.kind.simpleString()}, and cannot be edited: the table"
                " keeps it as another type that does not lead back.\nOther columns can be edited, and rows deleted."
            )

    def touched(self, edits: Sequence[Edit | Statement]) -> EditedRows:
        """The rows that an edit hit."""
        from pyspark.sql import functions as F

        names = [*self.columns.keys, *self.columns.values]
        frame = self.frame.where(f"`{_HIT}` > 0").select(
            self._struct(_KEY, self.key).alias("key"),
            self._struct(_VALUE, self.value).alias("value"),
            F.col(_WAS).alias("was"), F.col(_GONE).alias("gone"), F.col(_HIT).alias("hit"), F.col(_OLD).alias("old"),
            F.col(_SPARE).alias("spare"),
            row_text(self.frame.schema, names).alias("new"),
        )  # fmt: skip
        return EditedRows(self.source, frame, self.key, self.value, edits)

    def _struct(self, column: str, kind: StructType) -> Column:
        """A key or value as Spark keeps it: as it was, but for columns that were changed and rows that were added."""
        parts = KEY_PARTS if column == _KEY else VALUE_PARTS
        fields = [one for one in self.fields if one.part in parts]
        if not self.added and not self.changed & {one.name for one in fields}:
            return self._column(column)
        return rebuilt(self._column(column), kind, fields, self.changed, self._column(_WAS))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
