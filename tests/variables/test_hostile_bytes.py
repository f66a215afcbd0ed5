"""Bytes that were damaged, or made on purpose, never give a wrong value, and never end the process."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from memory_peak import measured

from streamstate.errors import VariableError
from streamstate.variables import version_bytes
from streamstate.variables.declaration import Declaration
from streamstate.variables.model_merges import Sketch
from streamstate.variables.version_bytes import (
    VersionEntry,
    decoded_contribution,
    decoded_version,
    encoded_contribution,
    encoded_version,
)
from variables.forked import survives
from variables.staging import declared

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
KLL = "struct<n: bigint, min: double, max: double, p50: double, p90: double, p99: double>"


def sketch(merge: str, items: int) -> bytes:
    """A sketch of some items."""
    made = Sketch(merge, declared("double" if merge == "hll" else KLL, merge).type, lambda a, _: a)
    collected = None
    for number in range(items):
        collected = made.collected(collected, "v", float(number % 1009))
    return bytes(made.finished(collected))


VARIABLES: dict[str, tuple[Declaration, Any]] = {
    "number": (declared("double", init=60.0), 45.5),
    "map": (declared("map<string, double>"), {f"key {number}": float(number) for number in range(20)}),
    "list": (declared("list<string>", "append(100)"), [f"item {number}" for number in range(20)]),
    "struct": (declared("struct<a: bigint, b: array<struct<c: string>>>"), {"a": 1, "b": [{"c": "x"}, {"c": None}]}),
    "hll": (declared("double", "hll"), sketch("hll", 500)),
    "kll": (declared(KLL, "kll"), sketch("kll", 2_000)),
}


def version(name: str) -> tuple[Declaration, bytes]:
    """A version of a variable, as bytes."""
    declaration, state = VARIABLES[name]
    change = dict([next(iter(state.items()))]) if name == "map" else state
    entry = VersionEntry(7, "merge", "query", WHEN, 2, {"query": 6}, 6, 3, state=state, change=change)
    return declaration, encoded_version(entry, declaration)


def read(declaration: Declaration, data: bytes) -> Any:
    """Return a version's entry, and its value."""
    entry = decoded_version(7, data, declaration, with_state=True, what="Version 7")
    return entry, declaration.merging.value(entry.state)


FLIPS = [100, pytest.param(6_000, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("flips", FLIPS)
def test_no_flipped_bit_gives_a_value(flips: int) -> None:
    """Each is an error that names the version."""
    chance = random.Random(4)
    for number in range(flips):
        declaration, data = version([*VARIABLES][number % len(VARIABLES)])
        bit, damaged = chance.randrange(8 * len(data)), bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(VariableError, match="Version 7 is damaged"):
            read(declaration, bytes(damaged))
        with pytest.raises(VariableError, match="Version 7 is damaged"):
            read(declaration, data[: chance.randrange(len(data))])


def test_a_flipped_bit_of_a_contribution_is_an_error() -> None:
    """Wherever it is."""
    declaration, state = VARIABLES["kll"]
    data = encoded_contribution(state, declaration)
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 4
        with pytest.raises(VariableError, match="is damaged"):
            decoded_contribution(bytes(damaged), declaration)


def sealed(payload: bytes) -> bytes:
    """Bytes with the length and the digest that they should have."""
    return version_bytes._SEAL.pack(version_bytes._MARK, len(payload), hashlib.sha256(payload).digest()) + payload


def mutations(data: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """Changed payloads under right digests."""
    payload = data[version_bytes._SEAL.size :]
    for _ in range(count):
        made = bytearray(payload)
        for _ in range(chance.choice([1, 1, 2, 5])):
            at = chance.randrange(len(made))
            match chance.randrange(4):
                case 0:
                    made[at] ^= 1 << chance.randrange(8)
                case 1:
                    made[at] = chance.choice([0, 1, 127, 128, 255])
                case 2:
                    word = chance.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1]).to_bytes(4, "little")
                    made[at & ~3 : (at & ~3) + 4] = word
                case _:
                    del made[at : at + chance.choice([1, 8, 64])]
        yield sealed(bytes(made))


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("size", [100, pytest.param(1_000, marks=pytest.mark.exhaustive)])
def test_bytes_under_a_right_digest_end_no_process(name: str, size: int) -> None:
    """Whoever writes a store can give the right digest of anything."""
    declaration, data = version(name)
    assert survives(partial(read, declaration), mutations(data, random.Random(5), size)) == ""


@pytest.mark.parametrize("merge", ["hll", "kll"])
@pytest.mark.parametrize("size", [100, pytest.param(3_000, marks=pytest.mark.exhaustive)])
def test_hostile_sketches_end_no_process(merge: str, size: int) -> None:
    """The library that reads sketches trusts their lengths, so they are checked before."""
    declaration, _ = VARIABLES[merge]
    merging, chance = declaration.merging, random.Random(6)
    good = [sketch(merge, items) for items in (1, 5, 50, 500, 5_000, 50_000)]

    def use(data: bytes) -> None:
        merging.value(merging.merged(data, data))
        merging.value(merging.merged(good[3], data))

    for data in good:
        use(data)
    assert survives(use, (_spoiled(chance.choice(good), chance) for _ in range(size))) == ""


def _spoiled(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 3])):
        at = chance.randrange(min(len(made), 64) if chance.random() < 0.7 else len(made))
        made[at] = made[at] ^ (1 << chance.randrange(8)) if chance.random() < 0.6 else chance.choice([0, 63, 64, 255])
    return bytes(made[: chance.randrange(len(made) + 1)]) if chance.random() < 0.1 else bytes(made)


