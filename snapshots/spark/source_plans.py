"""Plans of what a streaming source delivers between two offsets, of both interfaces that Spark has for sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamstate.snapshots.spark.catalyst import scala_list
from streamstate.snapshots.spark.private_classes import called, copied, has_class, new, scala_object

_DATASOURCES = "org.apache.spark.sql.execution.datasources."
_SCAN_RELATION = f"{_DATASOURCES}v2.StreamingDataSourceV2ScanRelation"
# Places of the arguments of DataSource and of LogicalRelation.
_PATHS, _SCHEMA, _OPTIONS = 2, 3, 6
_STREAMING = 3


def offset_of(jvm: Any, text: str) -> Any:
    """Return an offset of a source of the first interface."""
    return new(jvm, "org.apache.spark.sql.execution.streaming.runtime.SerializedOffset", text)


def reads_micro_batches(jvm: Any, leaf: Any) -> bool:
    """Return whether Spark reads a source by the second interface; Kafka's has both."""
    capability = jvm.org.apache.spark.sql.connector.catalog.TableCapability.MICRO_BATCH_READ
    return bool(leaf.v1Relation().isEmpty() or leaf.table().capabilities().contains(capability))


def initial_offset(leaf: Any, log: str) -> str:
    """Return the offset from which a source of the second interface would begin, as JSON; its folder is ``log``."""
    stream = leaf.table().newScanBuilder(leaf.extraOptions()).build().toMicroBatchStream(log)
    try:
        return str(stream.initialOffset().json())
    finally:
        stream.stop()


def micro_batch(
    jvm: Any, leaf: Any, log: str, start: str | None, end: str, *, options: Mapping[str, str] | None = None
) -> tuple[Any, Any]:
    """Return the stream of a leaf of the second interface, to be stopped in the end, and the plan of a range of it.

    Args:
        jvm: the JVM.
        leaf: the leaf of an analysed plan.
        log: the folder in which the source may keep a log.
        start: the offset before the first row; None: that of a new query.
        end: the offset of the last row.
        options: options of the source that differ from the leaf's own.
    """
    optional = jvm.scala.Option
    own = _options(jvm, leaf, options or {})
    scan = leaf.table().newScanBuilder(own).build()
    stream = scan.toMicroBatchStream(log)
    first = stream.initialOffset() if start is None else stream.deserializeOffset(start)
    span = optional.apply(first), optional.apply(stream.deserializeOffset(end))
    name = f"{_DATASOURCES}v2.StreamingDataSourceV2Relation"
    if not has_class(jvm, _SCAN_RELATION):  # before Spark 4.0
        return stream, new(jvm, name, leaf.output(), scan, stream, leaf.catalog(), leaf.identifier(), *span)
    catalog = leaf.catalog(), leaf.identifier(), own
    relation = new(jvm, name, leaf.table(), leaf.output(), *catalog, log, optional.empty())
    return stream, new(jvm, _SCAN_RELATION, relation, scan, leaf.output(), stream, *span)


def _options(jvm: Any, leaf: Any, changed: Mapping[str, str]) -> Any:
    if not changed:
        return leaf.extraOptions()
    options = jvm.java.util.HashMap(leaf.extraOptions().asCaseSensitiveMap())
    for name, value in changed.items():
        for other in [other for other in options if other.lower() == name.lower()]:
            options.remove(other)
        options.put(name, value)
    return new(jvm, "org.apache.spark.sql.util.CaseInsensitiveStringMap", options)


def source_options(jvm: Any, source: Any) -> Any:
    """Return the options of a ``DataSource`` as a map that ignores case."""
    return scala_object(jvm, "org.apache.spark.sql.catalyst.util.CaseInsensitiveMap").apply(source.options())


def without_option(options: Any, name: str) -> Any:
    """Return options without one of them."""
    return getattr(options, "$minus")(name)  # `removed` is new in Scala 2.13


def with_options(source: Any, options: Any) -> Any:
    """Return a ``DataSource`` with other options."""
    return copied(source, {_OPTIONS: options})


def relation_of(relation: Any, *, streaming: bool) -> Any:
    """Return a ``LogicalRelation`` as that of a stream or of a batch, which reads only the columns in use."""
    return copied(relation, {_STREAMING: streaming})


def no_files(jvm: Any, source: Any) -> Any:
    """Return the relation of a stream of files, a ``DataSource``, over no files: none is listed."""
    schema = jvm.scala.Option.apply(source.sourceInfo().schema())
    options = without_option(source.options(), "path")
    empty = copied(source, {_PATHS: scala_list(jvm, []), _SCHEMA: schema, _OPTIONS: options})
    check_files, is_streaming = False, True
    resolved = called(empty, "resolveRelation", check_files)
    return scala_object(jvm, f"{_DATASOURCES}LogicalRelation").apply(resolved, is_streaming)
