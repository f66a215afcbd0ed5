"""Files that a fork takes over from a checkpoint: the state at an epoch, and the descriptions of it.

Also the errors for epochs whose files are no longer all there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streamstate.errors import EpochGoneError, UntrustedCheckpointError, worded
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import Damage
from streamstate.snapshots.checkpoint.damage.epochs import EpochDamage
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError
from streamstate.snapshots.checkpoint.decoding.rocksdb_sst import snapshot_archive
from streamstate.snapshots.checkpoint.decoding.state_schema import check_schema
from streamstate.snapshots.checkpoint.file_source_log import log_upto
from streamstate.snapshots.checkpoint.filesystem import Files
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.checkpoint.state_files import SIDE_FOLDERS, StateFile, data_files
from streamstate.snapshots.checkpoint.state_stores import numbers, state_stores
from streamstate.snapshots.spark.state_reader import no_state
from streamstate.snapshots.store.names import is_base_name, is_number

_NEAR = 10


def store_hint() -> str:
    """Return a line about an epoch that only the store still holds."""
    how = worded(
        "Snapshot.restore makes a checkpoint from it",
        magic="%stream fork makes a checkpoint from it",
        command="streamstate restore makes a checkpoint from it",
    )
    return f"\nIf the epoch was captured, the store still has it: {how}."


def described(original: CheckpointFiles, files: Files, epoch: int) -> ForkContents:
    """Return the descriptions of the state at an epoch, without its rows: a few kilobytes."""
    copied = [
        f"offsets/{epoch - 1}",
        f"offsets/{epoch}",
        f"commits/{epoch}",
        *_operator_metadata(files, original, epoch),
    ]
    return ForkContents([*_schema_files(files, original, most=1)], copied, {}, [])


@dataclass(frozen=True)
class ForkContents:
    """The files that a fork takes over, as paths inside the checkpoint."""

    linked: Sequence[str]
    """Files of the state and its schemas, which are never modified."""
    copied: Sequence[str]
    """Small text files, of which the fork gets its own."""
    texts: Mapping[str, str]
    """Small text files that the original does not have in this form."""
    folders: Sequence[str]
    """Folders of small files."""

    @classmethod
    def of(cls, original: CheckpointFiles, files: Files, epoch: int) -> ForkContents:
        """Return the files that a fork at an epoch takes over."""
        planned = original.planned(epoch)
        if planned is None:
            raise epoch_gone(original, files, epoch)
        if not original.has_state():
            raise no_state(original)
        described = cls.without_state(original, files, epoch, planned)
        linked = [*state_files_at(original.path, files, original, epoch), *described.linked]
        # Spark also asks for the offsets of the epoch before, which must not look committed.
        before = f"offsets/{epoch - 1}"
        texts = dict(described.texts)
        if epoch > 0 and original.readable_plan(epoch - 1) is None:
            texts[before] = files.text(f"{original.path}/offsets/{epoch}") or ""
        logs = [*([before] if before not in texts else []), f"offsets/{epoch}", f"commits/{epoch}"]
        return replace(described, linked=linked, copied=[*logs, *described.copied], texts=texts)

    @classmethod
    def without_state(cls, original: CheckpointFiles, files: Files, epoch: int, planned: PlannedEpoch) -> ForkContents:
        """The same without the state, and without the logs of offsets and commits: sources, metadata and schemas."""
        texts, folders = source_files(original, files, planned)
        texts |= _missing_metadata(original)
        schemas = [*_schema_files(files, original)]
        for path in schemas:
            check_schema(f"{original.path}/{path}", files)
        return cls(schemas, [*_operator_metadata(files, original, epoch)], texts, folders)


def is_state_file(path: str) -> bool:
    """Return whether a path is that of a versioned file of a state store."""
    return StateFile.parse(path.rsplit("/", 1)[-1]) is not None


def state_files_at(root: str, files: Files, original: CheckpointFiles, epoch: int) -> Iterator[str]:
    """Return the state files at an epoch of every store below a checkpoint's folder, checksums included.

    The original knows which of several attempts at a version was committed, also for a fork that is being made.
    """
    ids = original.state_ids(epoch)
    for store in state_stores(root, files, original, epoch):
        chain = store.chain(epoch + 1, ids)
        if chain.missing is not None:
            raise epoch_gone(original, files, epoch)
        for file in chain.files:
            yield from (f"{store.folder}/{name}" for name in (file.name, *store.listed.beside(file.name)))
        yield from _files_named_in_zips(root, store.folder, chain.files, files)


def _files_named_in_zips(root: str, store: str, chain: Sequence[StateFile], files: Files) -> Iterator[str]:
    """Return the files that RocksDB's snapshots name, each once."""
    found: set[str] = set()
    for file in chain:
        if file.kind != "zip":
            continue
        path = f"{root}/{store}/{file.name}"
        for folder, names in _names_in_zip(files, path).items():
            present = set(files.names(f"{root}/{store}/{folder}")) if names else set()
            for name in names:
                checksums = [checksum for checksum in (f".{name}.crc", f"{name}.crc") if checksum in present]
                found |= {f"{store}/{folder}/{file_name}" for file_name in (name, *checksums)}
    yield from sorted(found)