def rebuilt(declaration: Declaration, columns: list[pa.Array], options: Any = None, **header: Any) -> bytes:
    """A version of other columns, or of another header."""
    known = {"kind": "set", "by": "me", "at": WHEN.isoformat(), "sets": 1, "merged": {}, "epoch": None}
    known |= {"contributions": 0, "whole": True} | header
    names = ["state", "change", "removed"]
    schema = pa.schema(list(zip(names, [column.type for column in columns], strict=True)))
    batch = pa.record_batch(columns, schema=schema.with_metadata({b"streamstate": json.dumps(known).encode()}))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sealed(sink.getvalue().to_pybytes())


NOTHING = pa.array([[]], pa.list_(pa.string()))


def test_a_compressed_version_is_refused() -> None:
    """Of 16 MiB, it could take gigabytes."""
    declaration = declared("list<bigint>", "append(9)")
    zeros = pa.array([[0] * 1_000_000], pa.list_(pa.int64()))
    for codec in ("zstd", "lz4"):
        data = rebuilt(declaration, [zeros, zeros, NOTHING], pa.ipc.IpcWriteOptions(compression=codec))
        with measured() as cost, pytest.raises(VariableError, match="compressed"):
            read(declaration, data)
        assert cost.megabytes < 20


@pytest.mark.parametrize(
    ("columns", "header", "message"),
    [
        ([pa.array(["x"]), pa.array(["x"]), NOTHING], {}, "another type"),
        ([pa.array([1.0, 2.0]), pa.array([1.0, 2.0]), pa.concat_arrays([NOTHING] * 2)], {}, "2 rows"),
        ([pa.array([], pa.float64()), pa.array([], pa.float64()), NOTHING[:0]], {}, "0 rows"),
        ([pa.array([1.0]), pa.array([1.0]), NOTHING], {"sets": "many"}, "sets"),
        ([pa.array([1.0]), pa.array([1.0]), NOTHING], {"at": "yesterday"}, "yesterday"),
        ([pa.array([1.0]), pa.array([1.0]), NOTHING], {"merged": {"q": "x"}}, "epochs"),
    ],
)
def test_other_contents_are_refused(columns: list[pa.Array], header: dict[str, Any], message: str) -> None:
    """The declaration says what a version holds, not the version."""
    declaration = declared("double")
    with pytest.raises(VariableError, match=message):
        read(declaration, rebuilt(declaration, columns, **header))


def test_bytes_of_another_format_are_refused() -> None:
    """The error says what may have written them."""
    declaration, data = version("number")
    with pytest.raises(VariableError, match="another release"):
        read(declaration, data[version_bytes._SEAL.size :])
