"""Dropping older epochs; every epoch that is kept reads exactly as before.

One run makes three kinds of commits, in this order: keyframes where a log will begin; the manifest, after which the
dropped epochs are gone; then each log, rewritten to what is kept. A log that still holds too much is correct for either
manifest, so a run may be killed at any point, and the next run first finishes the work. The transaction identifier
``streamstate/retention`` tells a reader that a log has been through more runs than the manifest it holds; the reader
then reads the manifest again. Captures continue meanwhile: if one commits in between, the run looks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.errors import InvalidArgumentError, NaiveTimestampError, OvertakenError, StoreError, worded
from streamstate.snapshots.calls.checks import duration, positive_duration, whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.capture.recording.trimming import trim_inputs
from streamstate.snapshots.store.delta import Place, commit_once, open_table
from streamstate.snapshots.store.delta.commits import remember_removed
from streamstate.snapshots.store.delta.data_files import DataFile, write_file
from streamstate.snapshots.store.delta.maintenance import GRACE, removals, sweep
from streamstate.snapshots.store.delta.reading import Committed, TableVersion
from streamstate.snapshots.store.entries import Entries, Entry, as_rows
from streamstate.snapshots.store.keyframes import Keyframe, keyframe_rows
from streamstate.snapshots.store.layout import MANIFEST, RETENTION, Layout
from streamstate.snapshots.store.manifest import Manifest, read_entries, with_kept_keyframes
from streamstate.snapshots.store.manifest_summary import ManifestSummary
from streamstate.snapshots.store.registry import required_query
from streamstate.snapshots.store.retention.kept_epochs import Plan, Policy, Stays, planned, with_changes, with_rows
from streamstate.snapshots.store.retention.rewriting import Rewrite, drop

# Another run may finish first, but hardly this often.
_ATTEMPTS = 10


@dataclass(frozen=True)
class RetentionReport:
    """The result of a run of retention, or with ``dry_run`` its forecast."""

    query: str
    """The query's name in the store."""
    store: str
    """The store's path."""
    dropped: tuple[int, ...]
    """The dropped epochs, ascending."""
    kept: int
    """The number of captured epochs that are kept."""
    bytes_freed: int
    """The bytes that are saved; with ``dry_run`` an upper bound, which counts folded rows as dropped."""
    files_deleted: int = 0
    """Files deleted now; files that just left the tables stay on disk for the grace period."""
    dry_run: bool = False
    """True if nothing was changed."""

    def __str__(self) -> str:
        """Return a summary in one line."""
        verb, most = ("would drop", "at most ") if self.dry_run else ("dropped", "")
        freed = f"{most}{self.bytes_freed / 1e6:,.1f} MB freed"
        return f"{self.query}: {verb} {len(self.dropped):,} epochs, {self.kept:,} kept; {freed}"


