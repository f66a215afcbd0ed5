"""A store with shared variables and a query whose epochs are bound to them, written without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from browser.epochs import entry, record

import streamstate as ss
from streamstate.reports import History, SharedVariable
from streamstate.snapshots.checkpoint.bindings import Binding, Version
from streamstate.snapshots.store.entries import Entry

QUERY = "delays"


class BoundQuery:
    """The query ``delays`` of a store, an epoch after another.

    Args:
        path: the store.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._epochs = 0
        record(path, QUERY, [])

    @property
    def history(self) -> History:
        """The query's history."""
        return ss.open_store(self._path)[QUERY]

    def epoch(self, *variables: SharedVariable, **others: Version | None) -> int:
        """Capture an epoch that sees the newest versions of some variables, and given versions of others."""
        newest: Mapping[str, Version | None] = {variable.name: Version(variable.log.head()) for variable in variables}
        self._add(replace(entry(self._epochs), offsets=_offsets({**newest, **others})))
        return self._epochs - 1

    def gap(self) -> None:
        """Miss an epoch."""
        self._add(Entry.gap(self._epochs))

    def _add(self, made: Entry) -> None:
        record(self._path, QUERY, [made])
        self._epochs += 1


def _offsets(versions: Mapping[str, Version | None]) -> str:
    """The offsets of an epoch as a manifest has them: of a file source, and of the source that binds."""
    return json.dumps(
        ['{"logOffset":3}', json.dumps(Binding(versions, "transport", "store").offset(), separators=(",", ":"))]
    )


def merge(variable: SharedVariable, epoch: int, contribution: Any, *, query: str = f"id of {QUERY}") -> None:
    """Merge what the tasks of an epoch contributed."""
    variable.log.merge(query, epoch, contribution, 2)
    variable.record()
