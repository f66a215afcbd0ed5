"""Retention drops epochs and leaves the others unchanged, also after crashes and with concurrent captures."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import conftest
import pytest
from conftest import Source, counts, letters
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import compare
from pyspark.sql import SparkSession
from synthetic import START, State, write

import streamstate as ss
from streamstate.errors import (
    EpochDroppedError,
    InvalidArgumentError,
    NaiveTimestampError,
    OvertakenError,
    UnknownEpochError,
    UnknownQueryError,
)
from streamstate.reports import History, StateTable
from streamstate.snapshots.calls.progress_callback import ProgressCallback
from streamstate.snapshots.store.changelog import state_at
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.retention import kept_epochs as plan
from streamstate.snapshots.store.retention.dropping import RetentionReport, retain

pytestmark = pytest.mark.slow

STATES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
HISTORIES = st.lists(st.one_of(STATES, STATES, STATES, st.none()), min_size=1, max_size=14).filter(
    lambda h: h[-1] is not None
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={"last": st.integers(1, 8), "one_in": st.integers(1, 5), "since": st.integers(0, 14)},
).filter(bool)
EXAMPLES = settings(max_examples=7, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Policy = dict[str, int]


def as_state(table: StateTable) -> State:
    """The rows of a state table as a plain dict."""
    return {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}


def run(folder: Path | str, policy: Policy) -> RetentionReport:
    """Run retention; ``since`` is an epoch, which is committed as many minutes after the start."""
    since = policy.get("since")
    timestamp = None if since is None else START + timedelta(minutes=since)
    return retain(folder, "q", last=policy.get("last"), one_in=policy.get("one_in"), since=timestamp)


def expected(captured: list[int], policy: Policy) -> set[int]:
    """The epochs that a policy keeps, by brute force."""
    kept = set(captured[-policy.get("last", 1) :])
    if "since" in policy:
        kept |= {epoch for epoch in captured if epoch >= policy["since"]}
    if "one_in" in policy:
        every = policy["one_in"]
        kept |= {min(other for other in captured if other // every == epoch // every) for epoch in captured}
    return kept


def check(folder: Path | str, states: list[State | None], kept: set[int], *, whole: bool = True) -> None:
    """Check that every kept epoch has the right state, diff and key history, and that the others are unknown."""
    history = ss.open_store(folder)["q"]
    assert history.captured() == sorted(kept)
    epochs = history.epochs()
    keyframes = dict(zip(epochs["epoch"], epochs["keyframes"], strict=True))
    log = Layout.at(folder).changelog("q", "op0")
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


def check_diffs(history: History, states: list[State | None], kept: list[int]) -> None:
    """Check the diff from each kept epoch to the next."""
    for a, b in pairwise(kept):
        old, new, diff = states[a] or {}, states[b] or {}, history.diff(a, b)
        assert set(diff.added["key"]) == new.keys() - old.keys()
        assert set(diff.removed["key"]) == old.keys() - new.keys()
        changed = {row.key: (row.value_old, row.value_new) for row in diff.changed.itertuples()}
        assert changed == {key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}


def check_keys(history: History, states: list[State | None], kept: list[int]) -> None:
    """Check that the key histories have kept epochs only, and the value at each of them."""
    for key in "abcdef":
        key_history = history.key_history(key=key)
        assert set(key_history["epoch"]) <= set(kept)
        values: dict[int, int | None] = {
            row["epoch"]: None if row["change"] == "delete" else row["value"] for row in key_history.to_dict("records")
        }
        value: int | None = None
        for epoch in kept:
            after_gap = any(states[earlier] is None for earlier in range(epoch)) and epoch not in values
            value = values.get(epoch, value)
            if not after_gap:
                assert value == (states[epoch] or {}).get(key)


def check_log(folder: Path | str, states: list[State | None], kept: list[int]) -> None:
    """Check that the log has one row per key and kept epoch, as many as in the manifest, and no needless deletes."""
    from streamstate.snapshots.store.delta.commits import required
    from streamstate.snapshots.store.delta.reading import TableVersion

    place = Layout.at(folder).changelog("q", "op0")
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


@pytest.mark.exhaustive
@EXAMPLES
@given(HISTORIES, POLICIES, st.integers(0, 3), st.integers(1, 4))
def test_kept_epochs_are_unchanged(
    states: list[State | None], policy: Policy, keyframe_every: int, commit_every: int
) -> None:
    """States, diffs and key histories of kept epochs are compared by brute force. A second run drops nothing."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every, commit_every=commit_every)
        captured = [epoch for epoch, state in enumerate(states) if state is not None]
        kept = expected(captured, policy)
        report = run(folder, policy)
        assert (set(report.dropped), report.kept) == (set(captured) - kept, len(kept))
        check(folder, states, kept, whole=bool(report.dropped))
        assert run(folder, policy).dropped == ()
        check(folder, states, kept, whole=bool(report.dropped))


