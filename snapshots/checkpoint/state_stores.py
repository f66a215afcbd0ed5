"""The state stores of a checkpoint: a folder for each partition of an operator, in it one for each store of a join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError
from streamstate.snapshots.checkpoint.decoding.schema_files import family_schemas, has_columns
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles
from streamstate.snapshots.checkpoint.state_files import SIDE_FOLDERS, StateChain, StateFile, StoreFiles
from streamstate.snapshots.store.names import is_number

StateIds = Mapping[int, Mapping[str, Sequence[Sequence[str]]]]
"""In format 2, the unique ids in the commit log: by version, operator and partition."""


@dataclass(frozen=True)
class StateStore:
    """A store of an operator in one partition, as its folder was listed."""

    operator: int
    partition: int
    store: str
    """The store's folder in the partition's; empty for the operator's only store."""
    store_index: int
    """Its place among the stores of the partition, in the commit log."""
    families: bool
    """True if its rows are in column families, which only snapshots list."""
    listed: StoreFiles

    @property
    def folder(self) -> str:
        """Its folder inside the checkpoint, such as ``state/0/1/right-keyToNumValues``."""
        return f"state/{self.operator}/{self.partition}{f'/{self.store}' if self.store else ''}"

    def chain(self, version: int, ids: StateIds) -> StateChain:
        """Return the files that make up its state at a version, of all attempts that may have been committed."""

        def committed(at: int) -> Sequence[str] | None:
            partitions = ids.get(at, {}).get(str(self.operator), [])
            return partitions[self.partition] if self.partition < len(partitions) else None

        return self.listed.chain(version, committed)


def state_stores(root: str, files: ReadableFiles, original: CheckpointFiles, epoch: int) -> Iterator[StateStore]:
    """Return the stores with state at an epoch below a checkpoint's folder, by operator, partition and name.

    Also those whose files are all gone: every partition of an operator has the same stores.

    Args:
        root: the checkpoint's folder, or that of a fork that is being made.
        files: its file system.
        original: the checkpoint.
        epoch: the epoch; a state that once had more partitions leaves their folders behind.
    """
    planned = original.readable_plan(epoch)
    partitions = planned.partitions if planned else None
    for operator in numbers(files.names(f"{root}/state")):
        folder = f"{root}/state/{operator}"
        found = {
            partition: _stores_in(f"{folder}/{partition}", files)
            for partition in numbers(files.names(folder))
            if not partitions or partition < partitions
        }
        names = sorted({name for stores in found.values() for name in stores}) or [""]
        families = bool(files.names(f"{folder}/_stateSchema"))
        # An operator that works in a single partition has only the first.
        elsewhere = any(stores for partition, stores in found.items() if partition > 0)
        several = families or elsewhere or _has_keys(folder, names, files)
        for partition in range(partitions) if partitions and several else found or [0]:
            for name in names if several or not found.get(partition) else found[partition]:
                listed = found.get(partition, {}).get(name, StoreFiles(()))
                yield StateStore(operator, partition, name, names.index(name), families, listed)


def replay_ahead(checkpoint: CheckpointFiles, epoch: int) -> tuple[int, int]:
    """Return how much a start after an epoch replays on top of the newest snapshots.

    Returns:
        The most versions that a store replays, and about how many bytes they have in all stores: as many versions as
        large as the newest one.
    """
    versions = size = 0
    for store in state_stores(checkpoint.path, checkpoint.files, checkpoint, epoch):
        if changes := store.listed.since_snapshot:
            newest = checkpoint.files.size(f"{checkpoint.path}/{store.folder}/{changes[-1].name}")
            count = changes[-1].version - changes[0].version + 1
            versions, size = max(versions, count), size + count * newest
    return versions, size


def _stores_in(folder: str, files: ReadableFiles) -> dict[str, StoreFiles]:
    """Return the stores with files in a partition's folder, by name."""
    names = files.names(folder)
    found = {name: StoreFiles(files.names(f"{folder}/{name}")) for name in filter(may_be_store, sorted(names))}
    return {name: listed for name, listed in {"": StoreFiles(names), **found}.items() if listed.files}


def _has_keys(folder: str, stores: Sequence[str], files: ReadableFiles) -> bool:
    """Return whether an operator's rows have keys, so that they are spread over all partitions."""
    for store in stores:
        path = f"{folder}/0/{f'{store}/' if store else ''}_metadata/schema"
        try:
            schemas = family_schemas(files.content(path) or b"", path)
        except ChangelogError:
            continue
        return any(has_columns(schema.key) for schema in schemas.values())
    return False


def may_be_store(name: str) -> bool:
    """Return whether a name in a partition's folder may be a store's; a join has several."""
    hidden = name.startswith((".", "_")) or name.endswith(".crc")
    return not hidden and name not in SIDE_FOLDERS and StateFile.parse(name) is None


def numbers(names: Sequence[str]) -> list[int]:
    """Return the names that are numbers, ascending."""
    return sorted(int(name) for name in names if is_number(name))
