"""The formats of a query's state tables at an epoch, read without Spark.

What Spark's readers return of a key and a value is the same as what is stored, with two exceptions: the keys of a map
variable are stored as a struct of the grouping key and the map's key, timers as a struct of the grouping key and the
time, and both are returned as two columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamstate.errors import DamagedCheckpointError, UntrustedCheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.arrow_types import check_supported
from streamstate.snapshots.checkpoint.decoding.failures import (
    ChangelogError,
    DamagedChangelogError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.operator_metadata import pinned, recorded_stores
from streamstate.snapshots.checkpoint.decoding.rocksdb_sst import family_numbers
from streamstate.snapshots.checkpoint.decoding.schema_files import DEFAULT_FAMILY, FamilySchema, family_schemas
from streamstate.snapshots.checkpoint.decoding.state_table_format import KeyEncoding, Part, TableFormat
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, local_path
from streamstate.snapshots.checkpoint.state_tables import JOIN_FORMAT, ListedStore, Shape, StateSource, tables_of

_STORE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS = {
    f"{_PACKAGE}.RocksDBStateStoreProvider": "RocksDB",
    f"{_PACKAGE}.HDFSBackedStateStoreProvider": "HDFS",
}
"""The state store providers whose files are known, by their classes."""
_OPERATORS = {
    "stateStoreSave",
    "StatefulStreamlineAggregate",
    "sessionWindowStateStoreSaveExec",
    "dedupe",
    "dedupeWithinWatermark",
    "globalLimit",
    "applyInPandasWithState",
    "flatMapGroupsWithState",
    "symmetricHashJoin",
    "transformWithStateExec",
    "transformWithStateInPandasExec",
    "transformWithStateInPySparkExec",
}
_PLAIN = (Part("key", of_key=True), Part("value", of_key=False))
_VARIABLES = {
    "ValueState": _PLAIN,
    "ListState": (Part("key", of_key=True), Part("list_element", of_key=False)),
    "MapState": (
        Part("key", of_key=True, path=(0,)),
        Part("user_map_key", of_key=True, path=(1,)),
        Part("user_map_value", of_key=False),
    ),
}
_TIMERS = (Part("key", of_key=True, path=(0,)), Part("expiration_timestamp_ms", of_key=True, path=(1,)))
_ENCODINGS = {
    "NoPrefixKeyStateEncoderSpec": KeyEncoding.ROW,
    "PrefixKeyScanStateEncoderSpec": KeyEncoding.PREFIX,
    "RangeKeyScanStateEncoderSpec": KeyEncoding.RANGE,
    "TimestampAsPrefixKeyStateEncoderSpec": KeyEncoding.TIME_FIRST,
    "TimestampAsPostfixKeyStateEncoderSpec": KeyEncoding.TIME_LAST,
}
_BY_PREFIX = ("NoPrefixKeyStateEncoderSpec", "PrefixKeyScanStateEncoderSpec")
"""The encodings of stores whose schema file has version 1 or 2."""


@dataclass(frozen=True)
class UnsupportedTable:
    """A state table that Spark has to read."""

    reason: str
    """A sentence that says why."""


def table_formats(checkpoint: CheckpointFiles, epoch: int) -> list[TableFormat | UnsupportedTable]:
    """Return the format of each state table at an epoch, in the order of ``sources_in_metadata``.

    They hold until the query restarts, or its state is repartitioned.

    Raises:
        CheckpointError: the operators' metadata is damaged or of an unknown version, or Spark has purged it.
    """
    formats = _Formats(checkpoint, epoch, pinned(checkpoint, epoch))
    stores = recorded_stores(checkpoint, epoch)
    return [
        formats.of(stores, store, source)
        for store in stores
        for source in tables_of(store, formats.conf.get(JOIN_FORMAT, "2"))
    ]


def require_known_types(checkpoint: CheckpointFiles, epoch: int) -> None:
    """Check the schemas of an epoch's state before Spark reads it where it is.

    Raises:
        UntrustedCheckpointError, DamagedCheckpointError: as :func:`check_schema`, or Spark would read a file that
            cannot be looked at.
    """
    for store in recorded_stores(checkpoint, epoch):
        paths = [store.schema_path]
        if store.named_schema_path:
            paths.append(_readable(checkpoint, store.named_schema_path))
        for path in dict.fromkeys(paths):
            check_schema(path, checkpoint.files)


def check_schema(path: str, files: ReadableFiles) -> None:
    """Refuse a schema file with user-defined types that this process has not imported.

    Spark and PySpark load their classes, which the file names, as soon as they read it.

    Raises:
        UntrustedCheckpointError: there is such a type.
        DamagedCheckpointError: it is not one that Spark wrote, so that nobody knows what it names.
    """
    if (content := files.content(path)) is not None:
        with contextlib.suppress(UnsupportedChangelogError):  # nor does Spark know the version
            _parsed(content, path)


def _readable(checkpoint: CheckpointFiles, path: str) -> str:
    """Return a path that metadata has for a schema file, for the checkpoint's files."""
    local = local_path(path)
    if local is not None and local_path(checkpoint.path) is not None:
        return str(local)
    if not path.startswith(f"{checkpoint.path}/"):
        raise UntrustedCheckpointError.file(
            checkpoint.path, f"has the state schema {path!r:.300}, which is not inside it"
        )
    return path


