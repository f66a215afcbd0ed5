"""The change log that is made from Spark's change feed, compared with plain dicts; without Spark."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamstate.snapshots.capture.change_rows import FeedFollower
from streamstate.snapshots.checkpoint.state_tables import Columns
from streamstate.snapshots.spark.state_reader import StateRows
from streamstate.snapshots.store.list_positions import ListLengths

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
    """The log has the last change of each key in an epoch. Its rows fold to the state; nobody counts the live ones."""
    follower, log = FeedFollower(KEYED), dict[tuple[object, ...], int]()
    state: dict[Key, int] = {}
    for first, part in _passes(epochs, cut):
        for changes in follower.changes(_feed(part, first, KEYED), range(first, first + len(part))):
            _keyed(state, epochs[changes.epoch])
            _fold(log, changes.rows)
            assert log == state
            assert changes.live is None


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


@pytest.mark.exhaustive
@settings(deadline=None, max_examples=30)
@given(
    epochs=_events("update", "append", "append", "delete"),
    most=st.sampled_from([2, 4, 1_000]),
    restarts=st.sets(st.integers(0, 5)),
)
def test_lengths_of_lists_come_from_the_log(epochs: list[list[Event]], most: int, restarts: set[int]) -> None:
    """Followers that start later, and ones that remember few lists, give the same changes as one that remembers all."""
    original, log = FeedFollower(LISTS), list[pa.Table]()

    def begun() -> FeedFollower:
        lengths = ListLengths(LISTS.spark_keys, lambda: pa.concat_tables(log), begins_empty=not log, most=most)
        return FeedFollower(LISTS, lengths)

    follower = begun()
    for epoch, events in enumerate(epochs):
        feed = _feed([events], epoch, LISTS)
        (changes,) = original.changes(feed, [epoch])
        if epoch in restarts:
            follower = begun()
        (found,) = follower.changes(feed, [epoch])
        assert found.rows.equals(changes.rows)
        log.append(changes.rows.drop_columns(["v"]))


def test_a_running_follower_reads_the_log_at_most_twice() -> None:
    """First the lengths of the lists that changed, then those of all: new lists need no look-up from then on."""
    reads = []

    def read() -> pa.Table:
        reads.append(1)
        return _list_log(10)

    follower = FeedFollower(LISTS, ListLengths(LISTS.spark_keys, read))
    for epoch in range(1, 6):
        events: list[Event] = [("append", f"{epoch}", 0, 1), ("append", f"new {epoch}", 0, 1)]
        (changes,) = follower.changes(_feed([events], epoch, LISTS), [epoch])
        assert dict(zip(changes.rows["k"].to_pylist(), changes.rows["_position"].to_pylist(), strict=True)) == {
            f"{epoch}": 3,
            f"new {epoch}": 0,
        }
    assert len(reads) == 2


@pytest.mark.parametrize("columns", [KEYED, LISTS])
def test_a_follower_does_not_grow_with_the_keys(columns: Columns) -> None:
    """Its memory after an epoch depends on the changes of that epoch, not on the number of live keys."""
    held = [_held_after(columns, keys) for keys in (1_000, 100_000)]
    assert abs(held[1] - held[0]) < 200_000


def _held_after(columns: Columns, keys: int) -> int:
    """The bytes that a follower holds after 5 epochs of 200 changes each, in a table of so many keys."""
    log = _list_log(keys) if columns is LISTS else None
    events: list[Event] = [("update", f"{key * keys // 1_000}", 0, 1) for key in range(1_000)]
    epochs = [events[start : start + 200] for start in range(0, 1_000, 200)]
    feeds = [_feed([events], epoch, columns) for epoch, events in enumerate(epochs, 1)]
    tracemalloc.start()
    try:
        lengths = None if log is None else ListLengths(columns.spark_keys, lambda: log, most=1_000)
        follower = FeedFollower(columns, lengths)
        for epoch, feed in enumerate(feeds, 1):
            (changes,) = follower.changes(feed, [epoch])
            assert changes.rows.num_rows == (200 if columns is KEYED else 600)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _list_log(lists: int) -> pa.Table:
    """A keyframe of lists with three elements each."""
    count = 3 * lists
    return pa.table(
        {
            "_epoch": pa.repeat(pa.scalar(0, pa.int64()), count),
            "_change": pa.repeat("keyframe", count),
            "k": [f"{number // 3}" for number in range(count)],
            "part": pa.array([{"n": 0}] * count, pa.struct([("n", pa.int64())])),
            "_position": pa.array([number % 3 for number in range(count)], pa.int64()),
        }
    )
