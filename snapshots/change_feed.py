"""The change rows of a state table: decoded from its changelog files, or read by Spark where that is not possible.

Decoding needs no Spark. Where a session runs, decoded rows are compared with Spark's, as ``verify`` says; a table whose
rows differ is read by Spark from then on.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import InvalidArgumentError, JavaNotFoundError, MissingDependencyError, choices
from streamstate.snapshots.changelog.failures import ChangelogError
from streamstate.snapshots.changelog.reader import changes, columns_of
from streamstate.snapshots.changelog.table_format import TableFormat
from streamstate.snapshots.operators import EPOCH, StateSource
from streamstate.snapshots.spark.failures import TooLargeError, failures
from streamstate.snapshots.spark.session import StreamStateWarning
from streamstate.snapshots.state_reader import StateReader, StateRows

Verify = Literal["first", "sample", "all", "never"]
"""Which epochs Spark reads too, to compare: the first of each run, a sample, all, or none."""

# With "sample", one pass in this many is compared.
_SAMPLE = 20
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def check_verify(verify: str) -> None:
    """Raise if a ``verify`` argument is invalid."""
    if verify not in get_args(Verify):
        raise InvalidArgumentError(f"Invalid verify={verify!r}: expected {choices(get_args(Verify))}.")


@dataclass
class ChangeFeed:
    """Reads the changes of one query's state tables, pass after pass."""

    reader: StateReader
    verify: Verify = "first"
    by_spark: dict[str, str] = field(default_factory=dict)
    """The tables that Spark read since :meth:`begin_pass`, each with the reason."""
    _wrong: set[str] = field(default_factory=set)
    _verified: dict[str, TableFormat] = field(default_factory=dict)
    """By table, the format that decoded rows were last compared in."""
    _passes: Counter[str] = field(default_factory=Counter)

    def begin_pass(self) -> None:
        """Forget which tables Spark has read."""
        self.by_spark = {table: why for table, why in self.by_spark.items() if table in self._wrong}

    def changes(self, source: StateSource, first: int, last: int) -> StateRows:
        """The change rows of epochs ``first`` to ``last``, both included, in Spark's order.

        Raises:
            TooLargeError: Spark refuses to let the driver fetch so much.
        """
        table = source.table
        if table in self._wrong:
            return self.reader.changes(source, first, last)
        try:
            layout = self.reader.format(source)
            decoded = StateRows(columns_of(layout), changes(self.reader.checkpoint, layout, first, last))
        except ChangelogError as error:
            with self._by_spark(table, str(error)):
                return self.reader.changes(source, first, last)
        if not self._compares(table, layout):
            return decoded
        upto = first if self.verify == "first" else last
        expected = self._spark_rows(source, first, upto)
        if expected is None:
            return decoded
        difference = first_difference(decoded, expected, upto)
        if difference is None:
            self._verified[table] = layout
            return decoded
        self._wrong.add(table)
        why = f"Its changelog, as decoded, differs from what Spark reads: {difference}."
        self.by_spark[table] = why
        warnings.warn(
            f"Spark captures {table} of {self.reader.checkpoint.path} from epoch {first} on. {why}\n"
            "What is captured now is right. Epochs that were captured before may not be: capture them again.",
            StreamStateWarning,
            stacklevel=2,
        )
        return self.reader.changes(source, first, last)

    def whole(self, source: StateSource, epochs: list[int], why: str = "") -> StateRows:
        """The whole state at each of some epochs, which only Spark reads; ``why`` is the reason if it is not the table.

        Raises:
            TooLargeError: as :meth:`changes`.
        """
        if not why:
            try:
                self.reader.format(source)
                why = f"The whole state of epoch {epochs[-1]} is needed: it was repartitioned, or has no changelog."
            except ChangelogError as error:
                why = str(error)
        with self._by_spark(source.table, why):
            return self.reader.whole(source, epochs)

    @contextmanager
    def _by_spark(self, table: str, why: str) -> Iterator[None]:
        """Record that Spark reads a table; if it cannot be started, say why it is needed."""
        self.by_spark[table] = why
        try:
            yield
        except (MissingDependencyError, JavaNotFoundError) as error:
            raise type(error)(f"Spark has to read {table}: {why}\n{error}") from error

    def _compares(self, table: str, layout: TableFormat) -> bool:
        """Whether Spark has to confirm the decoded rows of a pass."""
        if self.verify == "never" or self.reader.running is None:
            return False
        self._passes[table] += 1
        first = self._verified.get(table) != layout
        return first or self.verify == "all" or (self.verify == "sample" and self._passes[table] % _SAMPLE == 0)

    def _spark_rows(self, source: StateSource, first: int, last: int) -> StateRows | None:
        """Spark's rows to compare with; None if it cannot read them (any more), or not in one piece."""
        try:
            return self.reader.changes(source, first, last)
        except TooLargeError:
            return None
        except failures():
            return None


def first_difference(decoded: StateRows, expected: StateRows, upto: int) -> str | None:
    """The first of Spark's rows, which end at an epoch, that the decoded rows do not have; None if there is none."""
    if decoded.rows.schema != expected.rows.schema:
        return f"the columns {_described(decoded.rows.schema)} instead of {_described(expected.rows.schema)}"
    ours, theirs = decoded.rows.filter(pc.less_equal(decoded.rows[EPOCH], upto)), expected.rows
    if ours.num_rows != theirs.num_rows:
        return f"{ours.num_rows} rows instead of {theirs.num_rows}"
    if all(_equal(ours[name], theirs[name]) for name in ours.column_names):
        return None
    for row in range(ours.num_rows):  # some may be equal all the same: a NaN differs from itself
        one, other = (repr(rows.slice(row, 1).to_pylist()[0]) for rows in (ours, theirs))
        if one != other:
            return f"{one} instead of {other}"
    return None


def _described(schema: pa.Schema) -> str:
    return choices(f"{column.name} {column.type}" for column in schema)


def _equal(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> bool:
    """Whether two columns are the same in all bits; if that takes long to decide, False."""
    if ours.type in _BITS:
        columns = [column.combine_chunks().view(_BITS[ours.type]) for column in (ours, theirs)]
        return bool(columns[0].equals(columns[1]))
    return "float" not in str(ours.type) and "double" not in str(ours.type) and bool(ours.equals(theirs))
