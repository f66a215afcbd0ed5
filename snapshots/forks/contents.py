"""What a fork takes over of a checkpoint: the files that make up the state at an epoch, and what describes them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import EpochGoneError
from streamstate.snapshots.forks.source_log import log_upto, source_batch
from streamstate.snapshots.forks.state_files import SIDE_FOLDERS, StateFile, StoreFiles
from streamstate.snapshots.forks.transfer import Transfer
from streamstate.snapshots.state_reader import no_state

__all__ = ["CAPTURED", "Contents", "gone", "is_state", "state_at"]

CAPTURED = (
    "\nAn epoch that was captured is in the store: a new query with transformWithState can begin with it"
    " (ss.initial_state, ss.start_offsets); no other operator takes rows from outside."
)
"""What is left of an epoch that the checkpoint does not hold."""
_PARTITIONS = "spark.sql.shuffle.partitions"


def is_state(path: str) -> bool:
    """Whether a path is of a file of a version of a store."""
    return StateFile.parse(path.rsplit("/", 1)[-1]) is not None


def _sources(
    original: Checkpoint, transfer: Transfer, offsets: Sequence[str | None]
) -> tuple[dict[str, str], list[str]]:
    """What the sources wrote down: the logs of file sources up to their offsets, and the folders of others."""
    texts: dict[str, str] = {}
    trees: list[str] = []
    logged = {int(name) for name in transfer.files.names(f"{original.path}/sources") if name.isdigit()}
    for at, offset in enumerate(offsets):
        folder, last = f"sources/{at}", source_batch(offset)
        if last is None:
            trees.append(folder)
        elif at in logged or not _shared(at, offsets, logged):
            log = log_upto(transfer.files, f"{original.path}/{folder}", last)
            texts |= {f"{folder}/{name}": text for name, text in log.items()}
    return texts, trees


def _shared(at: int, offsets: Sequence[str | None], logged: Collection[int]) -> bool:
    """Whether a source is another one read twice, as in a join of a stream with itself: only the first has a log."""
    return any(other in logged and offsets[other] == offsets[at] for other in range(at))


@dataclass(frozen=True)
class Contents:
    """What a fork takes over, as paths inside the checkpoint."""

    state: Sequence[str]
    """Files of the state and its schemas, into which nobody writes: to be linked."""
    small: Sequence[str]
    """Text files, of which the fork gets its own."""
    texts: Mapping[str, str]
    """Files that are written anew."""
    trees: Sequence[str]
    """Folders of small files."""

    @classmethod
    def of(cls, original: Checkpoint, transfer: Transfer, epoch: int) -> Contents:
        """What a fork at an epoch takes over.

        Raises:
            EpochGoneError: part of the epoch's state, offsets or source log is gone.
            NoStateError: the query keeps no state.
        """
        planned = original.planned(epoch)
        if planned is None:
            raise gone(original, epoch)
        if not original.has_state():
            raise no_state(original.path)
        state = [*state_at(original.path, transfer, original, epoch), *_schemas(transfer, original)]
        texts, trees = _sources(original, transfer, planned.offsets)
        # Spark asks for the offsets before the last as well, and the epoch before must not look committed.
        small = [
            f"offsets/{epoch - 1}",
            f"offsets/{epoch}",
            f"commits/{epoch}",
            *_metadata(transfer, original, epoch),
        ]
        return cls(state, small, texts, trees)


def state_at(root: str, transfer: Transfer, original: Checkpoint, epoch: int) -> Iterator[str]:
    """The state files at an epoch of every store under a checkpoint, checksums included.

    Args:
        root: the checkpoint's folder: the original's, or a fork's that is being made.
        transfer: reads it.
        original: what is asked which of several attempts at a version was committed.
        epoch: the epoch.

    Raises:
        EpochGoneError: where some are gone.
    """
    ids = original.state_ids(epoch)
    for store, operator, partition in _stores(root, transfer, original, epoch):
        listed = StoreFiles(transfer.files.names(f"{root}/{store}"))
        known = {version: of[partition] for version, one in ids.items() if partition < len(of := one.get(operator, []))}
        chain = listed.chain(epoch + 1, known)
        if chain is None:
            raise gone(original, epoch)
        for one in chain:
            yield from (f"{store}/{name}" for name in (one.name, *listed.beside(one.name)))
        yield from _named_in_zips(root, store, chain, transfer)


def _stores(root: str, transfer: Transfer, original: Checkpoint, epoch: int) -> Iterator[tuple[str, str, int]]:
    """Folders of stores with state below a checkpoint, and whose: ``state/0/1/right-…``, operator, partition."""
    planned = original.planned(epoch)
    spread = int(planned.conf.get(_PARTITIONS, 0)) if planned is not None else 0
    for operator in _numbers(transfer.files.names(f"{root}/state")):
        for partition in _numbers(transfer.files.names(f"{root}/state/{operator}")):
            # Of a state that had more partitions once, the folders of those stay behind.
            if spread and partition >= spread:
                continue
            folder = f"state/{operator}/{partition}"
            names = transfer.files.names(f"{root}/{folder}")
            if StoreFiles(names).files:
                yield folder, str(operator), partition
            for name in sorted(names):
                if _may_be_store(name):
                    inside = transfer.files.names(f"{root}/{folder}/{name}")
                    if StoreFiles(inside).files:
                        yield f"{folder}/{name}", str(operator), partition


def _named_in_zips(root: str, store: str, chain: Sequence[StateFile], transfer: Transfer) -> Iterator[str]:
    """The files that RocksDB's whole states name, each once."""
    seen: set[str] = set()
    for one in chain:
        if one.kind != "zip":
            continue
        _version, _, told = transfer.in_zip(f"{root}/{store}/{one.name}", "metadata").partition("\n")
        metadata = json.loads(told)
        for kind, folder in (("sstFiles", "SSTs"), ("logFiles", "logs")):
            names = [
                file["dfsSstFileName" if kind == "sstFiles" else "dfsLogFileName"] for file in metadata.get(kind) or ()
            ]
            present = set(transfer.files.names(f"{root}/{store}/{folder}")) if names else set()
            for name in names:
                beside = [other for other in (f".{name}.crc", f"{name}.crc") if other in present]
                seen |= {f"{store}/{folder}/{other}" for other in (name, *beside)}
    yield from sorted(seen)


