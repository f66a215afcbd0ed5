"""Completing and removing what a commit that failed, or a process that died, left behind.

Log entries that were never synced and sealed are so now, and data files that no version holds are removed. Such a file
may belong to a commit that is still under way, in this process or another. So nothing is removed before a fence: an
empty commit. A writer whose commit is to follow the version it looked at (see ``commits``) fails when the fence took
that version, and writes its files anew; one that came first has its files in the log. Either way, a file that stood
there before the fence and is not in the log after it will never be in it. No clock is trusted.
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

from deltalake import DeltaTable

from streamstate.snapshots.delta.commits import FENCE, empty_commit, open_table, required
from streamstate.snapshots.delta.data_files import delete_files, is_ours
from streamstate.snapshots.delta.log_checks import seal_missing
from streamstate.snapshots.delta.place import LOG, Place

# Files that compaction or retention took out of the table, for readers that still look at an older version.
GRACE = timedelta(hours=1)


def sweep(place: Place, grace: timedelta = GRACE) -> list[str]:
    """Remove the files that no version holds, and those that left the table longer ago than the grace period.

    Args:
        place: the table; where there is none, nothing is done.
        grace: how long a file that left the table stays for its readers; whole hours count.

    Returns:
        The paths that were removed.
    """
    table = open_table(place)
    if table is None:
        return []
    seal_missing(place)
    _sweep_log(place)
    found = _files(place)
    if not found - _held(table, grace) or not empty_commit(place, table, FENCE):
        return []
    removed = sorted(found - _held(required(place), grace))
    delete_files(place, removed)
    return removed


def _sweep_log(place: Place) -> None:
    """Remove what a process that died left half-written in the log's folder; a commit takes no hour."""
    if place.folder is None:
        return
    before = time.time() - GRACE.total_seconds()
    for entry in (place.folder / LOG).iterdir():
        # object_store writes to "<name>#<number>" first, a checksum file is first a ".tmp".
        if "#" in entry.name or entry.suffix == ".tmp":
            with contextlib.suppress(FileNotFoundError):  # its writer lives, and went on
                if entry.stat().st_mtime < before:
                    entry.unlink()


def _files(place: Place) -> set[str]:
    if place.folder is not None:
        return {entry.name for entry in place.folder.iterdir() if is_ours(entry.name)}
    from pyarrow.fs import FileSelector

    found = place.filesystem().get_file_info(FileSelector("", recursive=False))
    return {one.base_name for one in found if is_ours(one.base_name)}


def _held(table: DeltaTable, grace: timedelta) -> set[str]:
    """Files of the newest version, and those that left it within the grace period."""
    current = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
    return current | (_left(table, timedelta(0)) - _left(table, grace))


def _left(table: DeltaTable, ago: timedelta) -> set[str]:
    hours = int(ago.total_seconds() // 3600)
    paths = table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False)
    return {path.rsplit("/", 1)[-1] for path in paths}
