"""A table's columns follow the state's: a restarted query may bring new columns, and wider types."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import DeltaError

from streamstate.snapshots.delta.data_files import DataFile, DataFileWriter, delete_files
from streamstate.snapshots.delta.place import Place, synced
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.errors import StoreError

# Log checkpoints are written by us, because they too are to be synced and sealed.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def merged(now: pa.Schema, wanted: pa.Schema, place: Place) -> pa.Schema:
    """The table's schema with the columns that it lacks at its end, and each type wide enough for both.

    Raises:
        StoreError: where a column changed its type to one that has no common type with the old.
    """
    fields = []
    for one in now:
        at = wanted.get_field_index(one.name)
        fields.append(one if at < 0 else one.with_type(_wider(one, wanted.field(at), place)))
    lacking = [one.with_nullable(nullable=True) for one in wanted if one.name not in now.names]
    return pa.schema([*fields, *lacking])


def change(place: Place, table: DeltaTable, schema: pa.Schema) -> bool:
    """Give a table a schema that :func:`merged` made; False where another commit came in between.

    New columns are null in the rows that are there. A wider type has them written again: few readers of Delta take
    files of another type than the table's.
    """
    now = TableVersion(place, table).schema
    try:
        if [one.type for one in now] == [one.type for one in schema][: len(now)]:
            fields = [Field.from_arrow(one) for one in list(schema)[len(now) :]]
            table.alter.add_columns(fields, post_commithook_properties=NO_HOOKS)
        else:
            _rewrite(place, table, schema)
    except (DeltaError, OSError, ValueError) as error:
        current = DeltaTable(place.uri, storage_options=place.storage_options)
        if current.version() == table.version():
            raise StoreError(
                f"The columns of {place} could not be changed: {error}\nIts rows are untouched."
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
        current = DeltaTable(place.uri, storage_options=place.storage_options)
        held = {uri.rsplit("/", 1)[-1] for uri in current.file_uris()}
        delete_files(place, [file.path for file in files if file.path not in held])
        raise


def _wider(old: pa.Field, new: pa.Field, place: Place) -> pa.DataType:
    if old.type == new.type:
        return old.type
    both = [pa.schema([pa.field("column", one.type)]) for one in (old, new)]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except pa.ArrowException as error:
        raise StoreError(
            f"Column {old.name!r} of {place} is {old.type}, and the query's state now has {new.type} there, which have"
            " no type in common.\nCapture the query from here on under another name, or into another store."
        ) from error
