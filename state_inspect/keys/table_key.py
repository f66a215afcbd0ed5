"""The key of a state table or of a result: what a call may give for it, and an example that can be copied."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, NO_KEY
from streamstate.snapshots.store.changelog import DELETE
from streamstate.snapshots.store.duckdb_sql import listed
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.keys.key_rows import SESSION_START, Keys, given_key, session_column
from streamstate.state_inspect.keys.key_text import arguments, as_window, converted, in_magic, is_window, parsed_value
from streamstate.state_inspect.python_rows import python_values, row_tuples
from streamstate.state_inspect.results.naming import key_aliases, naming_note
from streamstate.state_inspect.results.results import shown_columns
from streamstate.state_inspect.temporal_index.interval_table import held_at

Spelling = Callable[[Mapping[str, Any]], str]
"""A way to write a key: as :func:`arguments` of a call, or as options, :func:`in_magic` or :func:`in_shell`."""

_NOT_CAST = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class TableKey:
    """The key of a state table or of a result."""

    table: str
    """Its name."""
    columns: Sequence[str]
    """The key columns, in the order on disk."""
    schema: pa.Schema
    """The types of all columns."""
    query: CapturedQuery
    """The query."""
    find: Callable[[], Mapping[str, Any] | None]
    """Returns a key that the table has; None if it has no rows."""

    @classmethod
    def of(cls, query: CapturedQuery, table: str) -> TableKey:
        """Return the key of a table of a query."""
        shown = shown_columns(query, table)
        find = partial(_some_key, query, shown.state, shown.state_keys)  # only for an error
        return cls(table, shown.key_columns, shown.schema, query, find)

    def given(
        self,
        given: Mapping[str, Any],
        *,
        whole: bool = True,
        without: str | None = None,
        spelling: Spelling = arguments,
    ) -> dict[str, Any]:
        """Return the key that a call gives, each value with the type of its column.

        Args:
            given: one argument per column, or all of it as ``key={…}``.
            whole: whether each column needs a value.
            without: a column that needs none.
            spelling: how the example in an error is written.

        Raises:
            UnknownColumnError: a name is not a key column.
            InvalidArgumentError: a column is missing, or a value does not fit its type.
        """
        return self._checked(given_key(given, self.columns), whole=whole, without=without, spelling=spelling)

    def _checked(
        self,
        named: Mapping[str, Any],
        *,
        whole: bool = True,
        without: str | None = None,
        spelling: Spelling = arguments,
    ) -> dict[str, Any]:
        """Return the values of some columns."""
        key = self._by_start(self._in_sparks_names(named))
        if not key and list(self.columns) == [NO_KEY]:
            return {NO_KEY: 0}
        for name in key:
            if name not in self.columns:
                problem = UnknownColumnError.among("key column", name, self.columns, where=f"in {self.table}")
                raise UnknownColumnError(f"{problem}{self.example(spelling)}")
        missing = [name for name in self.columns if name not in key and name != without]
        if missing and (whole or not key):
            needed = f"a value for: {', '.join(missing)}" if whole else "a value for at least one column"
            hint = self.example(spelling) or f"\nKey columns: {', '.join(self.columns)}."
            raise InvalidArgumentError(f"The key of {self.table} needs {needed}.{hint}")
        return {name: self._value(name, value, spelling=spelling) for name, value in key.items()}

    def read(
        self, texts: Sequence[str], *, whole: bool = True, without: str | None = None, spelling: Spelling = in_magic
    ) -> dict[str, Any]:
        """Return the key that a person writes, as ``COLUMN=VALUE`` for each key column; as :meth:`given`."""
        key: dict[str, Any] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                raise InvalidArgumentError(f"Invalid key {text!r}: expected COLUMN=VALUE.{self.example(spelling)}")
            kind = self.schema.field(name).type if name in self.schema.names else pa.string()
            try:
                key[name] = parsed_value(value, kind)
            except ValueError as error:
                raise self._invalid(name, value, error, spelling) from None
        return self._checked(key, whole=whole, without=without, spelling=spelling)

    def many(self, keys: Keys) -> pa.Table:
        """Return many keys as rows with the types of the key columns.

        Raises:
            UnknownColumnError, InvalidArgumentError: as :meth:`given`.
        """
        given = self._by_column(keys) or {name: [] for name in self.columns}
        self._checked(dict.fromkeys(given))  # raises for names that are missing or unknown
        fields = [self.schema.field(name).remove_metadata() for name in self.columns]
        return pa.table([self._array(field, given[field.name]) for field in fields], schema=pa.schema(fields))

    def _by_column(self, keys: Any) -> dict[str, Any]:
        """Return the columns of many keys, by name."""
        if isinstance(keys, pa.Table):
            return dict(zip(keys.column_names, keys.columns, strict=True))
        if isinstance(keys, pd.DataFrame):
            return {str(name): keys[name] for name in keys.columns}
        try:
            rows = [dict(key) for key in keys]
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"Invalid keys: {error}\nExpected a frame with the key columns, or a list of dicts, one per key."
            ) from error
        for row in rows:
            if {*row} != {*self.columns}:
                self._checked(row)  # raises
        return {name: [row[name] for row in rows] for name in self.columns}

    def _array(self, field: pa.Field, values: Any) -> pa.Array | pa.ChunkedArray:
        """Return the values of a key column, of an Arrow table, a frame or a list."""
        if isinstance(values, pd.Series) and isinstance(values.dtype, np.dtype) and values.dtype.kind == "f":
            # NaN is a number among floats, and missing among others.
            values = pa.array(values.to_numpy(), from_pandas=not pa.types.is_floating(field.type))
        elif isinstance(values, pd.Series) and values.dtype != object:
            values = pa.Array.from_pandas(values)
        try:
            if isinstance(values, pa.Array | pa.ChunkedArray):
                return values.cast(field.type)
            if not pa.types.is_nested(field.type):
                return pa.array(values, field.type, from_pandas=False)
        except _NOT_CAST:
            pass
        some = python_values(values) if isinstance(values, pa.Array | pa.ChunkedArray) else list(values)
        return pa.array([self._value(field.name, value) for value in some], field.type)

    def _in_sparks_names(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """Return a key whose columns may have the query's names, where Spark has others."""
        if {*key} <= {*self.columns}:
            return dict(key)
        aliases = key_aliases(self.query, self.table)
        return {name if name in self.columns else aliases.get(name, name): value for name, value in key.items()}

    def _by_start(self, key: dict[str, Any]) -> dict[str, Any]:
        """Return a key with a session's window, which the result shows, by the state's own: the session's start."""
        window = session_column(self.columns, self.schema)
        if window is None or window not in key or SESSION_START in key:
            return key
        # The end does not matter, nor how long the window is.
        found = self._value(window, key[window], timedelta)
        rest = {name: value for name, value in key.items() if name != window}
        return rest | {SESSION_START: None if found is None else found["start"]}

    def _value(
        self,
        name: str,
        value: Any,
        length: Callable[[], timedelta | None] | None = None,
        spelling: Spelling = arguments,
    ) -> Any:
        kind = self.schema.field(name).type
        try:
            if is_window(kind):
                return as_window(value, kind, length or (lambda: self._window_length(name)))
            return converted(value, kind)
        except ValueError as error:
            raise self._invalid(name, value, error, spelling) from None

    def _invalid(self, name: str, value: Any, error: ValueError, spelling: Spelling) -> InvalidArgumentError:
        kind = self.schema.field(name).type
        expected = "a window's start, or start/end" if is_window(kind) else f"a value of type {kind}"
        shown = repr(value) if spelling is arguments else value
        why = f"; {error}" if str(error) else ""
        return InvalidArgumentError(f"Invalid {name}={shown}: expected {expected}{why}.{self.example(spelling)}")

    def _window_length(self, name: str) -> timedelta | None:
        """Return the length of the windows in a column, which is that of any of them."""
        window = (self._some or {}).get(name)
        return None if window is None else window["end"] - window["start"]

    @cached_property
    def _some(self) -> Mapping[str, Any] | None:
        return self.find()

    def example(self, spelling: Spelling) -> str:
        """Return a line with a key to copy, and with the query's names of columns that Spark has named."""
        note = naming_note(self.query, self.table)
        example = "" if self._some is None else f"\nFor example: {spelling(self._some)}"
        return f"\n{note}{example}" if note else example