def _names_in_zip(files: Files, path: str) -> dict[str, list[str]]:
    """Return the names of the files that a RocksDB snapshot lists, by their folder.

    Only plain file names are accepted: Spark itself joins them to folders unchecked.
    """
    try:
        with files.open(path) as file, snapshot_archive(file, path) as (_, metadata):
            listed = data_files(metadata)
    except ChangelogError as error:
        raise UntrustedCheckpointError.file(path, f"does not list its files as Spark does: {error}") from error
    for name in (name for file in listed for name in (file.name, file.local_name)):
        if not is_base_name(name):
            raise UntrustedCheckpointError.file(path, f"names the file {name!r}, which is not in its folder")
    return {folder: [file.name for file in listed if file.folder == folder] for folder in SIDE_FOLDERS}


def source_files(original: CheckpointFiles, files: Files, planned: PlannedEpoch) -> tuple[dict[str, str], list[str]]:
    """Return the logs of file sources up to an epoch's offsets, and the folders of other sources."""
    texts: dict[str, str] = {}
    folders: list[str] = []
    logged = {int(name) for name in files.names(f"{original.path}/sources") if is_number(name)}
    for at, (folder, offset) in enumerate(zip(planned.logs, planned.offsets, strict=True)):
        last = file_batch(offset)
        if last is None:
            folders.append(folder)
        elif planned.names or at in logged or not _shares_log(at, planned.offsets, logged):
            log = log_upto(files, f"{original.path}/{folder}", last)
            texts |= {f"{folder}/{name}": text for name, text in log.items()}
    return texts, folders


def _shares_log(at: int, offsets: Sequence[str | None], logged: Collection[int]) -> bool:
    """Return whether a source is an earlier one read twice, as in a self-join: only the first has a log."""
    return any(earlier in logged and offsets[earlier] == offsets[at] for earlier in range(at))


def _operator_metadata(files: Files, original: CheckpointFiles, epoch: int) -> Iterator[str]:
    """Return the metadata files of the operators up to an epoch."""
    for operator in original.operators():
        for path in _files_below(files, original.path, f"state/{operator}/_metadata"):
            name = path.rsplit("/", 1)[-1]
            if not is_number(name) or int(name) <= epoch:
                yield path


def _missing_metadata(original: CheckpointFiles) -> dict[str, str]:
    """Metadata for operators that an older Spark did not describe.

    A newer Spark would add it when the fork first starts, and refuses a query whose operators are described
    differently, or only some of them: if one is uncertain, none is described.
    """
    operators = original.legacy_operators()
    if not all(operator.certain for operator in operators):
        return {}
    return {f"state/{operator.number}/_metadata/metadata": operator.metadata() for operator in operators}


