"""Damaged state files: those that make up the state of each store at an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import BACKUP, Damage
from streamstate.snapshots.checkpoint.damage.files import TailError, change_records, zip_metadata
from streamstate.snapshots.checkpoint.decoding.changelog_records import Records
from streamstate.snapshots.checkpoint.decoding.failures import (
    ChangelogError,
    DamagedChangelogError,
    MissingChangelogError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.integrity import verified
from streamstate.snapshots.checkpoint.decoding.state_schema import PROVIDERS
from streamstate.snapshots.checkpoint.decoding.store_history import StoreHistory
from streamstate.snapshots.checkpoint.filesystem import inside
from streamstate.snapshots.checkpoint.state_files import data_files
from streamstate.snapshots.checkpoint.state_stores import StateStore, state_stores

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CODEC, _CODECS = "spark.sql.streaming.stateStore.compression.codec", {"lz4", "zstd", "snappy", "lzf"}
_MOST_REPLAYED = 500
"""Changes that Spark reads at most in place of a damaged snapshot, since 4.1 (``maxChangeFileReplay``)."""
_MOST_READ = 1 << 30
"""Bytes of RocksDB's data files that are compared with their checksums; of the others only the size is."""
_REPAIRED = f"Spark reads the changes before it instead, since 4.1; an earlier Spark cannot restart. {BACKUP}"
_TAIL = f"Spark reads all of its records. {BACKUP}"


@dataclass(frozen=True)
class _Place:
    """A store of an operator, in all partitions."""

    operator: int
    store: str
    store_index: int
    provider: str