@dataclass
class _Formats:
    """The formats of one epoch's tables; each file is read once."""

    checkpoint: CheckpointFiles
    epoch: int
    conf: dict[str, str]
    _schemas: dict[str, dict[str, FamilySchema]] = field(default_factory=dict)
    _numbers: dict[int, dict[str, int]] = field(default_factory=dict)

    def of(
        self, stores: Sequence[ListedStore], store: ListedStore, source: StateSource
    ) -> TableFormat | UnsupportedTable:
        try:
            return self._format(stores, store, source)
        except ChangelogError as error:
            return UnsupportedTable(str(error))

    def _format(self, stores: Sequence[ListedStore], store: ListedStore, source: StateSource) -> TableFormat:
        provider = self._provider()
        parts = _parts(store, source)
        family = _family(store, source)
        schema = self._schema(store, family or DEFAULT_FAMILY)
        if source.shape is Shape.TIMERS and [field["type"] for field in schema.key["fields"]][1:] != ["long"]:
            raise UnsupportedChangelogError("Timers are stored in an unknown way.")
        check_supported(schema.key)
        check_supported(schema.value)
        encoding, prefix = _key_encoding(store, schema, provider)
        siblings = sorted(sibling.name for sibling in stores if sibling.operator == store.operator)
        return TableFormat(
            operator=store.operator,
            store="" if store.name == "default" else store.name,
            store_index=siblings.index(store.name),
            provider=provider,
            key=schema.key,
            value=schema.value,
            parts=parts,
            key_encoding=encoding,
            prefix=prefix,
            family=family,
            family_id=None if family is None else self._number(store, family),
            several=source.shape is Shape.LIST,
            delimited=self._delimited(),
            row_checksums=self.conf.get(f"{_STORE}.rowChecksum.enabled", "false") == "true",
        )

    def _provider(self) -> str:
        encoding = self.conf.get(f"{_STORE}.encodingFormat", "unsaferow")
        if encoding != "unsaferow":
            raise UnsupportedChangelogError(f"The state is encoded as {encoding!r} ({_STORE}.encodingFormat).")
        name = self.conf.get(f"{_STORE}.providerClass", "")
        if name not in PROVIDERS:
            raise UnsupportedChangelogError(f"The state is in an unknown kind of store, {name!r}.")
        return PROVIDERS[name]

    def _delimited(self) -> bool:
        version = self.conf.get(f"{_STORE}.rocksdb.mergeOperatorVersion", "1")
        if version not in {"1", "2"}:
            raise UnsupportedChangelogError(f"Lists are merged in an unknown way (mergeOperatorVersion {version!r}).")
        return version == "1"

    def _schema(self, store: ListedStore, family: str) -> FamilySchema:
        path = store.schema_path
        if path not in self._schemas:
            content = self.checkpoint.files.content(path)
            if content is None:
                raise UnsupportedChangelogError(f"The state schema {path} is missing.")
            self._schemas[path] = _parsed(content, path)
        if family not in self._schemas[path]:
            raise UnsupportedChangelogError(f"The state schema {path} does not describe {family!r}.")
        schema = self._schemas[path][family]
        if schema.evolved:
            raise UnsupportedChangelogError(f"{family!r} has rows of several schemas, which only Avro can tell apart.")
        return schema

    def _number(self, store: ListedStore, family: str) -> int:
        if store.operator not in self._numbers:
            self._numbers[store.operator] = family_numbers(self.checkpoint, store.operator, self.epoch)
        if family not in self._numbers[store.operator]:
            raise UnsupportedChangelogError(f"The partitions' snapshots do not number {family!r}, or not all alike.")
        return self._numbers[store.operator][family]


