"""Keyframes folded from the log: those that are due, and those where retention has a log begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamstate.snapshots.change_log import (
    KEYFRAME,
    check_generation,
    folded,
    key_columns,
    rows_since,
    value_columns,
)
from streamstate.snapshots.delta import Place, commit_once, open_table
from streamstate.snapshots.delta.commits import required, version_of
from streamstate.snapshots.delta.data_files import DataFile, DataFileWriter
from streamstate.snapshots.delta.prepared import Prepared
from streamstate.snapshots.delta.reading import Committed, TableVersion
from streamstate.snapshots.layout import RETENTION
from streamstate.snapshots.manifest import TableFacts, generation_of
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION


@dataclass(frozen=True)
class Keyframe:
    """All live keys of a state table, to be written again at a captured epoch."""

    place: Place
    """The log."""
    epoch: int
    facts: TableFacts
    """What the manifest says of the table at the epoch."""

    def write(self, application: str) -> None:
        """Have the log hold it, whoever writes it.

        Args:
            application: the transaction identifier under which captures write keyframes; its versions are epochs.

        Raises:
            OvertakenError: where another run of retention has rewritten the log.
            StoreError: where it could not be written.
        """
        if open_table(self.place) is None:
            return
        prepared = Prepared(self.place, EPOCH, self._files, self._fits)
        for mark, version in self._marks(application):
            if commit_once(self.place, mark, version, prepared.write, keeps_files=True) < version:
                return

    def _marks(self, application: str) -> Iterator[tuple[str, int]]:
        """Transaction identifiers and versions to commit it under, until one is ours."""
        # A capture may write one at the newest epoch at this moment: the same identifier lets one of the two do it.
        if version_of(required(self.place), application) < self.epoch:
            yield application, self.epoch
        while True:
            yield f"{RETENTION}/keyframes", required(self.place).version() + 1

    def _fits(self, version: TableVersion, came: Sequence[Committed], _left: set[str]) -> bool:
        if generation_of(version.table) > (self.facts.generation or 0):
            return False  # writing it anew says so
        return not any(one.may_hold(self.epoch, self.epoch) for one in came)

    def _files(self, version: TableVersion) -> list[DataFile]:
        check_generation(version, self.facts.generation)
        there = rows_since(version, self.epoch, self.epoch, [CHANGE])
        if any(batch.num_rows for batch in there):
            return []  # of a run that was killed, or by a capture
        return keyframe_file(version, self.epoch, self.facts.keyframe)


def keyframe_file(version: TableVersion, epoch: int, since: int | None) -> list[DataFile]:
    """All live keys at an epoch as a file of the log, folded from the log itself; none where no key lives.

    Args:
        version: the log.
        epoch: a captured epoch.
        since: the keyframe that reading it starts from; None: the log's beginning.
    """
    schema = version.schema
    names = [PARTITION, *key_columns(schema), *value_columns(schema)]
    with (
        DataFileWriter(version.place, schema) as writer,
        folded(version, key_columns(schema), epoch, since, names) as rows,
    ):
        for batch in rows:
            writer.write(_marked(batch, epoch, names))
    return [] if writer.file is None else [writer.file]


def keyframes_in(version: TableVersion, live: Mapping[int, int]) -> list[int]:
    """Epochs at which a log holds all live keys in files of their own, ascending.

    The manifest names a keyframe from the epoch after it on; whoever reads the keyframe's own epoch finds it here.

    Args:
        version: the log.
        live: how many keys live at each epoch that counts.
    """
    actions = pa.table(version.table.get_add_actions(flatten=True))
    wanted = (f"min.{EPOCH}", f"max.{EPOCH}", f"min.{CHANGE}", f"max.{CHANGE}", "num_records")
    if not set(wanted) <= set(actions.column_names):
        return []
    found: Counter[int] = Counter()
    for first, last, least, most, rows in zip(*(actions[name].to_pylist() for name in wanted), strict=True):
        if first is not None and first == last and least == most == KEYFRAME:
            found[first] += rows or 0
    return sorted(epoch for epoch, rows in found.items() if live.get(epoch) == rows)


def _marked(batch: pa.RecordBatch, epoch: int, names: Sequence[str]) -> pa.Table:
    count = batch.num_rows
    fixed = {EPOCH: pa.repeat(pa.scalar(epoch, pa.int64()), count), CHANGE: pa.repeat(KEYFRAME, count)}
    return pa.table(fixed | {name: batch[name] for name in names})
