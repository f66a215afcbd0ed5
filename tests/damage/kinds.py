"""Kinds of damage to a checkpoint of six epochs, and what Spark makes of them: ``verdicts.json``."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from recorded.restarts import CHECKPOINTS

Damage = Callable[[Path], object]
"""Damages a file, or a checkpoint."""

PLAIN = tuple(name for name in CHECKPOINTS if name.endswith("/plain"))
SNAPSHOTS = tuple(name for name in CHECKPOINTS if name.endswith("/snapshot"))
SUMS = (*PLAIN, *SNAPSHOTS)
HDFS = ("HDFS/plain",)
ZIPS = ("RocksDB/plain", "changelog-1/snapshot", "changelog-2/snapshot", "changelog-2/processor")
CHANGES = tuple(name for name in SUMS if name != "RocksDB/plain")


@dataclass(frozen=True)
class Kind:
    """One kind of damage."""

    damage: Damage
    """Damages a checkpoint."""
    where: tuple[str, ...] = SUMS
    """The recorded checkpoints that can have it."""
    silent: str = ""
    """Why neither Spark nor we see it."""
    laxer: str = ""
    """Why our verdict is that Spark starts, although it does not."""
    stricter: str = ""
    """Why our verdict is that Spark does not start, although it does."""
    unknown: str = ""
    """Why there is no verdict."""


def checksums(file: Path) -> list[Path]:
    """Hadoop's checksum file, Spark's, and Hadoop's of that."""
    return [file.with_name(name) for name in (f".{file.name}.crc", f"{file.name}.crc", f".{file.name}.crc.crc")]


def unverified(file: Path) -> None:
    """Delete the checksum files, which there are not on every file system."""
    for checksum in checksums(file):
        checksum.unlink(missing_ok=True)


def deleted(file: Path) -> None:
    """Delete a file, and its checksum files."""
    file.unlink()
    unverified(file)


def emptied(file: Path) -> None:
    """Leave nothing of a file."""
    file.write_bytes(b"")


