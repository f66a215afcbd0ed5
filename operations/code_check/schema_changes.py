"""Differences between the state that a checkpoint has and the state that the code would make in an empty one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from streamstate.operations.report_html import ColumnPair, SchemaColumn
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError
from streamstate.snapshots.checkpoint.decoding.operator_metadata import recorded_stores
from streamstate.snapshots.checkpoint.decoding.schema_files import DEFAULT_FAMILY, family_schemas

Part = Literal["key", "value"]
Field = tuple[str, Any, bool]
Fields = Sequence[Field]
"""The name, the type and the nullability of each column."""
Place = tuple[int, str, str]
"""An operator's number, a store and a column family."""


@dataclass(frozen=True)
class StateSchemas:
    """The operators of a checkpoint, and the columns of their state."""

    operators: Mapping[int, str]
    """Spark's names of the operators, by number."""
    columns: Mapping[Place, Mapping[Part, Fields]]
    variables: Mapping[int, frozenset[str]]
    """The variables of each processor."""

    @classmethod
    def of(cls, checkpoint: CheckpointFiles, epoch: int) -> StateSchemas:
        """Return those of a checkpoint at an epoch."""
        stores = recorded_stores(checkpoint, epoch)
        columns: dict[Place, Mapping[Part, Fields]] = {}
        for store in stores:
            content = checkpoint.files.content(store.schema_path)
            for family, schema in family_schemas(content, store.schema_path).items() if content else ():
                columns[store.operator, store.name, family] = {
                    "key": _fields(schema.key),
                    "value": _fields(schema.value),
                }
        variables = {
            store.operator: frozenset(str(variable["stateName"]) for variable in store.properties["stateVariables"])
            for store in stores
            if store.properties.get("stateVariables")
        }
        return cls({store.operator: store.kind for store in stores}, columns, variables)


def schemas_or_none(checkpoint: CheckpointFiles, epoch: int) -> StateSchemas | None:
    """Return the operators and columns of a checkpoint; None if they cannot be read without Spark."""
    try:
        return StateSchemas.of(checkpoint, epoch)
    except ChangelogError:
        return None


@dataclass(frozen=True)
class SchemaChange:
    """A difference in the key or the value of one state."""

    place: Place
    part: Part
    kind: Literal["fields", "types", "nullability", "order", "names"]
    """``fields``: another number; ``order``: the same names in another order; ``names``: other names, same types."""
    before: Fields
    after: Fields

    @property
    def table(self) -> str:
        """The state, as text."""
        return _state(self.place)

    def __str__(self) -> str:
        show_types = self.kind not in ("order", "names")
        show_nulls = self.kind == "nullability"
        texts = [_shown(fields, types=show_types, nulls=show_nulls) for fields in (self.before, self.after)]
        return f"the {self.part} of {self.table} has {texts[0]}; with this code: {texts[1]}"


def _state(place: Place) -> str:
    """Return a state as text: ``op0``, ``op0 left-keyWithIndexToValue``, ``op0 total``."""
    operator, store, family = place
    names = [name for name in (store, family) if name not in (DEFAULT_FAMILY, "")]
    return " ".join([f"op{operator}", *names])


def compared_columns(before: StateSchemas, after: StateSchemas) -> dict[str, tuple[ColumnPair, ...]]:
    """For each state whose columns differ, all of them side by side, by their place, which is how Spark finds them."""
    places = dict.fromkeys(change.place for change in schema_changes(before, after))
    return {
        _state(place): tuple(
            _beside(part, old, new)
            for part in ("key", "value")
            for old, new in zip_longest(before.columns[place][part], after.columns[place][part])
        )
        for place in places
    }


def _beside(part: Part, old: Field | None, new: Field | None) -> ColumnPair:
    if old is None or new is None:
        how = "only in this code" if old is None else "only in the checkpoint"
        return ColumnPair(_column(part, old), _column(part, new), how)
    words = ["another name"] * (old[0] != new[0])
    words += ["another type"] * (_plain(old[1]) != _plain(new[1]))
    words += ["may be null now" if new[2] else "is never null now"] * (old[2] != new[2])
    return ColumnPair(_column(part, old), _column(part, new), ", ".join(words))


def _column(part: Part, field: Field | None) -> SchemaColumn | None:
    return None if field is None else SchemaColumn(field[0], _type_text(field[1]), part == "key")


def _type_text(kind: Any) -> str:
    """Return a type of Spark's JSON as in SQL."""
    from pyspark.sql.types import StructType

    field = {"name": "column", "type": kind, "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})[0].dataType.simpleString()


def schema_changes(before: StateSchemas, after: StateSchemas) -> Iterator[SchemaChange]:
    """Yield the states of both whose columns differ."""
    for place in sorted(before.columns.keys() & after.columns.keys()):
        for part in ("key", "value"):
            old, new = before.columns[place][part], after.columns[place][part]
            if (kind := _difference(old, new)) is not None:
                yield SchemaChange(place, part, kind, old, new)


def _difference(old: Fields, new: Fields) -> Literal["fields", "types", "nullability", "order", "names"] | None:
    if len(old) != len(new):
        return "fields"
    if [_plain(kind) for _, kind, _ in old] != [_plain(kind) for _, kind, _ in new]:
        return "types"
    names, new_names = ([name for name, _, _ in fields] for fields in (old, new))
    if names != new_names:
        return "order" if sorted(names) == sorted(new_names) else "names"
    nulls = [(nullable, kind) for _, kind, nullable in old] != [(nullable, kind) for _, kind, nullable in new]
    return "nullability" if nulls else None


def _fields(schema: Mapping[str, Any]) -> list[tuple[str, Any, bool]]:
    return [(str(field["name"]), field["type"], bool(field.get("nullable", True))) for field in schema["fields"]]


def _plain(kind: Any) -> Any:
    """Return a type without what Spark does not compare: nullability, metadata, and the names of nested fields."""
    if not isinstance(kind, dict):
        return kind
    if kind.get("type") == "struct":
        return [_plain(field["type"]) for field in kind["fields"]]
    return {name: _plain(value) for name, value in kind.items() if not name.startswith(("contains", "valueContains"))}


def _shown(fields: Fields, *, types: bool, nulls: bool) -> str:
    if not fields:
        return "no columns"
    shown = []
    for name, kind, nullable in fields:
        text = name
        if types:
            text += f" {kind if isinstance(kind, str) else kind.get('type', 'struct')}"
        if nulls:
            text += "" if nullable else " not null"
        shown.append(text)
    return ", ".join(shown)