@pytest.mark.exhaustive
@EXAMPLES
@given(HISTORIES, HISTORIES, st.tuples(POLICIES, POLICIES), st.integers(0, 3), st.sampled_from([0, 50_000]))
def test_captures_between_two_runs(
    earlier: list[State | None],
    later: list[State | None],
    policies: tuple[Policy, Policy],
    keyframe_every: int,
    smallest: int,
) -> None:
    """Epochs that are captured after a run are right, before and after another run.

    A dropped keyframe is written again if more than ``smallest`` rows would be read instead.
    """
    states = earlier + later
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_SMALLEST_KEYFRAME", smallest)
        write(Path(folder), earlier, keyframe_every=keyframe_every)
        reader = ss.open_store(folder)["q"]
        run(folder, policies[0])
        kept = expected([epoch for epoch, state in enumerate(earlier) if state is not None], policies[0])
        assert as_state(reader.at(max(kept)).table()) == states[max(kept)]
        write(Path(folder), states, keyframe_every=keyframe_every)
        kept |= {epoch for epoch, state in enumerate(states) if state is not None and epoch >= len(earlier)}
        check(folder, states, kept, whole=False)
        kept = expected(sorted(kept), policies[1])
        dropped = run(folder, policies[1]).dropped
        check(folder, states, kept, whole=bool(dropped))
        assert {epoch: as_state(reader.at(epoch).table()) for epoch in kept} == {epoch: states[epoch] for epoch in kept}


LONG: list[State | None] = [
    {"a": 0, "b": 0},
    {"a": 1, "b": 0},
    {"a": 1, "b": 1, "c": 1},
    {"a": 2, "b": 1},
    None,
    {"a": 3, "b": 1, "d": 4},
    {"a": 3, "d": 4},
    {"a": 4, "d": 4, "e": 5},
    {"a": 4, "d": 5},
    {"a": 5, "d": 5, "f": 6},
    {"a": 5, "d": 6, "f": 6},
    {"a": 6, "d": 6},
]
CAPTURED = [epoch for epoch, state in enumerate(LONG) if state is not None]
THINNED: Policy = {"last": 3, "one_in": 4}
KEPT = expected(CAPTURED, THINNED)


class Killed(BaseException):
    """Interrupts a run of retention, like a killed process."""


def steps(folder: Path, policy: Policy) -> list[str]:
    """The steps of a run, as reported to its progress callback."""
    write(folder, LONG, keyframe_every=5)
    reported: list[str] = []

    def progress(step: str, _share: float | None) -> None:
        reported.append(step)

    retain(folder, "q", last=policy["last"], one_in=policy.get("one_in"), progress=progress)
    return reported


def kill_at(step: int) -> ProgressCallback:
    """A progress callback that interrupts the run before its n-th step."""
    numbers = iter(range(step + 1))

    def progress(_message: str, _share: float | None) -> None:
        if next(numbers) == step:
            raise Killed

    return progress


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("policy", "count"),
    [
        pytest.param(THINNED, 3, marks=pytest.mark.exhaustive),
        pytest.param({"last": 4}, 4, marks=pytest.mark.exhaustive),
        ({"last": 1}, 4),
    ],
)
def test_a_run_that_is_killed_between_two_commits(tmp_path: Path, policy: Policy, count: int) -> None:
    """All epochs in the manifest are right, for open and new readers. The next run completes the killed one."""
    to_keep = expected(CAPTURED, policy)
    assert len(steps(tmp_path / "whole", policy)) == count  # a keyframe at the new first epoch, manifest, log, files
    for step in range(count):
        folder = tmp_path / str(step)
        write(folder, LONG, keyframe_every=5)
        reader = ss.open_store(folder)["q"]
        assert as_state(reader.at(0).table()) == LONG[0]
        with pytest.raises(Killed):
            retain(folder, "q", last=policy["last"], one_in=policy.get("one_in"), progress=kill_at(step))
        kept = set(reader.captured())
        assert kept in (set(CAPTURED), to_keep)
        check(folder, LONG, kept, whole=False)
        assert {epoch: as_state(reader.at(epoch).table()) for epoch in kept} == {epoch: LONG[epoch] for epoch in kept}
        # Any later run completes it, whatever its policy.
        retain(folder, "q", since=timedelta(days=9999), last=1)
        check(folder, LONG, kept, whole=kept == to_keep)
        retain(folder, "q", last=policy["last"], one_in=policy.get("one_in"))
        check(folder, LONG, to_keep)


