"""Rewriting a change log so that it holds the epochs that stay, and nothing of those that go.

The changes between two epochs that stay are folded into the later one: the last row of each key counts, and a key
that came and went in between vanishes. An epoch at which the log begins is a keyframe, so its own changes go too.
What stays is read from the manifest alone, which is why a run that was killed can be finished by any later one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import KEYFRAME
from streamstate.snapshots.delta import Place, commit_once, open_table
from streamstate.snapshots.delta.commits import version_of
from streamstate.snapshots.delta.compaction import removals
from streamstate.snapshots.delta.data_files import DataFile, write_file
from streamstate.snapshots.delta.prepared import Prepared
from streamstate.snapshots.delta.reading import Committed, TableVersion
from streamstate.snapshots.layout import RETENTION
from streamstate.snapshots.operators import CHANGE, EPOCH
from streamstate.snapshots.retention.folding import Folding, Region
from streamstate.snapshots.retention.keeping import Stays


@dataclass(frozen=True)
class Rewrite:
    """What rewriting one version of a log takes: which files, and which of their epochs are folded."""

    version: TableVersion
    stays: Stays
    files: tuple[Committed, ...]
    region: Region | None

    @classmethod
    def of(cls, version: TableVersion, stays: Stays) -> Rewrite:
        """Look for what has to go; only the files that could hold such rows are read, and of them two columns."""
        suspects = [one for one in version.files(EPOCH) if _may_hold_dropped(one, stays)]
        dirty = {one.path: _dropped_in(version, one, stays) for one in suspects}
        region = _region(sorted(set().union(*dirty.values())), stays)
        chosen = [one for one in version.files(EPOCH) if dirty.get(one.path) or _reaches(one, region)]
        return cls(version, stays, tuple(chosen), region)

    def counts(self) -> dict[int, int]:
        """How many rows the folded epochs have afterwards, and none for those at which the log begins."""
        folded = {} if self.region is None else Folding(self.version, self.stays, self.region).counts()
        return folded | dict.fromkeys(self.stays.starts, 0)

    def bytes_going(self) -> float:
        """The files' bytes by the share of their rows that belong to epochs that go."""
        goes, going = _goes(self.stays), 0.0
        for file in self.files:
            rows = sum(one.num_rows for one in self.version.scan_files([file], columns=[EPOCH], where=goes))
            going += file.size * rows / max(file.rows or rows, 1)
        return going

    def write(self) -> list[DataFile]:
        """The rows that stay, as new files in the order of their epochs."""
        version, where = self.version, self._copied()
        if self.region is None:
            return write_file(version.place, version.schema, version.scan_files(self.files, where=where))
        after = self.region.lower
        earlier = version.scan_files(self.files, where=where & (pc.field(EPOCH) <= after))
        written = write_file(version.place, version.schema, earlier)
        with Folding(version, self.stays, self.region).rows() as rows:
            written += write_file(version.place, version.schema, rows)
        later = version.scan_files(self.files, where=where & (pc.field(EPOCH) > after))
        return written + write_file(version.place, version.schema, later)

    def _copied(self) -> pc.Expression:
        """Rows that stay as they are: of epochs that stay and are not folded, and those of captures under way."""
        epoch, change = pc.field(EPOCH), pc.field(CHANGE)
        stays = epoch.isin(pa.array(self.stays.epochs, pa.int64()))
        begins = epoch.isin(pa.array(sorted(self.stays.starts), pa.int64()))
        unfolded = stays & ~begins
        if self.region is not None:
            unfolded = unfolded & ((epoch <= self.region.lower) | (epoch > self.region.last))
        return (epoch > self.stays.newest) | ((change == KEYFRAME) & stays) | ((change != KEYFRAME) & unfolded)


def drop(place: Place, generation: int, stays: Stays) -> int:
    """Rewrite a log so that it holds what stays, unless a run of retention that is as far has; returns bytes freed.

    Raises:
        StoreError: where it could not be rewritten; the log is as it was then, and every epoch that the manifest
            names can be read.
    """
    table = open_table(place)
    if table is None or version_of(table, RETENTION) >= generation:
        return 0
    rewrite = Rewrite(TableVersion(place, table), stays, (), None)

    def make(version: TableVersion) -> list[DataFile]:
        nonlocal rewrite
        rewrite = Rewrite.of(version, stays)
        return rewrite.write()

    def fits(version: TableVersion, came: Sequence[Committed], left: set[str]) -> bool:
        suspects = [one for one in came if _may_hold_dropped(one, stays)]
        rewritten = {one.path for one in rewrite.files}
        return not (rewritten & left) and not any(_dropped_in(version, one, stays) for one in suspects)

    prepared = Prepared(place, EPOCH, make, fits)
    stood = commit_once(
        place,
        RETENTION,
        generation,
        prepared.write,
        removes=lambda _: removals(rewrite.files, data_change=True),
        metadata={RETENTION: str(generation)},
        keeps_files=True,
    )
    if stood >= generation:
        prepared.discard()
        return 0
    return sum(one.size for one in rewrite.files) - prepared.size


def _may_hold_dropped(file: Committed, stays: Stays) -> bool:
    """Whether a file could hold rows that go, as far as the log's statistics tell."""
    if file.least is None or file.most is None:
        return True
    if file.least > stays.newest:
        return False
    if any(file.least <= one <= file.most for one in stays.starts):
        return True
    first = bisect_left(stays.epochs, file.least)
    span = range(file.least, min(file.most, stays.newest) + 1)
    return stays.epochs[first : first + len(span)] != tuple(span)


def _dropped_in(version: TableVersion, file: Committed, stays: Stays) -> set[int]:
    """The epochs of which a file has rows that go."""
    batches = version.scan_files([file], columns=[EPOCH], where=_goes(stays))
    return {number for batch in batches for number in pc.unique(batch[EPOCH]).to_pylist()}


def _goes(stays: Stays) -> pc.Expression:
    """Rows of epochs that go, and the changes of those at which the log begins."""
    epoch, change = pc.field(EPOCH), pc.field(CHANGE)
    stay = epoch.isin(pa.array(stays.epochs, pa.int64()))
    begins = epoch.isin(pa.array(sorted(stays.starts), pa.int64()))
    return (epoch <= stays.newest) & (~stay | (begins & (change != KEYFRAME)))


def _region(dirty: Sequence[int], stays: Stays) -> Region | None:
    """The epochs that take in changes of dropped ones; None where what goes lies before the log's new beginning."""
    into = [stays.epochs[at] for one in dirty if (at := bisect_left(stays.epochs, one)) < len(stays.epochs)]
    into = [one for one in into if one not in stays.starts]
    if not into:
        return None
    at = bisect_left(stays.epochs, into[0])
    return Region(stays.epochs[at - 1] if at else None, into[-1])


def _reaches(file: Committed, region: Region | None) -> bool:
    if region is None:
        return False
    return file.may_hold(region.lower + 1, region.last)
