"""Retention: what stays reads as before, what goes says so, and a crash or a race anywhere changes neither."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
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
from streamstate.snapshots.change_log import state_at
from streamstate.snapshots.errors import (
    EpochDroppedError,
    InvalidArgumentError,
    NaiveTimestampError,
    OvertakenError,
    UnknownEpochError,
    UnknownQueryError,
)
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.retention import keeping
from streamstate.snapshots.retention.run import RetentionReport, keep

pytestmark = pytest.mark.slow

STATES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
HISTORIES = st.lists(st.one_of(STATES, STATES, STATES, st.none()), min_size=1, max_size=14).filter(
    lambda h: h[-1] is not None
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={"last": st.integers(1, 8), "every": st.integers(1, 5), "since": st.integers(0, 14)},
).filter(bool)
EXAMPLES = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Policy = dict[str, int]


def as_state(table: ss.StateTable) -> State:
    """A captured table as a plain dict."""
    return {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}


def run(folder: Path | str, policy: Policy) -> RetentionReport:
    """Run retention; ``since`` is given as an epoch, whose commit is so many minutes after the start."""
    since = policy.get("since")
    moment = None if since is None else START + timedelta(minutes=since)
    return keep(folder, "q", last=policy.get("last"), every=policy.get("every"), since=moment)


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
    for a, b in pairwise(kept):
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
        rows: dict[int, int | None] = {
            row["epoch"]: None if row["change"] == "delete" else row["value"] for row in found.to_dict("records")
        }
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


@EXAMPLES
@given(HISTORIES, HISTORIES, st.tuples(POLICIES, POLICIES), st.integers(0, 3), st.sampled_from([0, 50_000]))
def test_run_after_run(
    earlier: list[State | None],
    later: list[State | None],
    policies: tuple[Policy, Policy],
    keyframe_every: int,
    smallest: int,
) -> None:
    """Epochs captured after a run follow what it left, and another run goes on from there.

    ``smallest`` is what makes a dropped keyframe worth writing again.
    """
    states = earlier + later
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "_SMALLEST_KEYFRAME", smallest)
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
THINNED: Policy = {"last": 3, "every": 4}
STAY = expected(CAPTURED, THINNED)


class Killed(BaseException):
    """Ends a run of retention where a process could have been killed."""


def steps(folder: Path, policy: Policy) -> list[str]:
    """The steps of a run."""
    write(folder, LONG, keyframe_every=5)
    said: list[str] = []
    keep(folder, "q", last=policy["last"], every=policy.get("every"), progress=said.append)
    return said


def kill_at(step: int) -> Callable[[str], None]:
    """Progress that ends the run before its n-th step."""
    left = iter(range(step + 1))

    def progress(_: str) -> None:
        if next(left) == step:
            raise Killed

    return progress


@pytest.mark.parametrize(("policy", "count"), [(THINNED, 3), ({"last": 4}, 4), ({"last": 1}, 4)])
def test_killed_between_any_two_commits(tmp_path: Path, policy: Policy, count: int) -> None:
    """Whatever the manifest names afterwards is right, for old readers and new ones; the next run finishes."""
    stay = expected(CAPTURED, policy)
    assert len(steps(tmp_path / "whole", policy)) == count  # a keyframe at a new beginning, manifest, log, files
    for step in range(count):
        folder = tmp_path / str(step)
        write(folder, LONG, keyframe_every=5)
        reader = ss.open_store(folder)["q"]
        assert as_state(reader.at(0).table()) == LONG[0]
        with pytest.raises(Killed):
            keep(folder, "q", last=policy["last"], every=policy.get("every"), progress=kill_at(step))
        kept = set(reader.captured())
        assert kept in (set(CAPTURED), stay)
        check(folder, LONG, kept, whole=False)
        assert {epoch: as_state(reader.at(epoch).table()) for epoch in kept} == {epoch: LONG[epoch] for epoch in kept}
        # Any later run finishes it, whatever it is asked to keep.
        keep(folder, "q", since=timedelta(days=9999), last=1)
        check(folder, LONG, kept, whole=kept == stay)
        keep(folder, "q", last=policy["last"], every=policy.get("every"))
        check(folder, LONG, stay)


def test_captures_and_readers_go_on_meanwhile(tmp_path: Path) -> None:
    """Epochs captured between any two commits of a run are there afterwards, and readers see nothing but the truth."""
    total = len(steps(tmp_path / "whole", THINNED))
    folder = tmp_path / "s"
    states = [*LONG, *({"a": 7 + one, "g": one} for one in range(total))]
    write(folder, LONG, keyframe_every=5)
    histories = [ss.open_store(folder)["q"]]
    said: list[str] = []

    def progress(step: str) -> None:
        said.append(step)
        # Writes what is lacking; its entries name the keyframes of the history as it was.
        write(folder, states[: len(LONG) + len(said)], keyframe_every=5)
        histories.append(ss.open_store(folder)["q"])
        for history in histories:
            for epoch in history.captured():
                assert as_state(history.at(epoch).table()) == states[epoch]

    keep(folder, "q", last=3, every=4, progress=progress)
    seen = set(range(len(LONG), len(LONG) + len(said)))
    check(folder, states[: len(LONG) + len(said)], STAY | seen, whole=False)
    keep(folder, "q", last=1)
    check(folder, states[: len(LONG) + len(said)], {max(seen)})


def test_a_run_meets_another(tmp_path: Path) -> None:
    """Of two runs at once the later one finds what the earlier has done, and goes on from there."""
    write(tmp_path, LONG, keyframe_every=5)
    others = iter([lambda: keep(tmp_path, "q", last=6), lambda: keep(tmp_path, "q", last=5)])

    def progress(_: str) -> None:
        next(others, lambda: None)()

    keep(tmp_path, "q", last=3, every=4, progress=progress)
    history = ss.open_store(tmp_path)["q"]
    kept = expected(CAPTURED[-5:], THINNED)
    assert set(history.captured()) == kept
    check(tmp_path, LONG, kept)


def test_a_dropped_epoch_says_so(tmp_path: Path) -> None:
    """It is told from one that was never captured, and the nearest that stay are named."""
    write(tmp_path, LONG)
    keep(tmp_path, "q", last=3, every=4)
    history = ss.open_store(tmp_path)["q"]
    with pytest.raises(UnknownEpochError, match=r"6 of q was dropped by retention.\n.*nearest captured: 5 and 8"):
        history.at(6)
    with pytest.raises(UnknownEpochError, match="was gone from Spark's checkpoint"):
        history.at(4)
    with pytest.raises(UnknownEpochError, match="is not captured"):
        history.at(99)
    with pytest.raises(UnknownEpochError, match="retention dropped the epochs that follow epoch 5"):
        history.at(timestamp=START + timedelta(minutes=6.5))
    assert history.at(timestamp=START + timedelta(minutes=9.5)).epoch == 9


def test_a_snapshot_that_is_held_outlives_its_epoch(tmp_path: Path) -> None:
    """Read or not, it gives its rows for the grace period; past it, only one that was read before goes on."""
    write(tmp_path, LONG)
    history = ss.open_store(tmp_path)["q"]
    was_read, unread, late = (history.at(3) for _ in range(3))
    assert as_state(was_read.table()) == LONG[3]
    fresh = ss.open_store(tmp_path)["q"].at(3)
    keep(tmp_path, "q", last=2)
    assert history.captured() == [10, 11]
    assert as_state(history.live().table()) == LONG[11]
    assert [as_state(one.table()) for one in (was_read, unread, fresh)] == [LONG[3]] * 3
    assert keep(tmp_path, "q", last=2, grace=timedelta(0)).files_deleted > 0
    assert as_state(was_read.table()) == LONG[3]
    with pytest.raises(EpochDroppedError, match="Epoch 3 of q was dropped by retention"):
        late.table()
    assert as_state(history.live().table()) == LONG[11]


def test_a_log_that_is_ahead_of_the_manifest_is_not_read_by_it(tmp_path: Path) -> None:
    """Who holds a manifest from before a run is told to read it again, not given rows from a keyframe that is gone."""
    write(tmp_path, LONG)
    keep(tmp_path, "q", last=2)
    with pytest.raises(OvertakenError, match="Do it again"):
        state_at(Layout.at(tmp_path).change_log("q", "op0"), ["key"], 11, None, ["key", "value"], generation=0)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """It names the epochs and how many bytes would go at most."""
    write(tmp_path, LONG)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    report = keep(tmp_path, "q", last=2, dry_run=True)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    assert (report.dropped, report.kept, report.dry_run) == (tuple(CAPTURED[:-2]), 2, True)
    assert report.bytes_freed > 0
    assert "would drop 9 epochs, 2 stay; at most" in str(report)
    assert keep(tmp_path, "q", last=2).dropped == report.dropped


def test_dropping_takes_the_files_away(tmp_path: Path) -> None:
    """Past the grace period the disk holds what stays, and the sizes say so."""
    states: list[State | None] = [{f"k{n}": epoch for n in range(2000)} for epoch in range(30)]
    write(tmp_path, states)
    log = tmp_path / "q" / "op0"
    report = keep(tmp_path, "q", last=2, grace=timedelta(0))
    # Retention looks at whole hours since a file left, so nothing that leaves now is deleted by less than a second run.
    report_again = keep(tmp_path, "q", last=2, grace=timedelta(0))
    left = sum(path.stat().st_size for path in log.glob("*.parquet"))
    assert report.files_deleted + report_again.files_deleted >= 28
    assert report.bytes_freed > 10 * left
    check(tmp_path, states, {28, 29})


@pytest.mark.parametrize(
    ("policy", "error", "says"),
    [
        ({}, InvalidArgumentError, "Say what is to stay"),
        ({"last": 0}, InvalidArgumentError, "last=0 cannot be meant"),
        ({"every": True}, InvalidArgumentError, "every=True cannot be meant"),
        ({"since": "yesterday"}, InvalidArgumentError, "a span such as 2d"),
        ({"since": "0h"}, InvalidArgumentError, "longer than nothing"),
        ({"since": "2026-03-01T12:00:00"}, NaiveTimestampError, "no time zone"),
        ({"since": 3}, InvalidArgumentError, "a datetime, a timedelta or a text"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, policy: dict[str, Any], error: type[Exception], says: str
) -> None:
    """Before anything is written."""
    write(tmp_path, LONG[:2])
    with pytest.raises(error, match=says):
        keep(tmp_path, "q", **policy)
    with pytest.raises(UnknownQueryError, match="q"):
        keep(tmp_path, "nope", last=1)
    assert ss.open_store(tmp_path)["q"].captured() == [0, 1]


def test_since_takes_moments_and_spans(tmp_path: Path) -> None:
    """A span counts back from now, a moment is one in any zone; the newest epoch stays either way."""
    write(tmp_path, LONG)
    assert keep(tmp_path, "q", since="2026-01-01T01:09:00+01:00").kept == 3
    assert keep(tmp_path, "q", since=timedelta(hours=1)).kept == 1
    assert ss.open_store(tmp_path)["q"].captured() == [11]


def test_a_real_query_against_sparks_reader(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Every epoch that stays is Spark's, before and after capture has gone on with a keyframe that it knew before."""
    for epoch in range(8):
        source.add(letters(epoch))
    conftest.run(counts(source), tmp_path / "c")
    capture = ss.follow(tmp_path / "c", tmp_path / "s", "q", spark=spark)
    assert capture.wait(timeout=60) == 7
    assert ss.keep(tmp_path / "s", "q", last=2, every=3).dropped == (1, 2, 4, 5)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 4
    for epoch in range(8, 11):
        source.add(letters(epoch))
    conftest.run(counts(source), tmp_path / "c")
    assert capture.wait(epoch=10, timeout=60) == 10
    assert ss.keep(tmp_path / "s", "q", last=2).dropped == (0, 3, 6, 7, 8)
    source.add(letters(11))
    conftest.run(counts(source), tmp_path / "c")
    assert capture.wait(epoch=11, timeout=60) == 11
    capture.stop()
    history = ss.open_store(tmp_path / "s")["q"]
    assert history.captured() == [9, 10, 11]
    assert compare(spark, tmp_path / "c", history) == 3
    ss.keep(tmp_path / "s", "q", last=1)
    source.add(letters(12))
    conftest.run(counts(source), tmp_path / "c")
    ss.capture(tmp_path / "c", tmp_path / "s", "q", spark=spark)
    assert compare(spark, tmp_path / "c", history) == 2