class StateDamage:
    """The damage of state files. Each file is read once, so that damage of many epochs can be asked for.

    Args:
        checkpoint: the checkpoint.
        read: whether to read files; otherwise only missing ones are found.

    Attributes:
        unknown: why some files were not checked; empty if all were.
        unread: bytes of data files whose checksums were not compared, because there are too many.
    """

    def __init__(self, checkpoint: CheckpointFiles, *, read: bool = True) -> None:
        self.unknown = ""
        self.unread = 0
        self._checkpoint = checkpoint
        self._reads = read
        self._left = _MOST_READ
        self._stores: dict[int | None, list[StateStore]] = {}
        self._histories: dict[_Place, StoreHistory] = {}
        self._changes: dict[str, tuple[Damage | None, Records]] = {}
        self._snapshots: dict[str, Damage | None] = {}

    def at(self, epoch: int) -> list[Damage]:
        """Return the damage of the files that make up the state at a committed epoch."""
        if (end := self._end(epoch)) is not None:
            return [end]
        return self._of_each(lambda store, history: self._of_state(store, history, epoch), epoch)

    def within(self, epoch: int) -> list[Damage]:
        """Return the damage of the files that the epoch itself has written."""
        return self._of_each(lambda store, history: self._of_version(store, history, epoch + 1), epoch)

    def _of_each(self, find: Callable[[StateStore, StoreHistory], list[Damage]], epoch: int) -> list[Damage]:
        """Return the damage found for each store, each file once."""
        provider = self._provider(epoch)
        if not provider:
            return []
        stores = self._listed(epoch)
        histories = [self._history(_Place(s.operator, s.store, s.store_index, provider)) for s in stores]
        found = self._checkpoint.files.each(lambda pair: find(*pair), zip(stores, histories, strict=True))
        return list(dict.fromkeys(damage for damages in found for damage in damages))

    def _provider(self, epoch: int) -> str:
        """Return the state store provider; empty if its files cannot be judged."""
        if (planned := self._checkpoint.readable_plan(epoch)) is None:
            return ""
        name, codec = planned.conf.get(_PROVIDER, ""), planned.conf.get(_CODEC, "lz4")
        if name in PROVIDERS and codec in _CODECS:
            return PROVIDERS[name]
        self.unknown = f"The files of the state store provider {name!r} with the codec {codec!r} are not known."
        return ""

    def _listed(self, epoch: int) -> list[StateStore]:
        planned = self._checkpoint.readable_plan(epoch)
        partitions = planned.partitions if planned else None
        if partitions not in self._stores:
            path, files = self._checkpoint.path, self._checkpoint.files
            self._stores[partitions] = [*state_stores(path, files, self._checkpoint, epoch)]
        return self._stores[partitions]

    def _history(self, place: _Place) -> StoreHistory:
        if place not in self._histories:
            self._histories[place] = StoreHistory(self._checkpoint, place)
        return self._histories[place]

    def _end(self, epoch: int) -> Damage | None:
        """Return the damage of a state that ends in all stores before an epoch, rather than in some."""
        stores = self._listed(epoch)
        last = max((file.version for store in stores for file in store.listed.files), default=0)
        if not stores or last > epoch or (len(stores) == 1 and last == epoch):
            return None
        committed = [number for number in self._checkpoint.committed() if number >= last]
        span = f"{committed[0]} to {committed[-1]} are" if len(committed) > 1 else f"{epoch} is"
        ends = f"ends at epoch {last - 1}" if last else "has no file of any epoch"
        return Damage(
            "state",
            f"{ends}, but {'epochs' if len(committed) > 1 else 'epoch'} {span} committed: the files of all stores were"
            " lost, or the query ran without its stateful operator, or its sink skipped these batches as another"
            " query's",
            "If the query no longer keeps state, no action is needed: code without state starts. If another query"
            " writes into the same folder, or another flow into the same table, give each its own. Otherwise restore"
            " state/ from a backup.",
            of_epoch=True,
        )

    def _of_state(self, store: StateStore, history: StoreHistory, epoch: int) -> list[Damage]:
        skipped: dict[str, Damage] = {}
        while True:
            try:
                files = history.state(epoch, store.partition, self._read, skipped)
            except MissingChangelogError as missing:
                return [*skipped.values()] or [self._missing(missing.path)]
            except UnsupportedChangelogError as error:
                self.unknown = str(error)
                return []
            if files.snapshot is None or (found := self._snapshot(files.snapshot)) is None:
                break
            skipped[files.snapshot.rpartition("/")[2]] = found
            if not found.stops:
                break
        if store.families and files.snapshot is None:
            return [*skipped.values()] or [self._missing(history.paths(store.partition, 1)[1])]
        if not skipped and (snapshot := history.lost_snapshot(store.partition, files)):
            return [self._missing(snapshot)]
        replayed = len(files.changelogs) <= _MOST_REPLAYED
        others = [
            replace(found, stops=False, advice=_REPAIRED) if found.stops and replayed else found
            for found in skipped.values()
        ]
        return [*others, *filter(None, (self._changes[records.path][0] for records in files.changelogs))]

    def _of_version(self, store: StateStore, history: StoreHistory, version: int) -> list[Damage]:
        changes, snapshot = history.paths(store.partition, version)
        if changes.rpartition("/")[2] in store.listed.names:
            self._read(changes)
            found = self._changes[changes][0]
        elif snapshot.rpartition("/")[2] in store.listed.names:
            found = self._snapshot(snapshot)
        else:
            found = self._missing(changes)
        return [found] if found else []

    def _missing(self, path: str) -> Damage:
        return self._damage(path, "is missing")

    def _damage(self, path: str, why: str) -> Damage:
        return Damage(path.removeprefix(f"{self._checkpoint.path}/"), why, of_epoch=True)

    def _read(self, path: str) -> Records:
        """Return the records of a file with changes; none if it is damaged."""
        if path not in self._changes:
            self._changes[path] = self._read_changes(path)
        return self._changes[path][1]

    def _read_changes(self, path: str) -> tuple[Damage | None, Records]:
        if not self._reads:
            return None, _no_records(path)
        try:
            return None, replace(change_records(self._content(path), path), path=path)
        except ChangelogError as error:
            return self._found(path, error), _no_records(path)

    def _snapshot(self, path: str) -> Damage | None:
        if not self._reads:
            return None
        if path not in self._snapshots:
            try:
                found = self._damage_in_zip(path) if path.endswith(".zip") else self._read_changes(path)[0]
            except ChangelogError as error:
                found = self._found(path, error)
            self._snapshots[path] = found
        return self._snapshots[path]

    def _found(self, path: str, error: ChangelogError) -> Damage | None:
        """Return the damage that an error shows; None if the file is only in a format that is not known."""
        if isinstance(error, UnsupportedChangelogError):
            self.unknown = str(error)
            return None
        why = str(error).removeprefix(path).strip().replace(f"{self._checkpoint.path}/", "").rstrip(".")
        damage = self._damage(path, why)
        return replace(damage, stops=False, advice=_TAIL) if isinstance(error, TailError) else damage

    def _damage_in_zip(self, path: str) -> Damage | None:
        """Damage of a snapshot of RocksDB, or of a data file that it lists."""
        tail = None
        try:
            metadata = zip_metadata(self._content(path), path)
        except TailError as error:
            metadata, tail = error.metadata, self._found(path, error)
        folder = path.rpartition("/")[0]
        try:
            listed = data_files(metadata)
        except ValueError as error:
            raise DamagedChangelogError(f"{path} does not list its files as Spark does") from error
        for file in listed:
            if (damage := self._of_data(inside(folder, f"{file.folder}/{file.name}"), file.size)) is not None:
                return damage
        return tail

    def _of_data(self, path: str, size: int) -> Damage | None:
        try:
            found = self._checkpoint.files.size(path)
        except FileNotFoundError:
            return self._missing(path)
        if found != size:
            return self._damage(path, f"has {found} bytes instead of {size}")
        if size > self._left:
            self.unread += size
            return None
        self._left -= size
        try:
            self._content(path)
        except DamagedChangelogError as error:
            return self._found(path, error)
        return None

    def _content(self, path: str) -> bytes:
        """Return the bytes of a file, compared with its checksum file."""
        content = self._checkpoint.files.content(path)
        if not content:
            raise DamagedChangelogError(f"{path} is {'missing' if content is None else 'empty'}")
        return verified(self._checkpoint.files.content, path, content)


def _no_records(path: str) -> Records:
    none = np.zeros(0, np.int64)
    buffer = np.zeros(0, np.uint8)
    return Records(buffer, none, none, none, none, buffer, version=1, lineage=None, path=path)


def stopping(damages: Sequence[Damage]) -> list[Damage]:
    """Return those because of which Spark cannot start."""
    return [damage for damage in damages if damage.stops]
