"""Metadata, schemas and snapshots: what they say, and that damaged ones are never misread."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.written_checkpoint import BY_PREFIX, BY_ROW, KEY, VALUE, WrittenCheckpoint, full_id, schema_file
from streamstate.errors import CheckpointError, DamagedCheckpointError, UntrustedCheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.decoding.schema_files import family_schemas, has_columns
from streamstate.snapshots.checkpoint.decoding.state_schema import UnsupportedTable, table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import KeyEncoding, TableFormat

TOTAL = ("total", "ValueState")


@pytest.fixture
def written(tmp_path: Path) -> WrittenCheckpoint:
    """Two epochs of a query with one variable, in format 2."""
    checkpoint = WrittenCheckpoint(tmp_path)
    checkpoint.describe(0, schema_file("total", "$rowCounter_total"), TOTAL)
    for epoch in range(2):
        checkpoint.plan(epoch)
        checkpoint.commit(epoch, f"a{epoch}", f"b{epoch}")
    for partition, unique_id in enumerate(("a0", "b0")):
        checkpoint.snapshot(partition, f"1_{unique_id}", total=2)
    return checkpoint


def table(written: WrittenCheckpoint, epoch: int = 1, at: int = 0) -> TableFormat:
    """One of the tables at an epoch, which is described."""
    found = table_formats(CheckpointFiles(written.path), epoch)[at]
    assert isinstance(found, TableFormat), found
    return found


def reason(written: WrittenCheckpoint, epoch: int = 1, at: int = 0) -> str:
    """Return the reason why one of the tables at an epoch is not described."""
    found = table_formats(CheckpointFiles(written.path), epoch)[at]
    assert isinstance(found, UnsupportedTable), found
    return found.reason


def test_a_moved_checkpoint_is_described(written: WrittenCheckpoint) -> None:
    """The metadata has the absolute path of the schema; only its last part counts."""
    found = table(written)
    assert (found.key, found.value, found.family, found.family_id) == (KEY, VALUE, "total", 2)


def test_the_newest_committed_snapshot_numbers_the_families(written: WrittenCheckpoint) -> None:
    """Snapshots of later epochs and of attempts that failed do not count."""
    written.snapshot(0, "2_failed", total=7)
    written.snapshot(0, "3_later", total=8)
    assert table(written).family_id == 2
    for partition, unique_id in enumerate(("a1", "b1")):
        written.snapshot(partition, f"2_{unique_id}", total=9)
    assert [table(written, epoch).family_id for epoch in range(2)] == [2, 9]


def test_a_purged_commit_leaves_what_its_snapshots_agree_on(written: WrittenCheckpoint) -> None:
    """Without the commit, the snapshot of a failed attempt cannot be told from the committed one."""
    (written.path / "commits" / "0").unlink()
    written.snapshot(0, "1_failed", total=2, other=3)
    assert table(written).family_id == 2
    written.snapshot(0, "1_failed", total=3)
    assert "not all alike" in reason(written)


def test_partitions_may_not_disagree(written: WrittenCheckpoint) -> None:
    """One number has to hold for all partitions."""
    written.snapshot(1, "1_b0", total=3)
    assert "not all alike" in reason(written)


def test_a_partition_without_a_snapshot(written: WrittenCheckpoint) -> None:
    """Its keys cannot be told apart."""
    (written.path / f"state/0/1/1_{full_id('b0')}.zip").unlink()
    assert "state/0/1 has no snapshot" in reason(written)


def test_a_restart_holds_from_its_first_epoch(written: WrittenCheckpoint) -> None:
    """The epochs before it keep the variables of the run that wrote them."""
    written.describe(1, schema_file("total", "items", encoder=BY_PREFIX), TOTAL, ("items", "ListState"))
    for partition, unique_id in enumerate(("a1", "b1")):
        written.snapshot(partition, f"2_{unique_id}", total=2, items=3)
    checkpoint = CheckpointFiles(written.path)
    assert [len(sources_in_metadata(checkpoint, epoch)) for epoch in range(2)] == [1, 2]
    assert table(written, 0).key_encoding is KeyEncoding.ROW
    items = table(written, 1, at=1)
    assert (items.family_id, items.several, items.delimited) == (3, True, True)
    assert (items.key_encoding, items.prefix) == (KeyEncoding.PREFIX, 1)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("stateStore.encodingFormat", "avro", "'avro'"),
        ("stateStore.providerClass", "com.example.Store", "'com.example.Store'"),
        ("stateStore.rocksdb.mergeOperatorVersion", "3", "'3'"),
    ],
)
def test_unknown_settings_are_named(written: WrittenCheckpoint, setting: str, value: str, expected: str) -> None:
    """The reason has the value that is not known."""
    written.plan(1, **{f"spark.sql.streaming.{setting}": value})
    assert expected in reason(written)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (schema_file("total", version="v4"), "version 'v4'"),
        (schema_file("other"), "does not describe 'total'"),
        (schema_file("total", number=1), "several schemas"),
        (schema_file("total", encoder={"keyStateEncoderType": "New"}), "'New'"),
        (schema_file("total", encoder={**BY_PREFIX, "numColsPrefixKey": 5}), "prefix of 5"),
        (schema_file("total", encoder={**BY_ROW, "orderingOrdinals": [1]}), "[1]"),
    ],
)
def test_unknown_schemas_are_named(written: WrittenCheckpoint, content: bytes, expected: str) -> None:
    """Whatever the reader does not know keeps the table from being described."""
    (written.path / "state/0/_stateSchema/default/0_schema").write_bytes(content)
    assert expected in reason(written)


@pytest.mark.parametrize(("content", "why"), [(b"", "is empty"), (schema_file("total")[:40], "is not one that Spark")])
def test_a_damaged_schema_is_an_error(written: WrittenCheckpoint, content: bytes, why: str) -> None:
    """Spark cannot read it either, so it is not asked to."""
    (written.path / "state/0/_stateSchema/default/0_schema").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=f"0_schema {why}"):
        reason(written)


@pytest.mark.parametrize(
    ("variable", "more", "expected"),
    [
        (("total", "NewState"), {}, "'NewState'"),
        (("total", "TimerState"), {}, "Timers"),
        (TOTAL, {"operatorInfo": {"operatorName": "newExec"}}, "'newExec'"),
    ],
)
def test_unknown_operators_are_named(
    written: WrittenCheckpoint, variable: tuple[str, str], more: Mapping[str, Any], expected: str
) -> None:
    """So are kinds of variables."""
    written.describe(0, schema_file("total"), variable, **more)
    assert expected in reason(written)


@pytest.mark.parametrize(
    "text",
    ["", "v3\n{}", "v2\n{", "v2\n[]", 'v2\n{"stateStoreInfo": [1]}', 'v2\n{"stateStoreInfo": [{"storeName": 1}]}'],
)
def test_damaged_metadata_is_an_error(written: WrittenCheckpoint, text: str) -> None:
    """Without it, the tables are not known; the error names the file."""
    (written.path / "state/0/_metadata/v2/0").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="state/0/_metadata/v2/0"):
        table_formats(CheckpointFiles(written.path), 1)


def test_metadata_cannot_lead_out_of_the_checkpoint(written: WrittenCheckpoint) -> None:
    """Names in metadata are names of files, never paths."""
    store = {"storeName": "../../..", "numColsPrefixKey": 0, "stateSchemaFilePaths": ["0_schema"]}
    written.describe(0, schema_file("total"), TOTAL, stateStoreInfo=[store])
    with pytest.raises(UntrustedCheckpointError, match=r"\.\./"):
        sources_in_metadata(CheckpointFiles(written.path), 1)


def test_purged_settings_are_an_error(written: WrittenCheckpoint) -> None:
    """The settings are those of the epoch, not of another."""
    with pytest.raises(CheckpointError, match="offsets/5"):
        table_formats(CheckpointFiles(written.path), 5)


@given(st.data())
def test_a_damaged_schema_is_an_error_or_a_schema(data: st.DataObject) -> None:
    """A file with a changed or missing part is never another kind of error."""
    content = bytearray(schema_file("total", "items"))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with suppress(ChangelogError):
        family_schemas(bytes(content[:cut]), "schema")


def test_a_damaged_snapshot_is_named(written: WrittenCheckpoint) -> None:
    """Wherever it is cut or changed, the table is not described, or its number is right."""
    path = written.snapshot(0, "1_a0", total=2)
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            path.write_bytes(content)
            found = table_formats(CheckpointFiles(written.path), 1)[0]
            if isinstance(found, UnsupportedTable):
                assert path.name in found.reason
            else:
                assert found.family_id == 2


def test_names_beyond_16_bits() -> None:
    """Java writes them as two surrogates of three bytes each."""
    emoji = b"\xed\xa0\xbd\xed\xb8\x80"
    json = b'{"type":"struct","fields":[{"name":"' + emoji + b'","type":"long"}]}'
    content = b"\0\2v1" + 2 * (struct.pack(">H", len(json)) + json)
    assert family_schemas(content, "schema")["default"].key["fields"][0]["name"] == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("void", False), ("string", True), ({"type": "struct", "fields": []}, True)],
    ids=["no column", "a column", "a column that is a struct, such as a window"],
)
def test_keys_with_columns(kind: object, expected: bool) -> None:
    """The key of a global aggregate or a limit has no column; a column may have a nested type."""
    assert has_columns({"type": "struct", "fields": [{"name": "k", "type": kind}]}) is expected