def halved(file: Path) -> None:
    """Leave half a file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut(file: Path) -> None:
    """Leave out the last byte."""
    file.write_bytes(file.read_bytes()[:-1])


def flipped(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(bytes(content))


def zeroed(file: Path) -> None:
    """Write zeros over everything."""
    file.write_bytes(bytes(file.stat().st_size))


def lengthened(file: Path) -> None:
    """Append something."""
    file.write_bytes(file.read_bytes() + b"more")


def without_directory(file: Path) -> None:
    """Leave out the directory at the end of a zip."""
    content = file.read_bytes()
    file.write_bytes(content[: content.index(b"PK\x01\x02")])


def silently(damage: Damage) -> Damage:
    """Damage a file that has no checksum files."""

    def both(file: Path) -> None:
        damage(file)
        unverified(file)

    return both


def lines(count: int) -> Damage:
    """Leave the first lines of a text file."""
    return silently(lambda file: file.write_text("\n".join(file.read_text().split("\n")[:count])))


def written(text: str) -> Damage:
    """Write another text."""

    def write(file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        unverified(file)

    return write


def edited(file: Path) -> None:
    """Change a text file by hand, in a way that does not matter to its readers."""
    file.write_text(file.read_text().replace('":', '": ', 1))


def at(path: str, damage: Damage) -> Damage:
    """Damage the file at a path in a checkpoint."""
    return lambda checkpoint: damage(checkpoint / path)


def gone(path: str) -> Damage:
    """Delete a folder."""
    return lambda checkpoint: shutil.rmtree(checkpoint / path)


def all_of(*damages: Damage) -> Damage:
    """Several damages."""
    return lambda checkpoint: [damage(checkpoint) for damage in damages]


def state_file(checkpoint: Path, version: int, kind: str | None = None, partition: int = 1) -> Path:
    """A file of a version in a partition; by default the one with its changes, or else its snapshot."""
    kinds = (kind,) if kind else ("delta", "changelog", "zip")
    files = [
        file
        for end in kinds
        for file in sorted((checkpoint / f"state/0/{partition}").iterdir())
        if re.fullmatch(rf"{version}(_[0-9a-f-]+)?\.{end}", file.name)
    ]
    return files[0]


def state(version: int, damage: Damage, kind: str | None = None) -> Damage:
    """Damage a file of a version."""
    return lambda checkpoint: damage(state_file(checkpoint, version, kind))


def newest_zip(checkpoint: Path) -> Path:
    """The newest snapshot of RocksDB in partition 1."""
    files = (checkpoint / "state/0/1").glob("[0-9]*.zip")
    return max(files, key=lambda file: int(re.split(r"[_.]", file.name)[0]))


def archive(damage: Damage) -> Damage:
    """Damage the newest snapshot of RocksDB."""
    return lambda checkpoint: damage(newest_zip(checkpoint))


def data_file(damage: Damage) -> Damage:
    """Damage a file that the newest snapshot of RocksDB lists."""

    def of(checkpoint: Path) -> None:
        with zipfile.ZipFile(newest_zip(checkpoint)) as opened:
            listed = json.loads(opened.read("metadata").partition(b"\n")[2])
        damage(checkpoint / "state/0/1/SSTs" / listed["sstFiles"][0]["dfsSstFileName"])

    return of


def ends_after(version: int) -> Damage:
    """Delete all state files after a version."""

    def end(checkpoint: Path) -> None:
        for file in _versioned(checkpoint, version):
            file.unlink()

    return end


def _versioned(checkpoint: Path, after: int) -> Iterator[Path]:
    for file in checkpoint.glob("state/0/[0-9]*/*"):
        number = re.match(r"\.?(\d+)[._]", file.name)
        if number and int(number[1]) > after:
            yield file


def from_other_partition(file: Path) -> None:
    """Put the file of the other partition in the place of a file."""
    shutil.copyfile(state_file(file.parents[3], 6, partition=0), file)
    unverified(file)


def checksum_of(number: int, content: bytes) -> Damage:
    """Write something over a checksum file, and delete Hadoop's of that."""

    def write(file: Path) -> None:
        checksums(file)[number].write_bytes(content)
        checksums(file)[2].unlink(missing_ok=True)

    return write


def all_in(folder: str, damage: Damage) -> Damage:
    """Damage all files in a folder."""

    def each(checkpoint: Path) -> None:
        for file in [file for file in (checkpoint / folder).iterdir() if not file.name.endswith(".crc")]:
            damage(file)

    return each


def moved(checkpoint: Path) -> None:
    """Have the metadata name the schemas where they were before the checkpoint was moved."""
    for file in (checkpoint / "state/0/_metadata/v2").glob("[0-9]*"):
        written(file.read_text().replace(str(checkpoint), f"{checkpoint}-before"))(file)


SCHEMA, OPERATOR = "state/0/0/_metadata/schema", "state/0/_metadata/metadata"
UNCOMMITTED = at("commits/5", deleted)
PLAN_TEXT = 'v1\n{"batchWater'
NO_SUMS = "No checksum file has it, and the file is one that Spark wrote: Spark starts, with wrong state."
LONGER = "Spark does not read to the end of a zip, so it does not notice that the checksum of its last bytes is wrong."
IN_DATA = "Without a checksum file only RocksDB itself finds a changed byte in its data."
NEWER = "A later Spark, which has written it, can start."
NO_FOLDER = "A query without state leaves no folder state/ either."

