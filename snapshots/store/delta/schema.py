"""Changing a table's columns: a restarted query may add columns and widen types."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, TableFeatures
from deltalake.exceptions import DeltaError

from streamstate.errors import StoreError
from streamstate.snapshots.store.delta.data_files import DataFile, DataFileWriter, delete_files
from streamstate.snapshots.store.delta.place import Place, synced
from streamstate.snapshots.store.delta.reading import TableVersion

# Log checkpoints are written in commits, where they are synced and sealed.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def created_with(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a table can be created with; :func:`complete` adds the others.

    deltalake 1.6 declares Delta's feature for times without a zone, unless only maps have them.
    """
    return pa.schema([field for field in schema if not _has_local_times(field.type, within_map=True)])


def complete(place: Place, table: DeltaTable, schema: pa.Schema) -> None:
    """Give a new table the columns that :func:`created_with` left out, each in its place."""
    _declare_local_times(table, schema)
    _rewrite(place, table, schema)


def _declare_local_times(table: DeltaTable, schema: pa.Schema) -> None:
    if any(_has_local_times(field.type) for field in schema) and not table.protocol().reader_features:
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            post_commithook_properties=NO_HOOKS,
        )


def _has_local_times(kind: pa.DataType, *, within_map: bool = False) -> bool:
    """Return whether values have times without a zone, or only maps in them."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None and not within_map
    if pa.types.is_map(kind):
        return any(_has_local_times(part) for part in (kind.key_type, kind.item_type))
    if pa.types.is_list(kind):
        return _has_local_times(kind.value_type, within_map=within_map)
    return pa.types.is_struct(kind) and any(_has_local_times(field.type, within_map=within_map) for field in kind)


def merged(now: pa.Schema, target: pa.Schema, place: Place) -> pa.Schema:
    """Return the table's schema, with the columns that it lacks at the end and each type wide enough for both.

    Raises:
        StoreError: a column's old and new type have no common type.
    """
    fields = []
    for field in now:
        at = target.get_field_index(field.name)
        fields.append(field if at < 0 else field.with_type(_wider(field, target.field(at), place)))
    missing = [field.with_nullable(nullable=True) for field in target if field.name not in now.names]
    return pa.schema([*fields, *missing])


def change(place: Place, table: DeltaTable, schema: pa.Schema) -> bool:
    """Give a table a schema that :func:`merged` made; False if another commit came in between.

    New columns are null in the existing rows. For a wider type the rows are written again: few Delta readers accept
    files whose types differ from the table's.
    """
    now = TableVersion(place, table).schema
    try:
        if [field.type for field in now] == [field.type for field in schema][: len(now)]:
            _declare_local_times(table, schema)
            fields = [Field.from_arrow(field) for field in list(schema)[len(now) :]]
            table.alter.add_columns(fields, post_commithook_properties=NO_HOOKS)
        else:
            _rewrite(place, table, schema)
    except (DeltaError, OSError, ValueError) as error:
        current = DeltaTable(place.client_uri, storage_options=place.storage_options)
        if current.version() == table.version():
            raise StoreError(
                f"The columns of {place} could not be changed: {error}\nIts rows are unchanged."
            ) from error
        return False
    return True


def _rewrite(place: Place, table: DeltaTable, schema: pa.Schema) -> None:
    version = TableVersion(place, table)
    files: list[DataFile] = []
    try:
        for old in version.files(schema.names[0]):
            with DataFileWriter(place, schema) as writer:
                for batch in version.scan_files([old]):
                    writer.write(batch)
            files += [] if writer.file is None else [writer.file]
        if place.folder is not None:
            synced(place.folder)
        table.create_write_transaction(
            [file.as_action() for file in files],
            "overwrite",
            Schema.from_arrow(schema),
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )
    except BaseException:
        current = DeltaTable(place.client_uri, storage_options=place.storage_options)
        held = {uri.rsplit("/", 1)[-1] for uri in current.file_uris()}
        delete_files(place, [file.path for file in files if file.path not in held])
        raise


def _wider(old: pa.Field, new: pa.Field, place: Place) -> pa.DataType:
    if old.type == new.type:
        return old.type
    both = [pa.schema([pa.field("column", field.type)]) for field in (old, new)]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except pa.ArrowException as error:
        raise StoreError(
            f"Column {old.name!r} of {place} has type {old.type}, but the query's state now has type {new.type}, and"
            " the two have no common type.\nCapture the query under another name from now on, or into another store."
        ) from error
