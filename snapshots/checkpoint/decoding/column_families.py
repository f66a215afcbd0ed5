"""The numbers of virtual column families, which precede each key in a RocksDB changelog.

Each partition of a store numbers its families itself, in the order in which the operator creates them; a number is
never used again. The numbers are in the ``metadata`` of the partition's snapshots. Spark writes a snapshot with every
commit that creates or removes a family, so the newest snapshot up to a version has the numbers that hold at it.
"""

from __future__ import annotations

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.rocksdb_snapshots import snapshot_archive
from streamstate.snapshots.checkpoint.state_files import StoreFiles


def family_numbers(checkpoint: CheckpointFiles, operator: int, epoch: int) -> dict[str, int]:
    """Return the number of each column family of an operator's only store, if all partitions agree on it.

    Raises:
        UnsupportedChangelogError: a partition has no snapshot up to the epoch.
        DamagedChangelogError: a snapshot is not one that Spark wrote.
    """
    partitions = checkpoint.partitions(epoch)
    if not partitions:
        raise UnsupportedChangelogError(f"The offset log does not tell the number of partitions at epoch {epoch}.")
    paths = [path for at in range(partitions) for path in _snapshots(checkpoint, operator, at, epoch)]
    return dict(set.intersection(*({*_read(checkpoint, path).items()} for path in paths)))


def _snapshots(checkpoint: CheckpointFiles, operator: int, partition: int, epoch: int) -> list[str]:
    """Return the newest snapshot of a partition up to an epoch; several if failed attempts cannot be told from it."""

    def ids(version: int) -> list[str]:
        stores = checkpoint.unique_ids(version - 1).get(str(operator), [])
        return stores[partition] if partition < len(stores) else []

    folder = f"{checkpoint.path}/state/{operator}/{partition}"
    found = StoreFiles(checkpoint.files.names(folder)).newest_snapshots(epoch + 1, ids)
    if not found:
        raise UnsupportedChangelogError(
            f"{folder} has no snapshot up to epoch {epoch}, so its keys cannot be told apart."
        )
    return [f"{folder}/{file.name}" for file in found]


def _read(checkpoint: CheckpointFiles, path: str) -> dict[str, int]:
    try:
        with checkpoint.files.open(path) as file, snapshot_archive(file, path) as (_, metadata):
            numbers = {str(name): int(number) for name, number in metadata["columnFamilyMapping"].items()}
    except FileNotFoundError as error:
        raise UnsupportedChangelogError(f"Spark has purged the snapshot {path}.") from error
    if len({*numbers.values()}) < len(numbers) or not all(0 <= number < 1 << 15 for number in numbers.values()):
        raise DamagedChangelogError(f"The snapshot {path} is damaged: two column families have one number.")
    return numbers