def _schema_files(files: Files, original: CheckpointFiles, most: int | None = None) -> Iterator[str]:
    """Return the files with the schemas of the state, which are written once; of all partitions, or the first ones."""
    for operator in original.operators():
        folder = f"state/{operator}"
        yield from _files_below(files, original.path, f"{folder}/_stateSchema")
        for partition in numbers(files.names(f"{original.path}/{folder}"))[:most]:
            below = _files_below(files, original.path, f"{folder}/{partition}")
            yield from (path for path in below if path.rsplit("/", 2)[1] == "_metadata")


def _files_below(files: Files, root: str, folder: str) -> Iterator[str]:
    """Return files under a folder, without hidden ones."""
    for name in sorted(files.tree(f"{root}/{folder}")):
        if not name.endswith("/") and not any(part.startswith(".") for part in name.split("/")):
            yield f"{folder}/{name}"


def why_unavailable(checkpoint: CheckpointFiles, epoch: int) -> str:
    """Explain that an epoch cannot be forked or replayed, as the end of a sentence: "is gone: Spark has purged it"."""
    committed = checkpoint.committed()
    if not committed or epoch < 0 or epoch > committed[-1]:
        return "was never committed"
    if epoch not in committed:
        return "is gone: Spark has purged it"
    if checkpoint.skipped(epoch):
        return (
            "has no state: it was planned but never finished, and Spark dropped it when it repartitioned the state in"
            f" epoch {epoch + 1}"
        )
    if checkpoint.repartitioned(epoch):
        return (
            f"is incomplete: in it Spark only repartitioned the state to {checkpoint.partitions(epoch)} partitions, and"
            " part of what it wrote is missing, so Spark cannot read it either"
        )
    repartitioned = next((number for number in committed if checkpoint.repartitioned(number)), None)
    if repartitioned is None:
        damage = _lost(checkpoint, epoch)
        return "is incomplete: Spark has purged part of it" if damage is None else f"is damaged: {damage}"
    return (
        "is incomplete: Spark has purged part of it, or did not carry all of it over when it repartitioned the state to"
        f" {checkpoint.partitions(repartitioned)} partitions in epoch {repartitioned}"
    )


def _lost(checkpoint: CheckpointFiles, epoch: int) -> Damage | None:
    """Return the file that an epoch lacks although Spark has not purged it; None if there is none."""
    damage = EpochDamage(checkpoint, read=False)
    found = damage.of_state(epoch)
    return None if found is None or damage.purged(epoch) else found


def nearest_epochs(epochs: Sequence[int], epoch: int) -> str:
    """Return the epochs before and after an epoch, for a message; empty if there are none."""
    before = [number for number in epochs if number < epoch][-1:]
    after = [number for number in epochs if number > epoch][:1]
    return f"nearest: {', '.join(map(str, before + after))}" if before or after else ""


def epoch_gone(original: CheckpointFiles, files: Files, epoch: int) -> EpochGoneError:
    """Return the error for an epoch that the commit log lists, but whose state is incomplete."""
    committed = original.committed()
    # Only a few of them, because listing the files of many partitions takes time.
    around = [number for number in committed if number < epoch][-_NEAR:]
    around += [number for number in committed if number > epoch][:_NEAR]
    ids = original.state_ids(around[-1]) if around else {}
    complete = [
        number
        for number in around
        if not original.skipped(number)
        and all(
            store.chain(number + 1, ids).missing is None
            for store in state_stores(original.path, files, original, number)
        )
    ]
    near = nearest_epochs(complete, epoch)
    ways = [f"fork at a complete epoch ({near})"] if near else []
    if _lost(original, epoch) is None:
        ways.append("raise spark.sql.streaming.minBatchesToRetain before the query starts, to keep more epochs")
    else:
        ways.append("restore the file from a backup")
    advice = ", or ".join(ways)
    return EpochGoneError(
        f"The state of epoch {epoch} of {original.path} {why_unavailable(original, epoch)}.\n"
        f"{advice[0].upper()}{advice[1:]}.{store_hint()}"
    )
