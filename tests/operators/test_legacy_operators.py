"""Operators of checkpoints without operator metadata, which Spark writes since 4.0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recorded.queries import recorded
from recorded.unpacked import copied, unpacked

import streamstate as ss
from streamstate.errors import DamagedCheckpointError, UnsupportedStateError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of Spark 4.0, the first version that writes operator metadata."""
    return unpacked("4.0", tmp_path_factory.mktemp("recordings"))


@pytest.mark.parametrize(("name", "provider"), [*recorded("4.0")])
def test_inferred_metadata_equals_sparks(recordings: Path, name: str, provider: str) -> None:
    """Without metadata, the name, stores and number of partitions of every operator are inferred."""
    checkpoint = recordings / provider / name
    assert CheckpointFiles(checkpoint).legacy_operators() == []
    metadata = {}
    for file in sorted(checkpoint.glob("state/*/_metadata/metadata")):
        metadata[file.parts[-3]] = file.read_text(encoding="utf-8")
        shutil.rmtree(file.parent)
    assert metadata
    inferred = CheckpointFiles(checkpoint).legacy_operators()
    assert {str(operator.number): parsed(operator.metadata()) for operator in inferred} == {
        number: parsed(text) for number, text in metadata.items()
    }


def parsed(text: str) -> tuple[str, object, object]:
    """The version, the operator and the stores, sorted by name, of a metadata file."""
    version, _, head = text.partition("\n")
    content = json.loads(head)
    return version, content["operatorInfo"], sorted(content["stateStoreInfo"], key=lambda store: store["storeName"])


@pytest.mark.parametrize("schema", [b"", b"\0\2v2\x7f\xff\xff\xff", b"\0\2v1\0\2[]\0\2{}"])
def test_a_schema_that_spark_did_not_write_is_named(
    spark: SparkSession, recordings: Path, tmp_path: Path, schema: bytes
) -> None:
    """It is damaged, rather than written by an old Spark."""
    checkpoint = copied(recordings / "HDFS" / "left-outer-join", tmp_path / "old")
    for file in (checkpoint / "state").rglob("schema"):
        file.write_bytes(schema)
        file.with_name(".schema.crc").unlink(missing_ok=True)
    with pytest.raises(DamagedCheckpointError, match=r"_metadata/schema is (empty|not one that Spark wrote)"):
        ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q", spark=spark)


def test_state_without_a_schema_is_rejected(spark: SparkSession, recordings: Path, tmp_path: Path) -> None:
    """Spark before 3.1 wrote no schema, and Spark's reader cannot read such state either."""
    checkpoint = copied(recordings / "HDFS" / "left-outer-join", tmp_path / "old")
    shutil.rmtree(checkpoint / "state")
    (checkpoint / "state" / "0" / "0" / "_metadata").mkdir(parents=True)
    with pytest.raises(UnsupportedStateError, match=r"no readable schema(.|\n)*3\.1"):
        ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q", spark=spark)
