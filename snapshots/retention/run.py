"""Dropping older epochs so that every epoch that stays reads exactly as before.

One run makes three kinds of commits, in this order: keyframes where a log is to begin; the manifest, from which on the
dropped epochs are gone; then each log, rewritten to what stays. A log with too much in it is right for either
manifest, so a run may be killed anywhere, and the next one first finishes what it finds. A log that has been through
more runs than the manifest a reader holds is told by its transaction identifier ``streamstate/retention``; such a
reader reads the manifest again. Captures go on meanwhile: whatever they commit in between has the run look again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from streamstate.snapshots.delta import commit_once, open_table
from streamstate.snapshots.delta.compaction import removals
from streamstate.snapshots.delta.data_files import DataFile, write_file
from streamstate.snapshots.delta.reading import Committed, TableVersion
from streamstate.snapshots.delta.sweep import GRACE, sweep
from streamstate.snapshots.durations import duration, positive
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    NaiveTimestampError,
    OvertakenError,
    StoreError,
)
from streamstate.snapshots.keyframes import Keyframe
from streamstate.snapshots.layout import MANIFEST, RETENTION, Layout
from streamstate.snapshots.manifest import (
    Entry,
    Manifest,
    as_rows,
    make_manifest,
    read_entries,
    with_kept_keyframes,
)
from streamstate.snapshots.registry import required_query
from streamstate.snapshots.retention.keeping import Plan, Policy, Stays, planned, with_changes
from streamstate.snapshots.retention.thinning import Rewrite, drop

# Another run may finish first; more often than this it is not another run that is in the way.
_ATTEMPTS = 10

Progress = Callable[[str], None]
"""Is told what is being done, in a few words."""


@dataclass(frozen=True)
class RetentionReport:
    """What a run of retention did, or with ``dry_run`` would do."""

    query: str
    """The query's name in the store."""
    store: str
    """The store's path."""
    dropped: tuple[int, ...]
    """Epochs that are gone, ascending."""
    kept: int
    """How many captured epochs stay."""
    bytes_freed: int
    """By how much the tables' files shrank; with ``dry_run`` at most so much, folded rows being counted as gone."""
    files_deleted: int = 0
    """Files deleted now; those that have just left the tables stay on disk for the grace period."""
    dry_run: bool = False
    """Nothing was changed."""

    def __str__(self) -> str:
        """In one line."""
        would, megabytes = "would drop" if self.dry_run else "dropped", self.bytes_freed / 1e6
        most = "at most " if self.dry_run else ""
        return f"{self.query}: {would} {len(self.dropped):,} epochs, {self.kept:,} stay; {most}{megabytes:,.1f} MB less"


