"""A store in memory, changelogs, snapshots and a remote store: what is acknowledged stays, and old files go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from recorded.unpacked import unpacked

from scripts.mutants import SEEDS
from streamstate.tutorials.exercises import Worksheet
from streamstate.tutorials.exercises.i04_log_structured import FILES, lost_epochs, play, play_costs, spark_files
from streamstate.tutorials.simulation import Player, explore, replay, run
from streamstate.tutorials.simulation.log_structured import KEPT, PURGED, READ, LogStructured
from streamstate.tutorials.simulation.protocol import Key
from streamstate.tutorials.simulation.runs import violations
from streamstate.tutorials.simulation.snapshot_costs import SnapshotsEvery, measured
from streamstate.tutorials.simulation.store_files import File, Files, chain, merged, needed, newest_snapshot
from streamstate.tutorials.simulation.store_mutants import STORE_MUTANTS, PurgesTooSoon


def test_a_correct_store_holds_all_invariants() -> None:
    """In random runs with crashes, and in all states of small scenarios; most runs purge files."""
    crashed = purged = 0
    for seed in SEEDS:
        trace = run(LogStructured.random(seed), seed)
        assert trace.violations == (), (seed, trace)
        assert trace.protocol.finished(trace.states[-1])
        kinds = {key[0] for key in trace.schedule}
        crashed += "crash" in kinds
        purged += "purge" in kinds
    assert min(crashed, purged) > 0.8 * len(SEEDS)
    for retain in (1, 2):
        graph = explore(LogStructured(2, keys="x", retain=retain, crashes=2))
        assert graph.complete
        pairs = zip(graph.states, graph.edges, strict=True)
        assert not [found for state, edges in pairs for found in violations(graph.protocol, state, stuck=not edges)]


def test_every_invariant_is_broken_by_some_mutant() -> None:
    """None of them holds for want of a case."""
    broken = {name for kind in STORE_MUTANTS for seed in SEEDS[:20] for name in run(kind.random(seed), seed).broken}
    assert broken == {READ, PURGED, KEPT}


def test_a_purge_that_trusts_the_local_disk_loses_a_version_with_it() -> None:
    """The snapshot is not uploaded, and the changelogs that it sums up are gone."""
    schedule: list[Key] = [
        ("put", "x"),
        ("flush",),
        ("upload", "changelog", 1),
        ("acknowledge",),
        ("snapshot",),
        ("purge",),
    ]
    trace = replay(PurgesTooSoon(2, keys="x"), [*schedule, ("crash", "lost")])
    reasons = [violation.reason for violation in trace.violations]
    assert reasons == [
        "It took changelog 1, which version 1 needs.",
        "Version 1 is acknowledged, and cannot be loaded any more.",
    ]


def test_a_file_of_an_attempt_that_failed_does_not_count() -> None:
    """A changelog that was uploaded before a crash is replaced before its version is acknowledged."""
    first: list[Key] = [("put", "x"), ("flush",), ("upload", "changelog", 1), ("crash", "lost"), ("load",)]
    protocol = LogStructured(1)
    state = replay(protocol, [*first, ("put", "y"), ("flush",)]).states[-1]
    assert [file.name for file in state.remote] == ["changelog 1"]
    assert ("acknowledge",) not in {action.key for action in protocol.actions(state)}


def test_a_load_reads_a_snapshot_and_what_comes_after_it() -> None:
    """Without a file that it needs there is nothing to load."""
    assert [file.name for file in needed(FILES, 3)] == ["snapshot 2", "changelog 3"]
    assert merged(needed(FILES, 3)) == (("x", 2),)
    assert chain(FILES[1:2], 2, None) is None


def test_costs() -> None:
    """Snapshots are written; changelogs since the newest one are read."""
    assert measured(8, 2, 1) == (10, 8)
    assert measured(8, 2, 6) == (20 / 6, 18)
    words = [protocol.scene(run(protocol, 0).states[11]).words for protocol in (SnapshotsEvery(1), SnapshotsEvery(6))]
    assert (
        "written so far: 98 entries, 4.5 for each change. a load of version 11 reads 8 entries; files: 1." in words[0]
    )
    assert (
        "written so far: 30 entries, 1.4 for each change. a load of version 11 reads 18 entries; files: 6." in words[1]
    )


def test_the_picture() -> None:
    """It says what memory has, and what each disk has of each version."""
    schedule: list[Key] = [("put", "x"), ("flush",), ("upload", "changelog", 1), ("acknowledge",), ("delete", "x")]
    trace = replay(LogStructured(2), schedule)
    assert trace.protocol.scene(trace.states[-1]).words == (
        "engine: version 1 in memory: holds x=1; memtable: x deleted. version 1 ✓. version 2. "
        "local disk. changelog, snapshot. local disk: changelog 1: x=1. "
        "remote store. changelog, snapshot. remote store: changelog 1: x=1."
    )


def test_the_players_of_the_notebook_are_small() -> None:
    """Together less than 200 kB."""
    assert sum(len(player._repr_html_()) for player in (play(), play_costs())) < 200_000


def test_a_wrong_purge_opens_the_player_where_a_promise_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is shortened; its last step is the purge."""
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))
    answer = Worksheet("i04_log_structured").check("may_purge", lambda file, files, retained: True)
    assert isinstance(answer.picture, Player)
    assert "Old files are purged." in repr(answer.picture)
    assert answer.picture.at < 12


def test_a_purge_may_keep_what_spark_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything from the snapshot of the oldest retained version on."""
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))

    def may_purge(file: File, files: Files, retained: Sequence[int]) -> bool:
        base = newest_snapshot(files, min(retained))
        return base is not None and file.version < base.version

    assert Worksheet("i04_log_structured").check("may_purge", may_purge).mark == "right"


def test_the_rules_hold_for_files_of_spark(tmp_path: Path) -> None:
    """A checkpoint with a snapshot of version 4: a restart reads three files, and a lost changelog costs two epochs."""
    checkpoint = unpacked("restarts", tmp_path) / "changelog-2" / "snapshot"
    store = checkpoint / "state" / "0" / "0"
    assert [file.name for file in needed(spark_files(store), 6)] == ["snapshot 4", "changelog 5", "changelog 6"]
    assert lost_epochs(checkpoint) == set()
    [changelog] = store.glob("2_*.changelog")
    changelog.unlink()
    assert lost_epochs(checkpoint) == {"1", "2"}
