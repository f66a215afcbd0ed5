"""A manifest's entries are a sequence, whatever they are computed from."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from streamstate.snapshots.store.entries import Entries, Entry, TableEntry, as_rows
from streamstate.snapshots.store.layout import CAPTURED, MANIFEST

COUNTS = st.none() | st.integers(0, 9)
TABLES = st.dictionaries(
    st.sampled_from(["op0", "op1", "op2"]), st.builds(TableEntry, COUNTS, st.integers(0, 9), COUNTS, st.just(2))
)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def entry(epoch: int, tables: dict[str, TableEntry] | None) -> Entry:
    """An epoch with some tables; a gap if there is None."""
    if tables is None:
        return Entry.gap(epoch)
    return Entry(epoch, CAPTURED, committed_at=MOMENT, captured_at=MOMENT, tables=tables, generation=2)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Entries with gaps, and with epochs that retention dropped."""
    epochs = sorted(draw(st.sets(st.integers(0, 300), max_size=150)))
    few = draw(st.lists(st.none() | TABLES, min_size=1, max_size=20))
    return [entry(epoch, few[at % len(few)]) for at, epoch in enumerate(epochs)]


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(0, 150), st.booleans())
def test_entries_are_what_was_written(written: list[Entry], cut: int, looked_at: bool) -> None:
    """In order, by epoch and in columns; also if some were looked at before the others were added."""
    first = Entries(as_rows(written[:cut][::-1]), 2)
    if looked_at:
        assert first == written[:cut]
        assert first.facts("op0").table == "op0"
    entries = first.followed_by(Entries(as_rows(written[cut:]), 2))
    assert entries == written
    assert [*reversed(entries)] == written[::-1]
    assert entries[3:90:7] == written[3:90:7]
    assert entries.captured == [one.epoch for one in written if one.captured]
    assert {*entries.tables} == {name for one in written for name in one.tables}
    assert entries.newest == next((one for one in reversed(written) if one.captured), None)
    assert entries.values("committed_at") == [one.committed_at for one in written]
    by_epoch = {one.epoch: one for one in written}
    facts = entries.facts("op0")
    for epoch in range(-1, 302):
        known = by_epoch.get(epoch)
        assert entries.of(epoch) == known
        assert entries.has_captured(epoch) == (known is not None and known.captured)
        table = None if known is None else known.tables.get("op0")
        assert facts.has(epoch) == (table is not None)
        found = facts.rows_at(epoch), facts.keyframe_of(epoch), facts.changes_between(epoch - 1, epoch)
        assert found == ((None, None, 0) if table is None else (table.rows, table.keyframe, table.changes))


def test_no_entries() -> None:
    """As before the first epoch."""
    none = Entries(MANIFEST.empty_table())
    assert not none
    assert (none.newest, none.of(0), none.captured, none.tables, [*none]) == (None, None, [], [], [])
    assert not none.facts("op0").has(0)