def keep(
    store: str | Path,
    name: str,
    *,
    last: int | None = None,
    since: datetime | timedelta | str | None = None,
    every: int | None = None,
    grace: timedelta = GRACE,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> RetentionReport:
    """Drop older epochs of a query; what stays reads exactly as before.

    An epoch stays where any of ``last``, ``since`` and ``every`` keeps it; the newest captured one always does. The
    changes of dropped epochs are folded into the next that stays. Captures, and readers here or in other processes, go
    on meanwhile: a snapshot that is held keeps its rows, and files that leave stay on disk for the grace period.
    A run that was ended anywhere has harmed nothing, and the next one finishes it.

    Args:
        store: the store's path.
        name: the query.
        last: so many of the newest captured epochs stay.
        since: epochs committed since then stay: an aware datetime, or how long ago, as a ``timedelta`` or a text such
            as "2d" or "3h".
        every: of the others the first of each so many epoch numbers stays: 10 keeps 0, 10, 20 and so on.
        grace: how long files stay on disk after they left the tables, for their readers; whole hours count.
        dry_run: only say what would go.
        storage_options: deltalake's, for stores on object stores.
        progress: called with a few words before each step.

    Returns:
        The epochs dropped and what that freed.

    Raises:
        InvalidArgumentError: where an argument cannot be meant, or nothing says what is to stay.
        NaiveTimestampError: where ``since`` has no time zone.
        NotAStoreError, UnknownQueryError: where there is no such store or query.
        StoreError: where the store cannot be written; every epoch that it names can be read all the same.

    Example:
        >>> ss.keep("store", "delays", last=1000, every=100, dry_run=True)  # doctest: +SKIP
    """
    policy = _policy(last, since, every)
    layout = Layout.at(store, storage_options)
    query_id = required_query(layout, name).query_id
    if dry_run:
        return _foreseen(layout, name, policy)
    freed, kept, dropped = _run(layout, name, query_id, policy, progress)
    progress("deleting files past their grace period")
    tables = {table for entry in kept for table in entry.tables}
    places = [layout.manifest(name), *(layout.change_log(name, table) for table in sorted(tables))]
    deleted = sum(len(sweep(place, grace)) for place in places)
    captured = sum(entry.captured for entry in kept)
    return RetentionReport(name, layout.root, tuple(dropped), captured, freed, deleted)


def _run(
    layout: Layout, name: str, query_id: str, policy: Policy, progress: Progress
) -> tuple[int, Sequence[Entry], Sequence[int]]:
    """Bytes freed, the entries that stay, the epochs dropped."""
    manifest = Manifest(layout, name)
    for _ in range(_ATTEMPTS):
        manifest.refresh()
        freed = _finish(layout, manifest, (), progress)
        plan = planned(manifest.entries, manifest.generation, policy)
        if not plan.dropped:
            return freed, manifest.entries, ()
        try:
            _write_keyframes(layout, name, query_id, plan, progress)
        except OvertakenError:
            continue
        progress(f"dropping {len(plan.dropped):,} epochs from the manifest")
        if _commit_manifest(layout, name, _counted(layout, name, plan), plan):
            manifest.refresh()
            freed += _finish(layout, manifest, plan.tables, progress)
            return freed, manifest.entries, plan.dropped
    raise StoreError(f"Other runs of retention keep changing the epochs of {name}.\nTry again when they are done.")


def _write_keyframes(layout: Layout, name: str, query_id: str, plan: Plan, progress: Progress) -> None:
    """The first commits: keyframes at the epochs where the logs are to begin. No manifest names them yet."""
    before = {entry.epoch: entry for entry in plan.before}
    for table, epochs in plan.keyframes.items():
        for epoch in epochs:
            progress(f"writing the keyframe of {table} at epoch {epoch}")
            keyframe = Keyframe(layout.change_log(name, table), epoch, before[epoch].tables[table])
            keyframe.write(f"{query_id}/{table}/keyframes")


def _counted(layout: Layout, name: str, plan: Plan) -> list[Entry]:
    """The entries that stay, saying how many change rows they have after folding."""
    entries: list[Entry] = list(plan.entries)
    for table in plan.tables:
        log = open_table(layout.change_log(name, table))
        if log is not None:
            rewrite = Rewrite.of(TableVersion(layout.change_log(name, table), log), Stays.of(entries, table))
            entries = with_changes(entries, table, rewrite.counts())
    return entries


def _commit_manifest(layout: Layout, name: str, entries: Sequence[Entry], plan: Plan) -> bool:
    """The commit that drops the epochs; False where another run of retention came first."""
    place = layout.manifest(name)
    replaced: list[Committed] = []

    def write(table: DeltaTable, _stands: int) -> list[DataFile]:
        version = TableVersion(place, table)
        replaced[:] = version.files("epoch")
        newest = max(entry.epoch for entry in plan.before)
        added = [entry for entry in read_entries(version) if entry.epoch > newest]
        rows = [*entries, *with_kept_keyframes(added, entries)]
        return write_file(place, MANIFEST, as_rows(rows))

    make_manifest(place)  # an earlier streamstate's has fewer columns than the rows
    stood = commit_once(
        place,
        RETENTION,
        plan.generation,
        write,
        removes=lambda _: removals(replaced, data_change=True),
        metadata={RETENTION: str(plan.generation)},
    )
    return stood < plan.generation


def _finish(layout: Layout, manifest: Manifest, tables: Sequence[str], progress: Progress) -> int:
    """The last commits: each log is rewritten to what the manifest says; returns how many bytes that freed."""
    if not manifest.generation:
        return 0
    freed = 0
    for table in dict.fromkeys([*tables, *(table for entry in manifest.entries for table in entry.tables)]):
        progress(f"rewriting {table}")
        stays = Stays.of(manifest.entries, table)
        freed += drop(layout.change_log(manifest.query, table), manifest.generation, stays)
    return freed


def _foreseen(layout: Layout, name: str, policy: Policy) -> RetentionReport:
    """What a run would do; the bytes are the share of the files' rows that belong to dropped epochs."""
    manifest = Manifest(layout, name)
    manifest.refresh()
    plan = planned(manifest.entries, manifest.generation, policy)
    freed = 0.0
    for table in plan.tables if plan.dropped else ():
        log = open_table(layout.change_log(name, table))
        if log is not None:
            version = TableVersion(layout.change_log(name, table), log)
            freed += Rewrite.of(version, Stays.of(plan.entries, table)).bytes_going()
    kept = sum(entry.captured for entry in plan.entries)
    return RetentionReport(name, layout.root, plan.dropped, kept, int(freed), dry_run=True)


def _policy(last: int | None, since: datetime | timedelta | str | None, every: int | None) -> Policy:
    given: dict[str, object] = {"last": last, "every": every}  # whatever a caller passed, not what was asked for
    for option, number in given.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise InvalidArgumentError(f"{option}={number!r} cannot be meant: give a whole number, 1 or more.")
    if last is None and since is None and every is None:
        raise InvalidArgumentError(
            "Say what is to stay: last=100 (the 100 newest), since='2d' (of the last two days), every=10 (one in ten)."
        )
    return Policy(last, None if since is None else _moment(since), every)


def _moment(since: datetime | timedelta | str) -> datetime:
    """The moment from which on epochs stay."""
    span = duration(since) if isinstance(since, str) else since
    if isinstance(span, timedelta):
        return datetime.now(UTC) - positive(span, f"since={since!r}")
    if isinstance(since, str):
        try:
            since = datetime.fromisoformat(since.strip())
        except ValueError as error:
            raise InvalidArgumentError(
                f"since={since!r} cannot be meant: give a span such as 2d, 3h or 90m, or a moment such as"
                " 2026-03-01T12:00:00+01:00."
            ) from error
    if not isinstance(since, datetime):
        raise InvalidArgumentError(f"since={since!r} cannot be meant: give a datetime, a timedelta or a text.")
    if since.utcoffset() is None:
        raise NaiveTimestampError(
            f"The moment {since.isoformat()} has no time zone, so it could mean several.\n"
            f"Add an offset, such as '{since.isoformat()}+00:00', or in Python tzinfo=datetime.UTC."
        )
    return since
