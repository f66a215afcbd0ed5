"""Facts that a store has about an epoch's input from Kafka: the ids of its topics, and the number of rows it read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamstate.errors import StreamStateError
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.plan_table import Plans, stores_here
from streamstate.snapshots.store.registry import name_of

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.query_plans.query_plan import QueryPlan


@dataclass(frozen=True)
class KnownInput:
    """Facts about one epoch's input."""

    topics: Mapping[str, str] = field(default_factory=dict)
    """The ids that the topics had, as far as they are known."""
    rows: int | None = None
    """The rows that the epoch read; None if that is not known, or the query reads more than one source."""

    @classmethod
    def of(cls, plan: QueryPlan | None, entry: Entry | None, *, one_source: bool) -> KnownInput:
        """Return what the plan and the manifest's row of an epoch say."""
        rows = entry.input_rows if entry is not None and one_source else None
        return cls({} if plan is None else plan.topics, rows)


class KnownInputs:
    """Facts about the epochs of a query, from a store that has it.

    Args:
        query_id: the query.
        store: the store to look into first. The others are those whose queries were planned in this process.
    """

    def __init__(self, query_id: str, store: Layout | None) -> None:
        self._query_id = query_id
        self._store = store

    def at(self, epoch: int, *, one_source: bool) -> KnownInput:
        """Return the facts about an epoch; empty if no store has the query."""
        if self._found is None:
            return KnownInput()
        plans, manifest = self._found
        manifest.refresh()
        return KnownInput.of(plans.at(epoch), manifest.entries.of(epoch), one_source=one_source)

    @cached_property
    def _found(self) -> tuple[Plans, Manifest] | None:
        for layout in (*([] if self._store is None else [self._store]), *stores_here()):
            try:
                name = name_of(layout, self._query_id)
            except (StreamStateError, OSError):
                if layout is self._store:
                    raise
                continue  # nobody asked for this store, which may be gone
            if name is not None:
                return Plans(layout, name), Manifest(layout, name)
        return None
