"""Damaged files raise an error or come back as they were, wherever anything verifies their bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from changelog.spark_files import (
    CODECS,
    Change,
    StateFile,
    changelog,
    changes_of,
    compressed,
    hadoop_sidecar,
    lz4,
    recorded_files,
    spark_sidecar,
)
from streamstate.snapshots.checkpoint.decoding.changelog_records import DELETE, PUT, records_of
from streamstate.snapshots.checkpoint.decoding.compression import decompressed
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import Proof, verify

Damage = Callable[[bytes, random.Random], bytes]


def _flipped(content: bytes, rng: random.Random, bits: int = 1) -> bytes:
    changed = bytearray(content)
    for _ in range(bits):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _without_a_part(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.sample(range(len(content) + 1), 2))
    return content[:start] + content[end:]


def _zeroed(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.sample(range(len(content) + 1), 2))
    return content[:start] + bytes(end - start) + content[end:]


def _with_another_header(content: bytes, rng: random.Random) -> bytes:
    size = min(rng.randrange(1, 32), len(content))
    return rng.randbytes(size) + content[size:]


DAMAGES: Mapping[str, Damage] = {
    "one bit": _flipped,
    "four bits": lambda content, rng: _flipped(content, rng, 4),
    "cut": lambda content, rng: content[: rng.randrange(1, len(content))],
    "a part missing": _without_a_part,
    "zeroed": _zeroed,
    "header": _with_another_header,
    "emptied": lambda _content, _rng: b"",
    "doubled": lambda content, _rng: content * 2,
}


def _read(file: StateFile) -> list[Change]:
    verify(file.content, file.path, spark=file.spark, hadoop=file.hadoop)
    return changes_of(records_of(decompressed(file.content, file.path), file.path))


def _outcomes(files: list[StateFile], count: int, seed: int) -> Counter[tuple[Proof, str, str]]:
    """Damage files so many times, and count errors, unchanged records and wrong ones by proof and damage."""
    rng, outcomes = random.Random(seed), Counter[tuple[Proof, str, str]]()
    originals = {file: _read(file) for file in files}
    for number in range(count):
        file = rng.choice(files)
        name = rng.choice([*DAMAGES])
        content = DAMAGES[name](file.content, rng)
        damaged = StateFile(file.path, content, file.spark, file.hadoop)
        try:
            outcome = "as it was" if _read(damaged) == originals[file] else "wrong"
        except ChangelogError:
            outcome = "error"
        assert outcome != "as it was" or content == file.content or not (file.spark or file.hadoop), number
        outcomes[verify(file.content, file.path, spark=file.spark, hadoop=file.hadoop), name, outcome] += 1
    return outcomes


def _recorded(versions: tuple[str, ...]) -> list[StateFile]:
    """Recorded files with each of the proofs that they could have."""
    files = [file for version in versions for file in recorded_files(version)]
    alone = [StateFile(file.path, file.content) for file in files]
    local = [StateFile(file.path, file.content, hadoop=file.hadoop) for file in files]
    remote = [StateFile(file.path, file.content, spark=file.spark) for file in files if file.spark]
    return alone + local + remote


def _synthetic(codecs: tuple[str, ...]) -> list[StateFile]:
    rng, files = random.Random(3), []
    for codec in codecs:
        for version in (1, 2, 3, 4):
            for sizes in (range(24, 25), range(8, 60)):
                changes = [_change(rng, sizes) for _ in range(120)]
                content = compressed(changelog(changes, version), codec, block=1024)
                files.append(StateFile("1.changelog", content))
                files.append(StateFile("1.changelog", content, spark=spark_sidecar(content)))
                files.append(StateFile("1.changelog", content, hadoop=hadoop_sidecar(content)))
    return files


def _change(rng: random.Random, sizes: range) -> Change:
    """Keys and values such as Spark's rows: mostly zeros and small numbers."""
    key, value = (
        bytes(rng.choice((0, 0, 0, 0, 8, 24, rng.randrange(256))) for _ in range(rng.choice(sizes))) for _ in "kv"
    )
    return (DELETE, key, None) if len(sizes) > 1 and rng.random() < 0.1 else (PUT, key, value)


def _wrong(outcomes: Counter[tuple[Proof, str, str]]) -> int:
    return sum(count for (_, _, outcome), count in outcomes.items() if outcome == "wrong")


def test_recorded_files_that_are_damaged_never_give_wrong_records() -> None:
    """With a checksum file, and with only the hashes of lz4."""
    assert _wrong(_outcomes(_recorded(("4.1", "4.2")), 400, seed=1)) == 0


def test_written_files_that_are_damaged_never_give_wrong_records() -> None:
    """In every codec, as far as a checksum file or the codec itself verifies the bytes."""
    files = [
        file
        for file in _synthetic(CODECS)
        if verify(file.content, file.path, spark=file.spark, hadoop=file.hadoop) is not Proof.NONE
    ]
    assert _wrong(_outcomes(files, 400, seed=2)) == 0


@pytest.mark.exhaustive
def test_no_damage_gives_wrong_records() -> None:
    """Many more files and damages."""
    outcomes = _outcomes(_recorded(("3.4", "3.5", "4.0", "4.1", "4.2")) + _synthetic(("lz4",)), 30_000, seed=4)
    assert _wrong(outcomes) == 0
    assert {proof for proof, _, _ in outcomes} == {Proof.SPARK, Proof.HADOOP, Proof.CODEC}


def test_without_any_sums_a_flipped_bit_can_go_unseen() -> None:
    """Zstd as Spark writes it, and snappy, without a checksum file: only what breaks the structure is an error.

    Files that are emptied, doubled or cut are still seen. Spark does not verify such bytes either: its readers return
    the same wrong rows.
    """
    files = [StateFile(file.path, file.content) for file in _synthetic(("zstd", "snappy"))]
    outcomes = _outcomes(files, 600, seed=5)
    assert {proof for proof, _, _ in outcomes} == {Proof.NONE}
    wrong = {name for _, name, outcome in outcomes if outcome == "wrong"}
    assert "one bit" in wrong
    assert not wrong & {"emptied", "doubled", "cut"}


def test_a_missing_block_of_lz4_can_go_unseen_without_a_checksum_file() -> None:
    """A block is a whole number of records here; each block that is left has the right hash."""
    changes: list[Change] = [(PUT, bytes(24), number.to_bytes(32, "big")) for number in range(48)]
    whole = lz4(changelog(changes, 1), block=1024)
    blocks = whole.split(b"LZ4Block")
    missing = b"LZ4Block".join(blocks[:2] + blocks[3:])
    assert _read(StateFile("1.delta", missing)) == changes[:16] + changes[32:]
    for sidecar in ({"spark": spark_sidecar(whole)}, {"hadoop": hadoop_sidecar(whole)}):
        with pytest.raises(ChangelogError):
            _read(StateFile("1.delta", missing, **sidecar))


def test_the_file_of_another_epoch_shows_only_in_a_checksum_file() -> None:
    """Its bytes are what Spark wrote, but elsewhere."""
    first, second = (
        file
        for file in recorded_files("4.1")
        if file.path.endswith(("HDFS/aggregation/state/0/0/1.delta", "HDFS/aggregation/state/0/0/2.delta"))
    )
    assert _read(StateFile(first.path, second.content)) == _read(second)
    for swapped in (
        StateFile(first.path, second.content, spark=first.spark),
        StateFile(first.path, second.content, hadoop=first.hadoop),
    ):
        with pytest.raises(ChangelogError):
            _read(swapped)
