"""States that only grow: Spark removes none of their rows, and the captured epochs show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH
from streamstate.snapshots.store.changelog import DELETE
from streamstate.snapshots.store.manifest_summary import FEWEST, WINDOW, Growth
from streamstate.state_inspect.advice.advice import Advice
from streamstate.state_inspect.advice.kept_states import KeptState
from streamstate.state_inspect.captured_query import CapturedQuery

Reads = Callable[[str], bool]
"""True for the state tables that may be read."""

_SLOWED = 4
"""A state that grew this many times less in the later half of the epochs is about to have all its keys."""


def growth_advice(query: CapturedQuery, kept: Iterable[KeptState], since: int, reads: Reads) -> Iterator[Advice]:
    """Advise on states kept since an epoch that grew and lost no row; ``reads`` says which may be counted."""
    captured = [epoch for epoch in query.captured() if epoch >= since][-WINDOW:]
    if len(captured) < FEWEST:
        return
    first, middle, last = captured[0], captured[len(captured) // 2], captured[-1]
    for state in kept:
        rows = _rows(query, state.tables, (first, middle, last), reads)
        if rows is None or not _goes_on(rows) or not _lost_none(query, state, (first + 1, last), reads):
            continue
        yield _only_grows(state, rows, first, last)


def growth_advice_in(growth: Growth, kept: Iterable[KeptState]) -> Iterator[Advice]:
    """Advise as :func:`growth_advice` where no state may be read, by the rows that capture has counted."""
    for state in kept:
        rows = growth.of(state.tables)
        # Whether user code has removed rows, only the state says.
        if rows is not None and _goes_on(rows) and not state.by_user_code:
            yield _only_grows(state, rows, growth.epochs[0], growth.epochs[-1])


def _only_grows(state: KeptState, rows: Sequence[int], first: int, last: int) -> Advice:
    names = " and ".join(state.tables)
    does = "has not shrunk so far" if state.by_user_code else "can never shrink"
    evidence = f"It grew from {rows[0]:,} rows at epoch {first} to {rows[-1]:,} at epoch {last}, and lost none."
    return Advice("only_grows", f"{names} {does}, because {state.why}.", evidence, last)


def _lost_none(query: CapturedQuery, state: KeptState, epochs: tuple[int, int], reads: Reads) -> bool:
    """Return True if no row was removed in some epochs, or if that is not read and no user code removes rows."""
    if all(map(reads, state.tables)):
        return not any(removed_rows(query, table, *epochs) for table in state.tables)
    return not state.by_user_code


def _goes_on(rows: Sequence[int]) -> bool:
    """Return True if a state grew in both halves of the epochs, and did not slow down much."""
    earlier, later = rows[1] - rows[0], rows[2] - rows[1]
    return later > 0 and later * _SLOWED >= earlier


def _rows(
    query: CapturedQuery, tables: Sequence[str], epochs: tuple[int, int, int], reads: Reads
) -> tuple[int, int, int] | None:
    """Return the rows of some tables together at three epochs; None if they are not known."""
    totals = [0, 0, 0]
    for table in tables:
        entries = [entry for epoch in epochs if (entry := query.known_entries.of(epoch)) and table in entry.tables]
        if len(entries) < len(epochs):
            return None
        if reads(table):
            counts = query.counted_rows(entries, table)
        else:
            known = {entry.epoch: entry.tables[table].rows for entry in query.with_counts(entries)}
            counts = {epoch: rows for epoch, rows in known.items() if rows is not None}
        if len(counts) < len(epochs):
            return None
        totals = [total + counts[epoch] for total, epoch in zip(totals, epochs, strict=True)]
    return totals[0], totals[1], totals[2]


def removed_rows(query: CapturedQuery, table: str, first: int, last: int) -> int:
    """Return how many rows of a state table were removed from one epoch to another, both included, by its files."""
    version = query.changelog(table).version
    reader = version.scan(EPOCH, first, last, columns=[EPOCH], where=pc.field(CHANGE) == DELETE)
    return sum(batch.num_rows for batch in reader)
