"""The change log that is made from Spark's change feed, compared with plain dicts; without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamstate.snapshots.change_rows import FeedFollower
from streamstate.snapshots.operators import Columns
from streamstate.snapshots.state_reader import StateRows

FEED = pa.schema(
    [
        ("_epoch", pa.int64()),
        ("_change", pa.string()),
        ("_partition", pa.int32()),
        ("k", pa.string()),
        ("part", pa.struct([("n", pa.int64())])),
        ("v", pa.int64()),
    ]
)
KEYED = Columns(("k", "part"), ("v",), ())
LISTS = Columns(("k", "part", "_position"), ("v",), ())

Event = tuple[str, str | None, int, int]
"""Change, key, second part of the key, value."""
Key = tuple[str | None, int]


def _events(*changes: str) -> st.SearchStrategy[list[list[Event]]]:
    key = st.sampled_from(["a", "b", "", None])
    event = st.tuples(st.sampled_from(changes), key, st.integers(0, 1), st.integers(0, 99))
    return st.lists(st.lists(event, max_size=12), min_size=1, max_size=6)


def _feed(epochs: Sequence[list[Event]], first: int, columns: Columns) -> StateRows:
    """The events in Spark's order: by partition, then by epoch."""
    rows = [
        (epoch, change, partition, key, {"n": part}, None if change == "delete" else value)
        for partition in (0, 1)
        for epoch, events in enumerate(epochs, first)
        for change, key, part, value in events
        if part == partition
    ]
    arrays = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(FEED)]
    return StateRows(columns, pa.table(arrays, schema=FEED))


def _keyed(state: dict[Key, int], events: list[Event]) -> None:
    for change, key, part, value in events:
        if change == "delete":
            state.pop((key, part), None)
        else:
            state[key, part] = value


def _listed(state: dict[Key, list[int]], events: list[Event]) -> None:
    for change, key, part, value in events:
        if change != "append":
            state.pop((key, part), None)
        if change != "delete":
            state.setdefault((key, part), []).append(value)


def _fold(log: dict[tuple[object, ...], int], rows: pa.Table) -> None:
    """Apply an epoch's rows of the change log; there must be one row per key."""
    seen = set()
    for row in rows.to_pylist():
        key = (row["k"], row["part"]["n"], *([row["_position"]] if "_position" in row else []))
        assert key not in seen
        seen.add(key)
        if row["_change"] == "delete":
            assert row["v"] is None
            log.pop(key, None)
        else:
            log[key] = row["v"]


def _passes(epochs: list[list[Event]], cut: int) -> list[tuple[int, list[list[Event]]]]:
    return [(start, part) for start, part in ((0, epochs[:cut]), (cut, epochs[cut:])) if part]


# Each example starts embedded databases, so deadlines would only measure their startup.
@settings(deadline=None, max_examples=50)
@given(epochs=_events("update", "delete"), cut=st.integers(0, 6))
def test_the_log_of_a_keyed_table_folds_to_its_state(epochs: list[list[Event]], cut: int) -> None:
    """The log has the last change of each key in an epoch. Its rows fold to the state, and live rows are counted."""
    follower, log = FeedFollower(KEYED), dict[tuple[object, ...], int]()
    state: dict[Key, int] = {}
    for first, part in _passes(epochs, cut):
        for changes in follower.changes(_feed(part, first, KEYED), range(first, first + len(part))):
            _keyed(state, epochs[changes.epoch])
            _fold(log, changes.rows)
            assert log == state
            assert changes.live == len(state)


@settings(deadline=None, max_examples=50)
@given(epochs=_events("update", "append", "append", "delete"), cut=st.integers(0, 6))
def test_the_log_of_lists_folds_to_their_elements(epochs: list[list[Event]], cut: int) -> None:
    """An update replaces a list, an append adds an element, a delete removes the list; elements have positions."""
    follower, log = FeedFollower(LISTS), dict[tuple[object, ...], int]()
    state: dict[Key, list[int]] = {}
    for first, part in _passes(epochs, cut):
        for changes in follower.changes(_feed(part, first, LISTS), range(first, first + len(part))):
            _listed(state, epochs[changes.epoch])
            _fold(log, changes.rows)
            assert log == {(*key, index): value for key, values in state.items() for index, value in enumerate(values)}
            assert changes.live == len(log)


@settings(deadline=None, max_examples=30)
@given(epochs=_events("update", "append", "append", "delete"), lists=st.booleans())
def test_a_follower_restored_from_the_log_continues_like_the_original(epochs: list[list[Event]], lists: bool) -> None:
    """A new follower that reads the log gives the same changes as one that saw all epochs."""
    columns = LISTS if lists else KEYED
    original, log = FeedFollower(columns), list[pa.Table]()
    for epoch, events in enumerate(epochs):
        (changes,) = original.changes(_feed([events], epoch, columns), [epoch])
        restored = FeedFollower(columns, log)
        (restored_changes,) = restored.changes(_feed([events], epoch, columns), [epoch])
        assert restored_changes.live == changes.live
        assert restored_changes.rows.equals(changes.rows)
        log.append(changes.rows.drop_columns(["v"]))
        assert FeedFollower(columns, [pa.concat_tables(log)])._live.total == changes.live