@pytest.mark.exhaustive
def test_captures_and_readers_during_a_run(tmp_path: Path) -> None:
    """Epochs that are captured between the commits of a run are kept, and readers find the right states."""
    total = len(steps(tmp_path / "whole", THINNED))
    folder = tmp_path / "s"
    states = [*LONG, *({"a": 7 + number, "g": number} for number in range(total))]
    write(folder, LONG, keyframe_every=5)
    histories = [ss.open_store(folder)["q"]]
    reported: list[str] = []

    def progress(step: str, _share: float | None) -> None:
        reported.append(step)
        # Writes the next epoch; its manifest entry has a keyframe from before the run.
        write(folder, states[: len(LONG) + len(reported)], keyframe_every=5)
        histories.append(ss.open_store(folder)["q"])
        for history in histories:
            for epoch in history.captured():
                assert as_state(history.at(epoch).table()) == states[epoch]

    retain(folder, "q", last=3, one_in=4, progress=progress)
    added = set(range(len(LONG), len(LONG) + len(reported)))
    check(folder, states[: len(LONG) + len(reported)], KEPT | added, whole=False)
    retain(folder, "q", last=1)
    check(folder, states[: len(LONG) + len(reported)], {max(added)})


def test_concurrent_runs(tmp_path: Path) -> None:
    """Runs between the steps of another run drop their epochs; the other run continues from the result."""
    write(tmp_path, LONG, keyframe_every=5)
    others = iter([lambda: retain(tmp_path, "q", last=6), lambda: retain(tmp_path, "q", last=5)])

    def progress(_message: str, _share: float | None) -> None:
        next(others, lambda: None)()

    retain(tmp_path, "q", last=3, one_in=4, progress=progress)
    history = ss.open_store(tmp_path)["q"]
    kept = expected(CAPTURED[-5:], THINNED)
    assert set(history.captured()) == kept
    check(tmp_path, LONG, kept)


def test_the_error_for_a_dropped_epoch(tmp_path: Path) -> None:
    """Epochs that were dropped, purged by Spark, or never captured have different errors."""
    write(tmp_path, LONG)
    retain(tmp_path, "q", last=3, one_in=4)
    history = ss.open_store(tmp_path)["q"]
    with pytest.raises(UnknownEpochError, match=r"6 of q was dropped by retention.\n.*nearest captured: 5 and 8"):
        history.at(6)
    with pytest.raises(UnknownEpochError, match="was gone from Spark's checkpoint"):
        history.at(4)
    with pytest.raises(UnknownEpochError, match="is not captured"):
        history.at(99)
    with pytest.raises(UnknownEpochError, match="retention dropped the epochs after epoch 5"):
        history.at(timestamp=START + timedelta(minutes=6.5))
    assert history.at(timestamp=START + timedelta(minutes=9.5)).epoch == 9


def test_an_existing_snapshot_of_a_dropped_epoch(tmp_path: Path) -> None:
    """It can be read during the grace period, and afterwards only if it has been read before."""
    write(tmp_path, LONG)
    history = ss.open_store(tmp_path)["q"]
    was_read, unread, late = (history.at(3) for _ in range(3))
    assert as_state(was_read.table()) == LONG[3]
    fresh = ss.open_store(tmp_path)["q"].at(3)
    retain(tmp_path, "q", last=2)
    assert history.captured() == [10, 11]
    assert as_state(history.live().table()) == LONG[11]
    assert [as_state(snapshot.table()) for snapshot in (was_read, unread, fresh)] == [LONG[3]] * 3
    assert retain(tmp_path, "q", last=2, grace=timedelta(0)).files_deleted > 0
    assert as_state(was_read.table()) == LONG[3]
    with pytest.raises(EpochDroppedError, match="Epoch 3 of q was dropped by retention"):
        late.table()
    assert as_state(history.live().table()) == LONG[11]


