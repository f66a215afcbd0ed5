"""The rows of a state table, its changes or its whole state: decoded from its files, or read by Spark if need be.

Decoding needs no Spark. Where a session runs, decoded rows are compared with Spark's, as ``verify`` says; a table whose
rows differ is read by Spark from then on.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import (
    InvalidArgumentError,
    JavaNotFoundError,
    MissingDependencyError,
    SparkConnectError,
    choices,
)
from streamstate.snapshots.capture.change_rows import with_positions
from streamstate.snapshots.checkpoint.damage.state import StateDamage, stopping
from streamstate.snapshots.checkpoint.decoding.failures import (
    ChangelogError,
    DamagedChangelogError,
    MissingChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.reader import changes, columns_of
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.decoding.whole_state import whole_state
from streamstate.snapshots.checkpoint.state_tables import EPOCH, StateSource
from streamstate.snapshots.spark.failures import TooLargeError, failures
from streamstate.snapshots.spark.session import StreamStateWarning
from streamstate.snapshots.spark.state_reader import StateReader, StateRows
from streamstate.snapshots.store.duckdb_sql import embedded, listed
from streamstate.snapshots.store.table_log import VerifiedFormats

_Kind = tuple[str, Literal["changes", "whole state"]]

Verify = Literal["first", "sample", "all", "never"]
"""The epochs that Spark reads too, to compare: the first in the store's life, a sample, all, or none."""

# With "sample", one pass in this many is compared.
_SAMPLE = 20
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def check_verify(verify: str) -> None:
    """Raise if a ``verify`` argument is invalid."""
    if verify not in get_args(Verify):
        raise InvalidArgumentError(f"Invalid verify={verify!r}: expected {choices(get_args(Verify))}.")