def _parsed(content: bytes, path: str) -> dict[str, FamilySchema]:
    """Return the schemas in a file, which Spark cannot read either if it is damaged."""
    try:
        return family_schemas(content, path)
    except DamagedChangelogError as error:
        why = "is not one that Spark wrote" if content else "is empty"
        raise DamagedCheckpointError.file(path, why) from error


def _parts(store: ListedStore, source: StateSource) -> tuple[Part, ...]:
    if store.kind not in _OPERATORS:
        raise UnsupportedChangelogError(f"The operator {store.kind!r} is not known.")
    if source.shape is Shape.TIMERS:
        return _TIMERS
    if "stateVarName" not in source.options:
        return _PLAIN
    kinds = {variable["stateName"]: variable["stateVariableType"] for variable in store.properties["stateVariables"]}
    kind = kinds[source.options["stateVarName"]]
    if kind not in _VARIABLES:
        raise UnsupportedChangelogError(f"The variable is of the unknown kind {kind!r}.")
    return _VARIABLES[kind]


def _family(store: ListedStore, source: StateSource) -> str | None:
    """Return the table's column family; None if the store has only one."""
    if "stateVarName" in source.options:
        return source.options["stateVarName"]
    if source.shape is Shape.TIMERS:
        variables = store.properties["stateVariables"]
        return next(str(each["stateName"]) for each in variables if each["stateVariableType"] == "TimerState")
    return source.options["storeName"] if store.properties.get("useVirtualColumnFamilies") else None


def _key_encoding(store: ListedStore, schema: FamilySchema, provider: str) -> tuple[KeyEncoding, int]:
    """Return the encoding of keys, and the number of columns in their first part."""
    if provider == "HDFS":
        return KeyEncoding.ROW, 0
    encoder = schema.encoder or {"keyStateEncoderType": _BY_PREFIX[store.prefix > 0], "numColsPrefixKey": store.prefix}
    name, ordinals = str(encoder.get("keyStateEncoderType")), encoder.get("orderingOrdinals", [])
    if name not in _ENCODINGS:
        raise UnsupportedChangelogError(f"Keys are encoded in an unknown way, {name!r}.")
    if not isinstance(ordinals, list) or ordinals != [*range(len(ordinals))]:
        raise UnsupportedChangelogError(f"Keys are sorted by columns that are not the first ones, {ordinals!r}.")
    prefix = encoder.get("numColsPrefixKey", len(ordinals))
    if not isinstance(prefix, int) or not 0 <= prefix <= len(schema.key["fields"]):
        raise DamagedChangelogError(f"Keys have a prefix of {prefix!r} columns.")
    return _ENCODINGS[name], prefix