def test_a_log_is_not_read_with_an_outdated_manifest(tmp_path: Path) -> None:
    """A reader with a manifest from before the run gets an error, not the rows of a dropped keyframe."""
    write(tmp_path, LONG)
    retain(tmp_path, "q", last=2)
    with pytest.raises(OvertakenError, match="Read it again"):
        state_at(Layout.at(tmp_path).changelog("q", "op0"), ["key"], 11, None, ["key", "value"], generation=0)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """The report has the epochs that would be dropped, and the maximum number of freed bytes."""
    write(tmp_path, LONG)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    report = retain(tmp_path, "q", last=2, dry_run=True)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    assert (report.dropped, report.kept, report.dry_run) == (tuple(CAPTURED[:-2]), 2, True)
    assert report.bytes_freed > 0
    assert "would drop 9 epochs, 2 kept; at most" in str(report)
    assert retain(tmp_path, "q", last=2).dropped == report.dropped


def test_files_are_deleted_after_the_grace_period(tmp_path: Path) -> None:
    """The report has the number of deleted files and freed bytes."""
    states: list[State | None] = [{f"k{n}": epoch for n in range(2000)} for epoch in range(30)]
    write(tmp_path, states)
    log = tmp_path / "q" / "op0"
    report = retain(tmp_path, "q", last=2, grace=timedelta(0))
    # The age of removed files is in whole hours, so files removed by this run are deleted by the next one.
    second = retain(tmp_path, "q", last=2, grace=timedelta(0))
    remaining = sum(path.stat().st_size for path in log.glob("*.parquet"))
    assert report.files_deleted + second.files_deleted >= 28
    assert report.bytes_freed > 10 * remaining
    check(tmp_path, states, {28, 29})


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        ({}, InvalidArgumentError, "Say which epochs to keep"),
        ({"last": 0}, InvalidArgumentError, "Invalid last=0"),
        ({"one_in": True}, InvalidArgumentError, "Invalid one_in=True"),
        ({"since": "yesterday"}, InvalidArgumentError, "a duration such as 2d"),
        ({"since": "0h"}, InvalidArgumentError, "longer than zero"),
        ({"since": "2026-03-01T12:00:00"}, NaiveTimestampError, "no time zone"),
        ({"since": 3}, InvalidArgumentError, "a datetime, a timedelta or a string"),
    ],
)
def test_an_invalid_policy_is_rejected(
    tmp_path: Path, policy: dict[str, Any], error: type[Exception], message: str
) -> None:
    """No epoch is dropped."""
    write(tmp_path, LONG[:2])
    with pytest.raises(error, match=message):
        retain(tmp_path, "q", **policy)
    with pytest.raises(UnknownQueryError, match="q"):
        retain(tmp_path, "nope", last=1)
    assert ss.open_store(tmp_path)["q"].captured() == [0, 1]


def test_since_is_a_timestamp_or_a_duration(tmp_path: Path) -> None:
    """A timestamp has a time zone, a duration counts back from now. The newest epoch is always kept."""
    write(tmp_path, LONG)
    assert retain(tmp_path, "q", since="2026-01-01T01:09:00+01:00").kept == 3
    assert retain(tmp_path, "q", since=timedelta(hours=1)).kept == 1
    assert ss.open_store(tmp_path)["q"].captured() == [11]


def test_kept_epochs_equal_sparks_reader(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Retention runs between the passes of a background capture, and every kept epoch has the state of the query."""
    for epoch in range(8):
        source.add(letters(epoch))
    conftest.run(counts(source), tmp_path / "c")
    capture = ss.Checkpoint(tmp_path / "c").follow(tmp_path / "s", "q", spark=spark)
    assert capture.wait(timeout=300) == 7
    assert ss.open_store(tmp_path / "s")["q"].retain(last=2, one_in=3).dropped == (1, 2, 4, 5)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 4
    for epoch in range(8, 11):
        source.add(letters(epoch))
    conftest.run(counts(source), tmp_path / "c")
    assert capture.wait(epoch=10, timeout=300) == 10
    assert ss.open_store(tmp_path / "s")["q"].retain(last=2).dropped == (0, 3, 6, 7, 8)
    source.add(letters(11))
    conftest.run(counts(source), tmp_path / "c")
    assert capture.wait(epoch=11, timeout=300) == 11
    capture.stop()
    history = ss.open_store(tmp_path / "s")["q"]
    assert history.captured() == [9, 10, 11]
    assert compare(spark, tmp_path / "c", history) == 3
    ss.open_store(tmp_path / "s")["q"].retain(last=1)
    source.add(letters(12))
    conftest.run(counts(source), tmp_path / "c")
    ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "q", spark=spark)
    assert compare(spark, tmp_path / "c", history) == 2