def _metadata(transfer: Transfer, original: Checkpoint, epoch: int) -> Iterator[str]:
    """What the operators were up to an epoch."""
    for operator in original.operators():
        for path in _files_below(transfer, original.path, f"state/{operator}/_metadata"):
            name = path.rsplit("/", 1)[-1]
            if not name.isdigit() or int(name) <= epoch:
                yield path


def _schemas(transfer: Transfer, original: Checkpoint) -> Iterator[str]:
    """The files with the schemas of the state, each under a name that is written once."""
    for operator in original.operators():
        folder = f"state/{operator}"
        yield from _files_below(transfer, original.path, f"{folder}/_stateSchema")
        for partition in _numbers(transfer.files.names(f"{original.path}/{folder}")):
            yield from _files_below(transfer, original.path, f"{folder}/{partition}/_metadata")
            for name in transfer.files.names(f"{original.path}/{folder}/{partition}"):
                if _may_be_store(name):
                    yield from _files_below(transfer, original.path, f"{folder}/{partition}/{name}/_metadata")


def _files_below(transfer: Transfer, root: str, folder: str) -> Iterator[str]:
    """Files under a folder, hidden ones left out."""
    for name in sorted(transfer.files.names(f"{root}/{folder}")):
        if name.startswith("."):
            continue
        if [one for one in transfer.files.names(f"{root}/{folder}/{name}") if not one.startswith(".")]:
            yield from _files_below(transfer, root, f"{folder}/{name}")
        else:
            yield f"{folder}/{name}"


def _may_be_store(name: str) -> bool:
    """Whether a name in a partition's folder may be a store's, as a join has several."""
    return not name.startswith((".", "_")) and name not in SIDE_FOLDERS and StateFile.parse(name) is None


def _numbers(names: Sequence[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())


def gone(original: Checkpoint, epoch: int) -> EpochGoneError:
    """The error for an epoch that the commit log lists, and whose state is not whole any more."""
    committed = original.committed()
    later = [one for one in committed if one > epoch]
    newer = f"Fork at a later one (up to {later[-1]}), or raise" if later else "Raise"
    return EpochGoneError(
        f"The state of epoch {epoch} of {original.path} is no longer whole: Spark has purged part of it.\n"
        f"{newer} spark.sql.streaming.minBatchesToRetain before the query starts, to keep more epochs."
        f"{CAPTURED}"
    )
