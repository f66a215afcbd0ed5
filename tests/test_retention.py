"""Retention: what stays reads as before, what goes says so, and a crash or a race anywhere changes neither."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import START, State, write

import streamstate as ss
from streamstate.snapshots import retention
from streamstate.snapshots.change_log import state_at
from streamstate.snapshots.errors import UnknownEpochError
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.retention import keep

STATES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
HISTORIES = st.lists(st.one_of(STATES, STATES, STATES, st.none()), min_size=1, max_size=14).filter(
    lambda h: h[-1] is not None
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={"last": st.integers(1, 8), "every": st.integers(1, 5), "since": st.integers(0, 14)},
).filter(bool)
EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Policy = dict[str, int]


def as_state(table: ss.StateTable) -> State:
    """A captured table as a plain dict."""
    return {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}


def run(folder: Path | str, policy: Policy) -> retention.RetentionReport:
    """Run retention; ``since`` is given as an epoch, whose commit is so many minutes after the start."""
    given = dict(policy)
    since = given.pop("since", None)
    return keep(folder, "q", **given, since=None if since is None else START + timedelta(minutes=since))


def expected(captured: list[int], policy: Policy) -> set[int]:
    """The rule, by brute force."""
    kept = set(captured[-policy.get("last", 1) :])
    if "since" in policy:
        kept |= {epoch for epoch in captured if epoch >= policy["since"]}
    if "every" in policy:
        kept |= {min(one for one in captured if one // policy["every"] == e // policy["every"]) for e in captured}
    return kept


def check(folder: Path | str, states: list[State | None], kept: set[int], *, whole: bool = True) -> None:
    """Every epoch that stays is right by every way of reading; the others say that they are gone."""
    history = ss.open_store(folder)["q"]
    assert history.captured() == sorted(kept)
    epochs = history.epochs()
    keyframes = dict(zip(epochs["epoch"], epochs["keyframes"], strict=True))
    log = Layout.at(folder).change_log("q", "op0")
    for epoch in kept:
        state = states[epoch]
        assert as_state(history.at(epoch).table()) == state
        rebuilt = state_at(log, ["key"], epoch, keyframes[epoch]["op0"], ["key", "value"])
        assert rebuilt.num_rows == len(state or {})
        assert {row["key"]: row["value"] for row in rebuilt.to_pylist()} == state
    for epoch in set(range(len(states))) - kept:
        with pytest.raises(UnknownEpochError, match="nearest captured"):
            history.at(epoch)
    check_diffs(history, states, sorted(kept))
    check_keys(history, states, sorted(kept))
    if whole:
        check_log(folder, states, sorted(kept))


def check_diffs(history: ss.History, states: list[State | None], kept: list[int]) -> None:
    """From each epoch that stays to the next."""
    for a, b in zip(kept, kept[1:], strict=False):
        old, new, diff = states[a] or {}, states[b] or {}, history.diff(a, b)
        assert set(diff.added["key"]) == new.keys() - old.keys()
        assert set(diff.removed["key"]) == old.keys() - new.keys()
        changed = {row.key: (row.value_old, row.value_new) for row in diff.changed.itertuples()}
        assert changed == {key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}


def check_keys(history: ss.History, states: list[State | None], kept: list[int]) -> None:
    """A key's history names epochs that stay, and holds the value that each of them has."""
    for key in "abcdef":
        found = history.key_history(key=key)
        assert set(found["epoch"]) <= set(kept)
        rows = {row.epoch: None if row.change == "delete" else row.value for row in found.itertuples()}
        value: int | None = None
        for epoch in kept:
            broken = any(states[one] is None for one in range(epoch)) and epoch not in rows
            value = rows.get(epoch, value)
            if not broken:
                assert value == (states[epoch] or {}).get(key)


def check_log(folder: Path | str, states: list[State | None], kept: list[int]) -> None:
    """The log has rows of epochs that stay alone, as many as the manifest says, and no key that came and went."""
    from streamstate.snapshots.delta.commits import required
    from streamstate.snapshots.delta.reading import TableVersion

    place = Layout.at(folder).change_log("q", "op0")
    rows = TableVersion(place, required(place)).scan("_epoch").read_all().to_pylist()
    assert {row["_epoch"] for row in rows} <= set(kept)
    epochs = ss.open_store(folder)["q"].epochs()
    changes = dict(zip(epochs["epoch"], epochs["changes"], strict=True))
    for before, epoch in zip([None, *kept], kept, strict=False):
        own = [row for row in rows if row["_epoch"] == epoch and row["_change"] != "keyframe"]
        assert len(own) == changes[epoch]["op0"]
        assert len({row["key"] for row in own}) == len(own)
        old = states[before] or {} if before is not None else {}
        assert {row["key"] for row in own if row["_change"] == "delete"} <= old.keys()


@EXAMPLES
@given(HISTORIES, POLICIES, st.integers(0, 3), st.integers(1, 4))
def test_what_stays_reads_as_before(
    states: list[State | None], policy: Policy, keyframe_every: int, commit_every: int
) -> None:
    """States, diffs and key histories of the epochs that stay, by brute force; a second run drops nothing more."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every, commit_every=commit_every)
        captured = [epoch for epoch, state in enumerate(states) if state is not None]
        kept = expected(captured, policy)
        report = run(folder, policy)
        assert (set(report.dropped), report.kept) == (set(captured) - kept, len(kept))
        check(folder, states, kept, whole=bool(report.dropped))
        assert run(folder, policy).dropped == ()
        check(folder, states, kept, whole=bool(report.dropped))
