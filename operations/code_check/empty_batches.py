"""A streaming plan whose sources of version 1 have delivered a batch without rows.

Spark plans a batch over relations that it puts in the place of such sources. Over them, it infers otherwise than over
the sources themselves whether columns can be null, and a state's schema shows the difference.
"""

from __future__ import annotations

from typing import Any

from streamstate.snapshots.spark.catalyst import each, kind_of, scala_list, scala_object
from streamstate.state_inspect.inputs.epoch_plan import with_leaves

_DATASOURCES = "org.apache.spark.sql.execution.datasources."


def with_empty_batches(jvm: Any, analyzed: Any) -> Any:
    """Return the plan over empty batches of its sources."""
    leaves = [leaf for leaf in each(analyzed.collectLeaves()) if kind_of(leaf) == "StreamingRelation"]
    return with_leaves(jvm, analyzed, [(leaf, _projected(jvm, leaf)) for leaf in leaves])


def _projected(jvm: Any, leaf: Any) -> Any:
    """Return a batch under the columns of the source, as Spark projects it."""
    catalyst, nothing = jvm.org.apache.spark.sql.catalyst, jvm.scala.Option.empty()
    columns = list(each(leaf.output()))
    batch = _no_files(jvm, leaf) if str(leaf.sourceName()).startswith("FileSource") else leaf.newInstance()
    if len(columns) != batch.output().size():  # it also has the column _metadata
        batch = leaf.newInstance()
    aliases = [
        catalyst.expressions.Alias(
            read, column.name(), column.exprId(), scala_list(jvm, []), nothing, scala_list(jvm, [])
        )
        for column, read in zip(columns, each(batch.output()), strict=True)
    ]
    return catalyst.plans.logical.Project(scala_list(jvm, aliases), batch)


def _no_files(jvm: Any, leaf: Any) -> Any:
    """Return a batch of a file source, without files: none is listed."""
    source = leaf.dataSource()
    schema = jvm.scala.Option.apply(source.sourceInfo().schema())
    options = source.options().removed("path")
    relation = source.copy(
        source.sparkSession(), source.className(), scala_list(jvm, []), schema, source.partitionColumns(),
        source.bucketSpec(), options, source.catalogTable(), jvm.scala.Option.empty(),
    )  # fmt: skip
    check_files, is_streaming = False, True
    usual = (getattr(relation, f"resolveRelation$default${at}")() for at in (2, 3))
    resolved = relation.resolveRelation(check_files, *usual)
    return scala_object(jvm, f"{_DATASOURCES}LogicalRelation").apply(resolved, is_streaming)