@dataclass
class ChangeFeed:
    """The source of the changes and the whole states of one query's state tables, pass after pass."""

    reader: StateReader
    verify: Verify = "first"
    by_spark: dict[str, str] = field(default_factory=dict)
    """The tables that Spark read since :meth:`begin_pass`, each with the reason."""
    verified_formats: dict[str, VerifiedFormats] = field(default_factory=dict)
    """By table, the formats that the store names as compared earlier."""
    _wrong: set[str] = field(default_factory=set)
    _verified: dict[_Kind, TableFormat] = field(default_factory=dict)
    """By table and kind of rows, the format that decoded rows were last compared in."""
    _passes: Counter[_Kind] = field(default_factory=Counter)

    def begin_pass(self) -> None:
        """Forget which tables Spark has read."""
        self.by_spark = {table: why for table, why in self.by_spark.items() if table in self._wrong}

    def changes(self, source: StateSource, first: int, last: int) -> StateRows:
        """Return the change rows of epochs ``first`` to ``last``, both included, in Spark's order.

        Raises:
            MissingChangelogError: an epoch has only a snapshot, or a file of it is missing.
            DamagedChangelogError: a file is damaged, so that Spark cannot read it either.
            TooLargeError: Spark refuses to let the driver fetch so much.
        """
        by_spark = partial(self.reader.changes, source, first, last)
        if source.table in self._wrong:
            return by_spark()
        try:
            layout = self.reader.format(source)
            decoded = StateRows(columns_of(layout), changes(self.reader.checkpoint, layout, first, last))
        except ChangelogError as error:
            self._check_left_to_spark(error, range(first, last + 1))
            with self._by_spark(source.table, error):
                return by_spark()
        if not self._compares((source.table, "changes"), layout):
            return decoded
        upto = first if self.verify == "first" else last
        expected = _unless_unreadable(lambda: self.reader.changes(source, first, upto))
        if expected is None:
            return decoded
        difference = first_difference(decoded, expected, upto)
        return self._confirmed((source.table, "changes"), layout, decoded, difference, first) or by_spark()

    def whole(self, source: StateSource, epochs: list[int]) -> StateRows:
        """Return the whole state at each of some epochs, of which only the elements of lists have an order.

        Raises:
            MissingChangelogError: a file is missing.
            DamagedChangelogError, TooLargeError: as :meth:`changes`.
        """
        by_spark = partial(self.reader.whole, source, epochs)
        if source.table in self._wrong:
            return by_spark()
        try:
            layout = self.reader.format(source)
            decoded = StateRows(columns_of(layout), whole_state(self.reader.checkpoint, layout, epochs))
        except ChangelogError as error:
            self._check_left_to_spark(error, epochs)
            with self._by_spark(source.table, error):
                return by_spark()
        if not self._compares((source.table, "whole state"), layout):
            return decoded
        compared = epochs[:1] if self.verify == "first" else epochs
        expected = _unless_unreadable(lambda: self.reader.whole(source, compared))
        if expected is None:
            return decoded
        upto = compared[-1]
        difference = first_difference(_in_any_order(decoded, upto), _in_any_order(expected, upto), upto)
        return self._confirmed((source.table, "whole state"), layout, decoded, difference, epochs[0]) or by_spark()

    def _confirmed(
        self, kind: _Kind, layout: TableFormat, decoded: StateRows, difference: str | None, first: int
    ) -> StateRows | None:
        """Return the decoded rows; None, after a warning, if they differ from Spark's."""
        self.verified_formats[kind[0]].note(kind[1], layout, self.reader.spark.version, equal=difference is None)
        if difference is None:
            self._verified[kind] = layout
            return decoded
        table, what = kind
        self._wrong.add(table)
        why = f"What was decoded of its {what} differs from what Spark reads: {difference}."
        self.by_spark[table] = why
        warnings.warn(
            f"Spark captures {table} of {self.reader.checkpoint.path} from epoch {first} on. {why}\n"
            "What is captured now is right. Epochs that were captured before may not be: capture them again.",
            StreamStateWarning,
            stacklevel=3,
        )
        return None

    def _check_left_to_spark(self, why: ChangelogError, epochs: Iterable[int]) -> None:
        """Raise what Spark cannot read either, after many retries: a missing file, or one that is damaged for it."""
        if isinstance(why, MissingChangelogError):
            raise why
        if isinstance(why, DamagedChangelogError):
            damage = StateDamage(self.reader.checkpoint)
            if any(stopping(damage.within(epoch)) or stopping(damage.at(epoch)) for epoch in epochs):
                raise why

    @contextmanager
    def _by_spark(self, table: str, why: ChangelogError) -> Iterator[None]:
        """Record that Spark reads a table; if it cannot be started, say why it is needed, or what is missing."""
        self.by_spark[table] = str(why)
        try:
            yield
        except (MissingDependencyError, JavaNotFoundError, SparkConnectError) as error:
            if isinstance(why, MissingChangelogError):
                raise why from None  # nor could Spark read what it has purged
            raise type(error)(f"Spark has to read {table}: {why}\n{error}") from error

    def _compares(self, kind: _Kind, layout: TableFormat) -> bool:
        """Return whether Spark has to confirm the decoded rows of a pass."""
        running = self.reader.running
        if self.verify == "never" or running is None:
            return False
        self._passes[kind] += 1
        first = self._verified.get(kind) != layout
        if first and self.verify == "first" and self.verified_formats[kind[0]].has(kind[1], layout, running.version):
            self._verified[kind] = layout
            return False
        return first or self.verify == "all" or (self.verify == "sample" and self._passes[kind] % _SAMPLE == 0)


def _unless_unreadable(read: Callable[[], StateRows]) -> StateRows | None:
    """Spark's rows to compare with; None if it cannot read them (any more), or not in one piece."""
    try:
        return read()
    except TooLargeError:
        return None
    except failures():
        return None


def _in_any_order(state: StateRows, upto: int) -> StateRows:
    """Whole states up to an epoch, sorted in some way that depends on the rows alone; list elements are numbered."""
    rows = with_positions(state.rows.filter(pc.less_equal(state.rows[EPOCH], upto)), state.columns)
    db = embedded()
    db.register("rows", rows)
    hashes = db.sql(f"SELECT hash({listed(rows.column_names)}) AS h FROM rows").to_arrow_table()["h"]
    return StateRows(state.columns, rows.take(pc.sort_indices(hashes)))


def first_difference(decoded: StateRows, expected: StateRows, upto: int) -> str | None:
    """Return the first difference of the decoded rows from Spark's, which end at an epoch; None if there is none."""
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
    """Return whether two columns are the same in all bits; False if that takes long to decide."""
    if ours.type in _BITS:
        columns = [column.combine_chunks().view(_BITS[ours.type]) for column in (ours, theirs)]
        return bool(columns[0].equals(columns[1]))
    return "float" not in str(ours.type) and "double" not in str(ours.type) and bool(ours.equals(theirs))