def _some_key(query: CapturedQuery, state: str, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Return a key that a state table has, or had, from a loaded table or the newest file."""
    own = list(names.values())
    for held in query.index.loaded(query.name, state):
        for valid in (held_at(held.high), "true"):
            rows = query.index.query(f"SELECT {listed(own)} FROM {held.relation} WHERE {valid} LIMIT 1")
            if rows.num_rows:
                return dict(zip(names, row_tuples(rows)[0], strict=True))
    version = query.columns(state).version
    for file in reversed(version.files(EPOCH)):
        for batch in version.scan_files([file], columns=[CHANGE, *own]):
            rows = pa.Table.from_batches([batch]).filter(pc.field(CHANGE) != DELETE).slice(0, 1)
            if rows.num_rows:
                return dict(zip(names, row_tuples(rows.select(own))[0], strict=True))
    return None


def lists_options(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the error about an unknown key column list the options too: the name may be a misspelt option."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    options = [parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "self"]

    @wraps(call)
    def listing(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except UnknownColumnError as error:
            if not any(name in f"{error}" for name in kwargs if name not in options):
                raise
            # An example of a key, ready to copy, stays at the end.
            problem, example, key = str(error).partition("\nFor example: ")
            raise UnknownColumnError(f"{problem}\nOptions: {', '.join(options)}.{example}{key}") from None

    return listing