KINDS: Mapping[str, Kind] = {
    "nothing": Kind(lambda _checkpoint: None, CHECKPOINTS),
    # The newest version of one partition.
    "newest state deleted": Kind(state(6, deleted), (*SUMS, "changelog-2/processor")),
    "newest state deleted, checksums left": Kind(state(6, Path.unlink)),
    "newest state emptied": Kind(state(6, emptied)),
    "newest state emptied silently": Kind(state(6, silently(emptied))),
    "newest state halved": Kind(state(6, halved)),
    "newest state halved silently": Kind(state(6, silently(halved))),
    "newest state cut silently": Kind(state(6, silently(cut))),
    "newest state with a flipped bit": Kind(state(6, flipped)),
    "newest state with a flipped bit, silently": Kind(state(6, silently(flipped))),
    "newest state zeroed silently": Kind(state(6, silently(zeroed))),
    "newest state lengthened": Kind(state(6, lengthened), CHANGES),
    "newest state lengthened, zip": Kind(state(6, lengthened), ("RocksDB/plain",), stricter=LONGER),
    "newest state lengthened silently": Kind(state(6, silently(lengthened))),
    "newest state of the other partition": Kind(
        state(6, from_other_partition), ("HDFS/plain", "HDFS/snapshot", "changelog-1/plain"), silent=NO_SUMS
    ),
    "newest state of the other partition, lineage": Kind(state(6, from_other_partition), ("changelog-2/plain",)),
    "newest checksums gone": Kind(state(6, unverified)),
    "newest checksum of Hadoop garbled": Kind(state(6, checksum_of(0, b"garbage"))),
    "newest checksum of Hadoop emptied": Kind(state(6, checksum_of(0, b""))),
    "newest checksum of Spark garbled": Kind(
        state(6, checksum_of(1, b"garbage")), ("changelog-2/plain", "changelog-2/snapshot")
    ),
    # Earlier versions, snapshots, and everything.
    "state 5 deleted": Kind(state(5, deleted)),
    "state 5 emptied silently": Kind(state(5, silently(emptied))),
    "state 3 deleted": Kind(state(3, deleted)),
    "state 3 emptied silently": Kind(state(3, silently(emptied))),
    "state 1 deleted": Kind(state(1, deleted)),
    "state after the newest epoch": Kind(
        lambda checkpoint: (checkpoint / "state/0/1/7.delta").write_text("torn"), HDFS
    ),
    "snapshot deleted": Kind(state(4, deleted, "snapshot"), ("HDFS/snapshot",)),
    "snapshot emptied silently": Kind(state(4, silently(emptied), "snapshot"), ("HDFS/snapshot",)),
    "snapshot halved silently": Kind(state(4, silently(halved), "snapshot"), ("HDFS/snapshot",)),
    "snapshot with a flipped bit": Kind(state(4, flipped, "snapshot"), ("HDFS/snapshot",)),
    "snapshot halved, state 3 deleted": Kind(
        all_of(state(4, halved, "snapshot"), state(3, deleted)), ("HDFS/snapshot",)
    ),
    "zip deleted": Kind(archive(deleted), ZIPS),
    "zip emptied silently": Kind(archive(silently(emptied)), ZIPS),
    "zip halved silently": Kind(archive(silently(halved)), ZIPS),
    "zip with a flipped bit": Kind(archive(flipped), ZIPS),
    "zip with a flipped bit, silently": Kind(archive(silently(flipped)), ZIPS),
    "zip without its directory": Kind(archive(silently(without_directory)), ZIPS),
    "zip halved, state 3 deleted": Kind(
        all_of(archive(halved), state(3, deleted)), ("changelog-1/snapshot", "changelog-2/snapshot")
    ),
    "data of RocksDB deleted": Kind(data_file(deleted), ZIPS),
    "data of RocksDB emptied": Kind(data_file(emptied), ZIPS),
    "data of RocksDB halved silently": Kind(data_file(silently(halved)), ZIPS),
    "data of RocksDB with a flipped bit": Kind(data_file(flipped), ZIPS),
    "data of RocksDB with a flipped bit, silently": Kind(
        data_file(silently(flipped)), ("RocksDB/plain",), laxer=IN_DATA
    ),
    "partition gone": Kind(gone("state/0/1"), (*SUMS, "changelog-2/join", "changelog-2/processor")),
    "first partition gone": Kind(gone("state/0/0"), (*SUMS, "HDFS/single", "changelog-2/processor")),
    "operator gone": Kind(gone("state/0")),
    "state/ gone": Kind(gone("state"), (*SUMS, "HDFS/single"), unknown=NO_FOLDER),
    "state ends at version 3": Kind(ends_after(3)),
    "no state file": Kind(ends_after(0)),
    "newest state of a single partition deleted": Kind(at("state/0/0/6.delta", deleted), ("HDFS/single",)),
    "store of a join gone": Kind(gone("state/0/1/left-keyToNumValues"), ("changelog-2/join",)),
    "newest state of a join emptied silently": Kind(
        all_in("state/0/1/right-keyWithIndexToValue", lambda file: silently(emptied)(file) if file.is_file() else None),
        ("changelog-2/join",),
    ),
    # Schemas and metadata.
    "schema deleted": Kind(at(SCHEMA, deleted)),
    "schema emptied": Kind(at(SCHEMA, emptied)),
    "schema emptied silently": Kind(at(SCHEMA, silently(emptied))),
    "schema halved silently": Kind(at(SCHEMA, silently(halved))),
    "schema of a join emptied": Kind(
        at("state/0/0/left-keyToNumValues/_metadata/schema", emptied), ("changelog-2/join",)
    ),
    "schema emptied, operator metadata deleted": Kind(all_of(at(SCHEMA, emptied), at(OPERATOR, deleted)), HDFS),
    "operator metadata deleted": Kind(at(OPERATOR, deleted)),
    "operator metadata emptied": Kind(at(OPERATOR, emptied)),
    "operator metadata halved silently": Kind(at(OPERATOR, silently(halved))),
    "processor's metadata emptied": Kind(all_in("state/0/_metadata/v2", emptied), ("changelog-2/processor",)),
    "processor's metadata halved silently": Kind(
        all_in("state/0/_metadata/v2", silently(halved)), ("changelog-2/processor",)
    ),
    "processor's metadata gone": Kind(gone("state/0/_metadata"), ("changelog-2/processor",)),
    "processor's schema emptied": Kind(all_in("state/0/_stateSchema/default", emptied), ("changelog-2/processor",)),
    "processor's schema gone": Kind(gone("state/0/_stateSchema"), ("changelog-2/processor",)),
    "processor's checkpoint moved": Kind(moved, ("changelog-2/processor",)),
    "metadata deleted": Kind(at("metadata", deleted)),
    "metadata emptied": Kind(at("metadata", silently(emptied))),
    "metadata halved": Kind(at("metadata", silently(halved))),
    "metadata edited, checksum left": Kind(at("metadata", lengthened), HDFS),
    # The logs.
    "offsets/5 deleted": Kind(at("offsets/5", deleted)),
    "offsets/5 emptied": Kind(at("offsets/5", emptied), (*SUMS, "HDFS/stateless")),
    "offsets/5 halved": Kind(at("offsets/5", halved)),
    "offsets/5 halved silently": Kind(at("offsets/5", silently(halved))),
    "offsets/5 edited, checksum left": Kind(at("offsets/5", edited), HDFS),
    "offsets/5 edited silently": Kind(at("offsets/5", silently(edited)), HDFS),
    "offsets/5 with one line": Kind(at("offsets/5", lines(1))),
    "offsets/5 without a source": Kind(at("offsets/5", lines(2))),
    "offsets/5 cut in its last line": Kind(at("offsets/5", silently(cut))),
    "offsets/5 of a later version": Kind(at("offsets/5", written('v9\n{}\n{"logOffset":5}')), HDFS, unknown=NEWER),
    "offsets/4 deleted": Kind(at("offsets/4", deleted)),
    "offsets/4 emptied": Kind(at("offsets/4", emptied)),
    "offsets/4 without a source": Kind(at("offsets/4", lines(2))),
    "offsets/3 deleted": Kind(at("offsets/3", deleted)),
    "offsets/3 emptied": Kind(at("offsets/3", emptied)),
    "offsets gone": Kind(gone("offsets"), (*SUMS, "HDFS/stateless")),
    "offsets/6 empty": Kind(at("offsets/6", written("")), (*SUMS, "HDFS/stateless")),
    "offsets/6 torn": Kind(at("offsets/6", written(PLAN_TEXT))),
    "offsets/8 beyond a hole": Kind(
        lambda checkpoint: shutil.copyfile(checkpoint / "offsets/5", checkpoint / "offsets/8"), HDFS
    ),
    "commits/5 deleted": Kind(UNCOMMITTED),
    "commits/5 emptied": Kind(at("commits/5", emptied), (*SUMS, "HDFS/stateless")),
    "commits/5 halved": Kind(at("commits/5", halved)),
    "commits/5 halved silently": Kind(at("commits/5", silently(halved))),
    "commits/5 edited, checksum left": Kind(at("commits/5", edited), HDFS),
    "commits/5 with one line": Kind(at("commits/5", lines(1))),
    "commits/5 of a later version": Kind(at("commits/5", written("v9\n{}")), HDFS, unknown=NEWER),
    "commits/4 deleted": Kind(at("commits/4", deleted)),
    "commits/4 emptied": Kind(at("commits/4", emptied)),
    "commits 4 and 5 deleted": Kind(all_of(at("commits/4", deleted), at("commits/5", deleted))),
    "epoch 5 deleted from both logs": Kind(all_of(at("commits/5", deleted), at("offsets/5", deleted))),
    "commits gone": Kind(gone("commits")),
    "commits/7 without a plan": Kind(at("commits/7", written('v1\n{"nextBatchWatermarkMs":0}')), HDFS),
    "uncommitted, offsets/5 emptied": Kind(all_of(UNCOMMITTED, at("offsets/5", emptied))),
    "uncommitted, offsets/4 emptied": Kind(all_of(UNCOMMITTED, at("offsets/4", emptied))),
    "uncommitted, state 5 deleted": Kind(all_of(UNCOMMITTED, state(5, deleted))),
    "uncommitted, state 6 deleted": Kind(all_of(UNCOMMITTED, state(6, deleted))),
    "uncommitted, state 6 emptied": Kind(all_of(UNCOMMITTED, state(6, emptied)), ("changelog-2/plain",)),
    # The log of the files that were read.
    "sources/0/5 deleted": Kind(at("sources/0/5", deleted)),
    "sources/0/5 emptied": Kind(at("sources/0/5", emptied), (*SUMS, "HDFS/stateless")),
    "sources/0/5 halved": Kind(at("sources/0/5", silently(halved))),
    "sources/0/3 deleted": Kind(at("sources/0/3", deleted)),
    "sources/0/3 emptied": Kind(at("sources/0/3", emptied), HDFS),
    "sources/0 gone": Kind(gone("sources/0")),
    "sources/0/6 empty": Kind(at("sources/0/6", written(""))),
    "sources/0/9.compact deleted": Kind(at("sources/0/9.compact", deleted), ("HDFS/long",)),
    "sources/0/9.compact halved": Kind(at("sources/0/9.compact", silently(halved)), ("HDFS/long",)),
    "sources/0/8 deleted": Kind(at("sources/0/8", deleted), ("HDFS/long",)),
    "sources/0/10 deleted": Kind(at("sources/0/10", deleted), ("HDFS/long",)),
    "sources/0/11 halved": Kind(at("sources/0/11", silently(halved)), ("HDFS/long",)),
}
"""The kinds of damage by name."""

CASES = [(kind, checkpoint) for kind, how in KINDS.items() for checkpoint in how.where]


def damaged(kind: str, checkpoint: Path, copy: Path) -> Path:
    """A damaged copy of a recorded checkpoint."""
    shutil.copytree(checkpoint, copy)
    for metadata in copy.glob("state/0/_metadata/v2/[0-9]*"):
        written(metadata.read_text().replace(str(checkpoint), str(copy)))(metadata)
    KINDS[kind].damage(copy)
    return copy
