"""Functions that read shared variables, when an epoch's input is read again: they see the versions of then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamstate.snapshots.bindings import EPOCH, PROPERTY, Binding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def as_then(spark: SparkSession, query_id: str, epoch: int, binding: Binding | None) -> Iterator[None]:
    """Within the block, functions that read shared variables see those of an epoch; what they contribute is ignored.

    Args:
        spark: the session that runs them.
        query_id: the id of the epoch's query.
        epoch: the epoch.
        binding: what it was bound to; None if its query has no shared variables.
    """
    if binding is None:
        yield
        return
    run = {
        "checkpoint": "",
        "query": query_id,
        "number": -1,
        "transport": binding.at,
        "bindings": "",
        "variables": sorted(binding.versions),
        "bound": json.dumps(binding.offset()),
    }
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in (PROPERTY, EPOCH)}
    context.setLocalProperty(PROPERTY, json.dumps(run))
    context.setLocalProperty(EPOCH, str(epoch))
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type] # None removes it
