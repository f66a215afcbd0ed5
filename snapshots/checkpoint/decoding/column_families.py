"""The numbers of virtual column families, which stand in front of each key in a RocksDB changelog.

Each partition of a store numbers its families itself, in the order in which the operator creates them; a number is
never used again. The numbers are in the ``metadata`` of the partition's snapshots. Spark writes a snapshot with every
commit that creates or removes a family, so the newest snapshot up to a version has the numbers that hold at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.rocksdb_snapshots import snapshot_archive

_SNAPSHOT = re.compile(r"(\d+)(?:_([\w-]+))?\.zip", re.ASCII)


def family_numbers(checkpoint: CheckpointFiles, operator: int, epoch: int) -> dict[str, int]:
    """The number of each column family of an operator's only store at an epoch; those that all partitions agree on.

    Raises:
        UnsupportedChangelogError: a partition has no snapshot up to the epoch.
        DamagedChangelogError: a snapshot is not one that Spark wrote.
    """
    partitions = checkpoint.partitions(epoch)
    if not partitions:
        raise UnsupportedChangelogError(f"The offset log does not tell the number of partitions at epoch {epoch}.")
    ids = cache(lambda version: checkpoint.unique_ids(version - 1).get(str(operator), []))
    folders = [f"{checkpoint.path}/state/{operator}/{partition}" for partition in range(partitions)]
    paths = [path for at, folder in enumerate(folders) for path in _snapshots(checkpoint, folder, epoch, at, ids)]
    agreed = set.intersection(*({*_read(checkpoint, path).items()} for path in paths))
    return dict(agreed)


def _snapshots(
    checkpoint: CheckpointFiles, folder: str, epoch: int, partition: int, ids: Callable[[int], list[list[str]]]
) -> list[str]:
    """The newest snapshot of a partition up to an epoch; several if failed attempts cannot be told from it."""
    versions: dict[int, dict[str | None, str]] = {}
    for name in checkpoint.files.names(folder):
        if (match := _SNAPSHOT.fullmatch(name)) and int(match[1]) <= epoch + 1:
            versions.setdefault(int(match[1]), {})[match[2]] = f"{folder}/{name}"
    for version in sorted(versions, reverse=True):
        committed = [stores[0] for stores in ids(version)[partition : partition + 1] if stores]
        if not committed:
            return [*versions[version].values()]  # format 1, or Spark has purged the commit
        if committed[0] in versions[version]:
            return [versions[version][committed[0]]]
    raise UnsupportedChangelogError(f"{folder} has no snapshot up to epoch {epoch}, so its keys cannot be told apart.")


def _read(checkpoint: CheckpointFiles, path: str) -> dict[str, int]:
    try:
        with checkpoint.files.open(path) as file, snapshot_archive(file, path) as (_, metadata):
            numbers = {str(name): int(number) for name, number in metadata["columnFamilyMapping"].items()}
    except FileNotFoundError as error:
        raise UnsupportedChangelogError(f"Spark has purged the snapshot {path}.") from error
    if len({*numbers.values()}) < len(numbers) or not all(0 <= number < 1 << 15 for number in numbers.values()):
        raise DamagedChangelogError(f"The snapshot {path} is damaged: two column families have one number.")
    return numbers
