"""The manifest describes the files that each epoch has read, so that queries over the same files can be compared."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters, run
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.source_progress import sources_after
from streamstate.snapshots.store.retention.dropping import retain

EXAMPLES = settings(max_examples=60, deadline=None)


def write_log(checkpoint: Path, batches: list[list[str]], *, every: int = 3, kept: int = 0) -> None:
    """Write the log of a file source as Spark does, with compacted batches, and ``kept`` plain ones before the last."""
    folder = checkpoint / "sources" / "0"
    folder.mkdir(parents=True)
    lines = [
        [json.dumps({"path": path, "timestamp": 7, "batchId": batch}) for path in paths]
        for batch, paths in enumerate(batches)
    ]
    newest = max((batch for batch in range(len(batches)) if batch % every == every - 1), default=-1)
    for batch, own in enumerate(lines):
        compact = batch % every == every - 1
        listed = [line for earlier in lines[: batch + 1] for line in earlier] if compact else own
        if compact or batch >= newest - kept:
            (folder / f"{batch}{'.compact' if compact else ''}").write_text("\n".join(["v1", *listed]))


def after(checkpoint: Path, batch: int, before: str | None = None) -> str | None:
    """The facts of an epoch that ends with a batch of the source."""
    return sources_after(LocalFiles(), str(checkpoint), before, [json.dumps({"logOffset": batch})])


def only(sources: str | None) -> dict[str, Any]:
    """The facts of the only source."""
    assert sources is not None
    [facts] = json.loads(sources)
    return dict(facts)


PATHS = st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True)


@EXAMPLES
@given(PATHS, st.integers(1, 5), st.integers(1, 5), st.integers(2, 4), st.integers(0, 5), st.data())
def test_equal_digests_are_equal_sets_of_files(
    numbers: list[int], small: int, large: int, every: int, kept: int, data: st.DataObject
) -> None:
    """Queries that read files in batches of different sizes have equal digests after the same files, and only then.

    The log may be read incrementally or at once, and compacted or not; the order within a batch does not matter.
    """
    paths = [f"file:///in/day={number % 3}/{number}.parquet" for number in numbers]
    seen: dict[str, frozenset[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in (small, large + 5):
            batches = [data.draw(st.permutations(paths[first : first + size])) for first in range(0, len(paths), size)]
            checkpoint = Path(folder) / str(size)
            write_log(checkpoint, batches, every=every, kept=kept)
            before = None
            for batch in sorted(data.draw(st.sets(st.integers(0, len(batches) - 1), min_size=1))):
                before = after(checkpoint, batch, before)
                assert before == after(checkpoint, batch)
                files = frozenset(paths[: size * (batch + 1)])
                assert only(before)["files"] == len(files)
                assert seen.setdefault(only(before)["digest"], files) == files
    assert len(set(seen.values())) == len(seen)


def test_the_folder_of_a_source_is_the_common_parent_of_its_files(tmp_path: Path) -> None:
    """It changes to a higher folder if the files of a later epoch are outside."""
    write_log(tmp_path, [["file:///a/in/day=1/x"], ["file:///a/in/day=2/y"], ["file:///a/in/z"]], every=10)
    assert [only(after(tmp_path, batch))["under"] for batch in range(3)] == [
        "file:///a/in/day=1",
        "file:///a/in",
        "file:///a/in",
    ]


def test_an_overwritten_file_has_another_digest(tmp_path: Path) -> None:
    """Files of the same path and different modification times are different."""
    for name, timestamp in (("a", 1), ("b", 2)):
        folder = tmp_path / name / "sources" / "0"
        folder.mkdir(parents=True)
        line = json.dumps({"path": "file:///in/x", "timestamp": timestamp, "batchId": 0})
        (folder / "0").write_text(f"v1\n{line}")
    assert only(after(tmp_path / "a", 0))["digest"] != only(after(tmp_path / "b", 0))["digest"]


def test_an_incomplete_log_has_no_facts(tmp_path: Path) -> None:
    """If a log file is missing or truncated, there is no digest. It is computed when the log is complete again."""
    batches = [[f"file:///in/{number}"] for number in range(5)]
    write_log(tmp_path, batches, every=10)
    whole = after(tmp_path, 4)
    before = after(tmp_path, 1)
    (tmp_path / "sources/0/2").rename(tmp_path / "hidden")
    assert (after(tmp_path, 4), after(tmp_path, 4, before), after(tmp_path, 1)) == (None, None, before)
    (tmp_path / "sources/0/2").write_text("v1\n{torn")
    assert after(tmp_path, 4, before) is None
    (tmp_path / "hidden").rename(tmp_path / "sources/0/2")
    assert after(tmp_path, 4, before) == after(tmp_path, 4) == whole


def test_a_compacted_log_is_read_from_its_end(tmp_path: Path) -> None:
    """If the facts of an earlier epoch are known, only the end of a long compacted file is read."""
    batches = [[f"file:///in/{number:0100}"] for number in range(6000)]
    write_log(tmp_path, batches, every=6000)
    sizes: list[int] = []

    class Counting(LocalFiles):
        def tail(self, path: str, size: int) -> str | None:
            text = super().tail(path, size)
            sizes.append(len(text or ""))
            return text

    offset = [json.dumps({"logOffset": 5999})]
    facts = {"kind": "files", "files": 5990, "digest": "0" * 32, "under": "file:///in", "batch": 5989}
    later = only(sources_after(Counting(), str(tmp_path), json.dumps([facts]), offset))
    assert later["files"] == 6000
    assert sum(sizes) < (tmp_path / "sources/0/5999.compact").stat().st_size / 5


@pytest.mark.parametrize(
    ("text", "start"),
    [('\0v1\n{"flights":{"0":5}}', {"flights": {"0": 5}}), ("v1\n1795233073283", 1795233073283), ("v1\nsoon", "soon")],
)
def test_the_start_offset_of_other_sources_is_recorded(tmp_path: Path, text: str, start: object) -> None:
    """Sources such as Kafka log their start offset. It is kept in later epochs, even if the log is deleted."""
    folder = tmp_path / "sources" / "0"
    folder.mkdir(parents=True)
    (folder / "0").write_text(text)
    facts = sources_after(LocalFiles(), str(tmp_path), None, ["5"])
    assert only(facts) == {"kind": "offset", "start": start}
    (folder / "0").unlink()
    assert sources_after(LocalFiles(), str(tmp_path), facts, ["6"]) == facts


def test_a_source_without_an_offset_yet(tmp_path: Path) -> None:
    """Its facts are null. If no source has an offset, there are no facts at all."""
    assert sources_after(LocalFiles(), str(tmp_path), None, [None]) is None
    assert sources_after(LocalFiles(), str(tmp_path), None, [None, "5"]) == '[null,{"kind":"offset"}]'


@pytest.mark.exhaustive
def test_queries_over_the_same_folder_have_the_same_digests(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """One query reads one file per epoch and the other two; digests of the same number of files are equal."""
    for epoch in range(12):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "one")
    reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 2)
    run(reader.parquet(str(source.folder)).groupBy("k").count(), tmp_path / "two")
    for name in ("one", "two"):
        ss.Checkpoint(tmp_path / name).capture(tmp_path / "store", name, spark=spark)
    digests = {}
    for name in ("one", "two"):
        frame = ss.open_store(tmp_path / "store")[name].epochs()
        facts = [only(sources) for sources in frame["sources"]]
        assert [*frame.columns][-1] == "sources"
        assert {epoch["under"] for epoch in facts} == {source.folder.as_uri()}
        digests[name] = {epoch["files"]: epoch["digest"] for epoch in facts}
    assert [*digests["one"]] == [*range(1, 13)]
    assert digests["two"] == {files: digest for files, digest in digests["one"].items() if files % 2 == 0}


@pytest.mark.exhaustive
def test_incremental_captures_record_the_same_sources(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """A new capture continues from the facts in the manifest, also after the log is compacted."""
    for epochs in (range(3), range(3, 8), range(8, 14)):
        for epoch in epochs:
            source.add(letters(epoch))
        run(counts(source), tmp_path / "q")
        ss.Checkpoint(tmp_path / "q").capture(tmp_path / "often", spark=spark)
    ss.Checkpoint(tmp_path / "q").capture(tmp_path / "once", spark=spark)
    often, once = ([*ss.open_store(tmp_path / name)["q"].epochs()["sources"]] for name in ("often", "once"))
    assert often == once
    assert [only(sources)["files"] for sources in once] == [*range(1, 15)]


def test_each_source_has_its_own_facts(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Facts are in the order of the offsets. A cut with a query over one of the sources uses this source."""
    other = Source(spark, tmp_path / "other", "k string, v long")
    for epoch in range(4):
        source.add(letters(epoch))
        other.add(letters(epoch + 10))
    reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 2)
    both = reader.parquet(str(other.folder)).union(source.stream())
    run(both.groupBy("k").count(), tmp_path / "both")
    run(counts(source), tmp_path / "one")
    for name in ("both", "one"):
        ss.Checkpoint(tmp_path / name).capture(tmp_path / "store", spark=spark)
    first, second = json.loads(ss.open_store(tmp_path / "store")["both"].epochs()["sources"].iloc[0])
    assert (first["under"], first["files"]) == (other.folder.as_uri(), 2)
    assert (second["under"], second["files"]) == (source.folder.as_uri(), 1)
    cut = ss.cut(tmp_path / "store", ["one", "both"], at=1)
    assert (cut.by, cut.exact, cut.epochs) == ("offsets", True, {"one": 1, "both": 1})
    assert cut.note.endswith("Sources that only one query reads are not considered: both has some.")


def test_hadoop_reads_the_end_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """``tail`` of Hadoop's and of local files returns the same lines."""
    (tmp_path / "log").write_text("v1\nfirst\nsécond\nthird")
    for size in (5, 9, 16, 100):
        both = [files.tail(str(tmp_path / "log"), size) for files in (LocalFiles(), HadoopFiles(spark))]
        assert both[0] == both[1]
    assert LocalFiles().tail(str(tmp_path / "log"), 9) == "third"
    assert [files.tail(str(tmp_path / "none"), 9) for files in (LocalFiles(), HadoopFiles(spark))] == [None, None]


def test_retention_keeps_the_sources_of_epochs(tmp_path: Path) -> None:
    """They are still in the manifest after retention has rewritten it."""
    write(tmp_path, [{"a": number} for number in range(4)], facts=[{"sources": f"[{epoch}]"} for epoch in range(4)])
    retain(tmp_path, "q", last=2)
    assert list(ss.open_store(tmp_path)["q"].epochs()["sources"]) == ["[2]", "[3]"]
