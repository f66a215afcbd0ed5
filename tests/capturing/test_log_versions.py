"""Unknown versions of Spark's offset log and commit log are rejected."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Source, counts, letters
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import NewerCheckpointError


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Change the text of a log file, and delete its checksum."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(("log", "version"), [("offsets", "v3"), ("commits", "v4")])
def test_unknown_versions_are_rejected(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path, log: str, version: str
) -> None:
    """The epoch with the unknown version is not captured. Captured epochs are kept."""
    path = Path(shutil.copytree(counted[0], tmp_path / "c"))
    for name in ("3", "4"):
        (path / "commits" / name).rename(tmp_path / name)
    ss.Checkpoint(path).capture(tmp_path / "s", "q", spark=spark)
    for name in ("3", "4"):
        (tmp_path / name).rename(path / "commits" / name)
    rewrite(path / log / "4", lambda text: version + text[2:])
    before = ss.open_store(tmp_path / "s")["q"].epochs()
    for _ in range(2):
        with pytest.raises(NewerCheckpointError, match=rf"Unknown version '{version}' of .*/{log}/4: expected .*v2"):
            ss.Checkpoint(path).capture(tmp_path / "s", "q", spark=spark)
    captured = ss.open_store(tmp_path / "s")["q"].captured()
    assert captured[:3] == [0, 1, 2]
    assert 4 not in captured
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == len(captured)
    assert list(before["epoch"]) == [0, 1, 2]


@pytest.mark.exhaustive
def test_commits_with_named_sinks(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Checkpoints with version 3 of the commit log can be captured and forked."""
    evolution = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
    for epoch in range(2):
        source.add(letters(epoch))
    spark.conf.set(evolution, "true")
    try:
        writer = counts(source).writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        named_writer = writer.option("checkpointLocation", str(tmp_path / "c"))._jwrite.name("out")
        named_writer.start().awaitTermination()
    finally:
        spark.conf.unset(evolution)
    assert (tmp_path / "c" / "commits" / "1").read_text().startswith("v3\n")
    ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "q", spark=spark)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 2
    assert ss.Checkpoint(tmp_path / "c").fork(tmp_path / "fork", at=0, verify="rows", spark=spark).epoch == 0
