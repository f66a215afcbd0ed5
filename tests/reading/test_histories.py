"""Reading agrees with brute force on random histories: any epoch, any two epochs, any key."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import State, write

import streamstate as ss
from streamstate.errors import UnknownEpochError
from streamstate.reports import History, StateTable
from streamstate.snapshots.store import merging
from streamstate.snapshots.store.changelog import state_at
from streamstate.snapshots.store.delta import maintenance
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect import captured_query
from streamstate.state_inspect.temporal_index import interval_table

STATES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
HISTORIES = st.lists(st.one_of(STATES, STATES, STATES, st.none()), min_size=1, max_size=8).filter(
    lambda h: h[-1] is not None
)
EXAMPLES = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def as_state(table: StateTable) -> State:
    """A captured table as a plain dict."""
    return {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}


@pytest.mark.slow
@EXAMPLES
@given(HISTORIES, st.integers(0, 3), st.integers(1, 4))
def test_any_epoch_any_diff_any_key(states: list[State | None], keyframe_every: int, commit_every: int) -> None:
    """States, diffs and key histories match the history that was written."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every, commit_every=commit_every)
        history = ss.open_store(folder)["q"]
        known = {epoch: state for epoch, state in enumerate(states) if state is not None}
        assert history.captured() == list(known)
        for epoch, state in known.items():
            assert as_state(history.at(epoch).table()) == state
            assert history.at(epoch).table().count() == len(state)
        check_rebuilding(folder, history, known)
        check_diffs(history, known)
        check_keys(history, states)
        for epoch in set(range(len(states))) - set(known):
            with pytest.raises(UnknownEpochError, match="nearest captured"):
                history.at(epoch)


@pytest.mark.exhaustive
@EXAMPLES
@given(
    HISTORIES,
    st.integers(0, 3),
    st.randoms(use_true_random=False),
    st.sampled_from([-1, 2, 500]),
    st.sampled_from([-1, 500_000]),
    st.integers(2, 64),
)
def test_epochs_can_be_read_in_any_order(
    states: list[State | None], keyframe_every: int, random: Random, few: int, soon_read: int, merged: int
) -> None:
    """Answers do not depend on which epoch is read first or in which direction.

    Small new epochs are added differently from large ones; keys are read from the files, or with all others; files are
    merged, sorted by key, while the history grows.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as changed:
        changed.setattr(interval_table, "FEW_ROWS", few)
        changed.setattr(captured_query, "_SOON_READ", soon_read)
        changed.setattr(maintenance, "_MANY", merged)
        changed.setattr(merging, "_SMALL_KEYFRAME", random.choice([0, 10]))
        known = {epoch: state for epoch, state in enumerate(states) if state is not None}
        history: History | None = None
        for shown in sorted({random.randint(1, len(states)), len(states)}):
            # The reader opens the first part of the history; the rest arrives while it reads.
            write(Path(folder), states[:shown], keyframe_every=keyframe_every, tidy_every=random.choice([None, 1, 2]))
            history = history or ss.open_store(folder)["q"]
            visible = [epoch for epoch in known if epoch < shown]
            for epoch in random.choices(visible, k=4) if visible else []:
                assert as_state(history.at(epoch).table()) == known[epoch]
            if shown < len(states) and visible:
                check_keys(history, states[:shown])
        assert history is not None
        check_diffs(history, known)
        check_keys(history, states)


def check_rebuilding(folder: str, history: History, known: dict[int, State]) -> None:
    """Rebuilding an epoch from the changelog alone gives the same state."""
    keyframes = dict(zip(history.epochs()["epoch"], history.epochs()["keyframes"], strict=True))
    for epoch, state in known.items():
        rows = state_at(
            Layout.at(folder).changelog("q", "op0"), ["key"], epoch, keyframes[epoch]["op0"], ["key", "value"]
        )
        assert {row["key"]: row["value"] for row in rows.to_pylist()} == state


def check_diffs(history: History, known: dict[int, State]) -> None:
    """Every pair of epochs, in both directions."""
    for a, old in known.items():
        for b, new in known.items():
            diff = history.diff(a, b)
            assert set(diff.added["key"]) == new.keys() - old.keys()
            assert set(diff.removed["key"]) == old.keys() - new.keys()
            changed = {row.key: (row.value_old, row.value_new) for row in diff.changed.itertuples()}
            assert changed == {key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}


def check_keys(history: History, states: list[State | None]) -> None:
    """A key's history has each of its changes, and after a gap its keyframe."""
    for key in "abcdef":
        expected: list[tuple[int, str, int | None]] = []
        for epoch, state in enumerate(states):
            before = states[epoch - 1] if epoch else {}
            if state is None:
                continue
            if before is None:
                expected += [(epoch, "keyframe", state[key])] if key in state else []
            elif state.get(key) != before.get(key):
                expected += [(epoch, "put", state[key]) if key in state else (epoch, "delete", None)]
        found = history.key_history(key=key)
        rows = [(row.epoch, row.change, None if row.change == "delete" else row.value) for row in found.itertuples()]
        assert rows == expected


@pytest.mark.slow
@EXAMPLES
@given(HISTORIES, HISTORIES)
def test_a_snapshot_is_isolated_from_later_captures(earlier: list[State | None], later: list[State | None]) -> None:
    """Epochs captured later do not change a snapshot that is held."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), earlier)
        history = ss.open_store(folder)["q"]
        held = history.live()
        table = held.table()
        write_more(Path(folder), earlier, later)
        assert history.live().epoch == len(earlier + later) - 1
        history.live().table().count()
        assert as_state(table) == earlier[-1]
        assert as_state(held.table()) == earlier[-1]
        assert history.live().epoch > held.epoch


def write_more(path: Path, earlier: list[State | None], later: list[State | None]) -> None:
    """Write the whole history again; existing epochs stay as they are, because commits are idempotent."""
    write(path, earlier + later)