@long_call("The store is intact. Run it again to continue.")
def retain(
    store: str | Path,
    name: str,
    *,
    last: int | None = None,
    since: datetime | timedelta | str | None = None,
    one_in: int | None = None,
    grace: timedelta = GRACE,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> RetentionReport:
    """Drop older epochs of a query; the kept ones read exactly as before.

    :meth:`streamstate.History.retain` describes the arguments and errors.
    """
    policy = _policy(last, since, one_in)
    layout = Layout.at(store, storage_options)
    query_id = required_query(layout, name).query_id
    if dry_run:
        return _dry_run(layout, name, policy)
    progress = progress or silent
    before = Manifest(layout, name)
    before.refresh()
    freed, kept, dropped = _run(layout, name, query_id, policy, progress)
    progress("deleting files past their grace period", None)
    tables = {table for entry in kept for table in entry.tables}
    places = [layout.manifest(name), *(layout.changelog(name, table) for table in sorted(tables))]
    for place in places:
        remember_removed(place, grace)
    deleted = sum(len(sweep(place, grace)) for place in places)
    trim_inputs(layout, name, before.entries, kept, grace)
    captured = sum(entry.captured for entry in kept)
    return RetentionReport(name, layout.root, tuple(dropped), captured, freed, deleted)


def _run(
    layout: Layout, name: str, query_id: str, policy: Policy, progress: ProgressCallback
) -> tuple[int, Sequence[Entry], Sequence[int]]:
    """Return the bytes freed, the kept entries and the dropped epochs."""
    manifest = Manifest(layout, name)
    for _ in range(_ATTEMPTS):
        manifest.refresh()
        freed = _finish(layout, manifest, (), progress)
        if not planned(manifest.entries, manifest.generation, policy).dropped:
            return freed, manifest.entries, ()
        plan = _plan(layout, manifest, policy)
        try:
            _write_keyframes(layout, name, query_id, plan, progress)
        except OvertakenError:
            continue
        progress(f"dropping {len(plan.dropped):,} epochs from the manifest", None)
        if _commit_manifest(layout, name, _counted(layout, name, plan), plan):
            manifest.refresh()
            freed += _finish(layout, manifest, plan.tables, progress)
            return freed, manifest.entries, plan.dropped
    raise StoreError(f"Other runs of retention keep changing the epochs of {name}.\nTry again once they are done.")


def _plan(layout: Layout, manifest: Manifest, policy: Policy) -> Plan:
    """Return the plan, from the manifest and from the numbers of rows of the keyframes that it names."""
    entries: Sequence[Entry] = manifest.entries
    for table in dict.fromkeys(table for entry in entries for table in entry.tables):
        named = {entry.tables[table].keyframe for entry in entries if table in entry.tables}
        entries = _with_keyframe_rows(layout.changelog(manifest.query, table), entries, table, named)
    return planned(entries, manifest.generation, policy)


def _with_keyframe_rows(
    place: Place, entries: Sequence[Entry], table: str, keyframes: Collection[int | None]
) -> Sequence[Entry]:
    """Return the entries, with the rows of some keyframes counted if the manifest does not have them."""
    wanted = {epoch for epoch in keyframes if epoch is not None}
    unknown = {entry.epoch for entry in entries if table in entry.tables and entry.tables[table].rows is None} & wanted
    log = open_table(place) if unknown else None
    if log is None:
        return entries
    counts = keyframe_rows(TableVersion(place, log))
    return with_rows(entries, table, {epoch: counts[epoch] for epoch in unknown if epoch in counts})


def _write_keyframes(layout: Layout, name: str, query_id: str, plan: Plan, progress: ProgressCallback) -> None:
    """The first commits: keyframes at the epochs where the logs will begin. No manifest names them yet."""
    before = {entry.epoch: entry for entry in plan.before}
    for table, epochs in plan.keyframes.items():
        for epoch in epochs:
            progress(f"writing the keyframe of {table} at epoch {epoch}", None)
            keyframe = Keyframe(layout.changelog(name, table), epoch, before[epoch].tables[table])
            keyframe.write(f"{query_id}/{table}/keyframes")


def _rewrites(layout: Layout, name: str, plan: Plan) -> Iterator[tuple[str, Rewrite]]:
    """Return the planned rewriting of each log that exists."""
    for table in plan.tables:
        place = layout.changelog(name, table)
        log = open_table(place)
        if log is not None:
            yield table, Rewrite.of(TableVersion(place, log), Stays.of(plan.entries, table))


def _counted(layout: Layout, name: str, plan: Plan) -> list[Entry]:
    """Return the kept entries, with the rows of the new keyframes and the change rows that there are after folding."""
    entries: list[Entry] = list(plan.entries)
    for table, epochs in plan.keyframes.items():
        entries = [*_with_keyframe_rows(layout.changelog(name, table), entries, table, epochs)]
    for table, rewrite in _rewrites(layout, name, plan):
        entries = with_changes(entries, table, rewrite.counts())
    return entries


def _commit_manifest(layout: Layout, name: str, entries: Sequence[Entry], plan: Plan) -> bool:
    """Commit the manifest without the dropped epochs; return False if another run of retention came first."""
    place = layout.manifest(name)
    replaced: list[Committed] = []
    metadata = {RETENTION: str(plan.generation)}

    def write(table: DeltaTable, _committed: int) -> list[DataFile]:
        version = TableVersion(place, table)
        replaced[:] = version.files("epoch")
        newest = max(entry.epoch for entry in plan.before)
        added = [entry for entry in read_entries(version) if entry.epoch > newest]
        kept = as_rows(entries)
        rows = pa.concat_tables([kept, as_rows(with_kept_keyframes(added, Entries(kept)))])
        metadata.update(ManifestSummary.of(Entries(rows, plan.generation)).kept())
        return write_file(place, MANIFEST, rows)

    stood = commit_once(
        place,
        RETENTION,
        plan.generation,
        write,
        removes=lambda _: removals(replaced, data_change=True),
        metadata=metadata,
    )
    return stood < plan.generation


def _finish(layout: Layout, manifest: Manifest, tables: Sequence[str], progress: ProgressCallback) -> int:
    """Rewrite each log to what the manifest says; return the number of bytes freed."""
    if not manifest.generation:
        return 0
    freed = 0
    for table in dict.fromkeys([*tables, *(table for entry in manifest.entries for table in entry.tables)]):
        progress(f"rewriting {table}", None)
        stays = Stays.of(manifest.entries, table)
        freed += drop(layout.changelog(manifest.query, table), manifest.generation, stays)
    return freed


def _dry_run(layout: Layout, name: str, policy: Policy) -> RetentionReport:
    """Forecast a run; a file's bytes count in proportion to its rows of dropped epochs."""
    manifest = Manifest(layout, name)
    manifest.refresh()
    plan = _plan(layout, manifest, policy)
    freed = sum(rewrite.bytes_going() for _, rewrite in _rewrites(layout, name, plan)) if plan.dropped else 0
    kept = sum(entry.captured for entry in plan.entries)
    return RetentionReport(name, layout.root, plan.dropped, kept, int(freed), dry_run=True)


def _policy(last: int | None, since: datetime | timedelta | str | None, one_in: int | None) -> Policy:
    for option, number in (("last", last), ("one_in", one_in)):
        if number is not None:
            whole_number(number, option)
    if last is None and since is None and one_in is None:
        raise InvalidArgumentError(
            "Say which epochs to keep: last=100 (the 100 newest), since='2d' (the last two days) or one_in=10 (one in"
            " ten)."
        )
    return Policy(last, None if since is None else _moment(since), one_in)


def _option(since: object) -> str:
    return worded(f"since={since!r}", line=f"--since {since}")


def _moment(since: datetime | timedelta | str) -> datetime:
    """Return the time since which epochs are kept."""
    span = duration(since) if isinstance(since, str) else since
    if isinstance(span, timedelta):
        return datetime.now(UTC) - positive_duration(span, _option(since))
    if isinstance(since, str):
        try:
            since = datetime.fromisoformat(since.strip())
        except ValueError as error:
            raise InvalidArgumentError(
                f"Invalid {_option(since)}: expected a duration such as 2d, 3h or 90m, or a timestamp such as"
                " 2026-03-01T12:00:00+01:00."
            ) from error
    if not isinstance(since, datetime):
        raise InvalidArgumentError(f"Invalid since={since!r}: expected a datetime, a timedelta or a string.")
    if since.utcoffset() is None:
        raise NaiveTimestampError(
            f"The timestamp {since.isoformat()} has no time zone, so it is ambiguous.\n"
            f"Add an offset, such as {since.isoformat()}+00:00{worded(', or tzinfo=datetime.UTC', line='')}."
        )
    return since
