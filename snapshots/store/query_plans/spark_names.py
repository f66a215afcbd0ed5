"""Columns of the state that Spark has named, and not the query."""

from __future__ import annotations

import re

import pyarrow as pa

from streamstate.snapshots.store.changelog import operator_of
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.plan_table import Plans

_OPERATORS = ("stateStoreSave", "sessionWindowStateStoreSaveExec", "symmetricHashJoin")
"""Operators whose columns Spark names: ``sum``, ``_groupingexpression``, ``field0``, …"""
_SPARKS = re.compile(r"_grouping(expression|mapsort)(_\d+)?|field\d+")


def named_by_spark(schema: pa.Schema) -> bool:
    """Return whether a state table's columns have names of Spark's."""
    operator = operator_of(schema)
    if operator is None:
        return any(_SPARKS.fullmatch(name) for name in schema.names)
    return operator.name in _OPERATORS


def has_unknown_names(layout: Layout, query: str) -> bool:
    """Return whether Spark has named columns of a query's newest epoch, and no plan explains them."""
    manifest = Manifest(layout, query)
    manifest.refresh()
    newest = manifest.newest
    if newest is None or Plans(layout, query).at(newest.epoch) is not None:
        return False
    places = [layout.changelog(query, table) for table in newest.tables]
    return any(named_by_spark(TableVersion(place, required(place)).schema) for place in places)
