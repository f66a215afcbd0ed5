"""Folders and objects of any name hold stores and checkpoints; what a library would mistake is refused."""

from __future__ import annotations

import shutil
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from conftest import Source, run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import captured_rows
from pyspark.sql import SparkSession
from recorded.unpacked import copied
from recording.waiting import until

import streamstate as ss
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from capturing.test_remote_checkpoint import upload
from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.filesystem import local_path, location

pytestmark = pytest.mark.slow

COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
MARKS = "%#?+;[]{}~&='\",!$^`|<>*@() "
EVERY = f" {MARKS}{COMPOSED}{DECOMPOSED}日本 100% "
"""A folder's name with all of them, which begins and ends with spaces."""
MISTAKEN = ["per%20cent", "%41", "a%23b", "a%2Fb", "tab\there", "line\nbreak"]
PIECES = [*MARKS, *"a1.-_:", "%", "2", COMPOSED, DECOMPOSED, "日", "😀", "\\"]
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)


def used(checkpoint: Path | str, store: Path | str, folder: Path, options: dict[str, str] | None = None) -> None:
    """Capture, follow, read, query, export, thin and compact a store, and keep a variable in it."""
    assert ss.Checkpoint(checkpoint, storage_options=options).capture(store, "q").epochs == (0, 1, 2, 3, 4)
    following = ss.Checkpoint(checkpoint, storage_options=options).follow(store, "q")
    assert following.wait(4, 60) == 4
    following.stop()
    opened = ss.open_store(store, storage_options=options)
    rows = opened["q"].live().table().to_arrow()
    assert rows.num_rows == opened.sql("FROM q").to_arrow().num_rows == 12
    exported = folder / "exported" if options is None else f"{store}-exported"
    assert ss.open_store(store, storage_options=options)["q"].export(exported).written == 5
    assert ss.open_store(store, storage_options=options)["q"].export(exported).written == 0
    assert ss.open_store(store, storage_options=options)["q"].retain(last=3).dropped == (0, 1)
    ss.open_store(store, storage_options=options)["q"].compact()
    again = ss.open_store(store, storage_options=options)["q"]
    assert again.captured() == [2, 3, 4]
    assert again.live().table().to_arrow().equals(rows)
    if options is None:
        ss.shared(str(store), "limit", "bigint", init=3).set(4)
        assert ss.open_store(store).variables() == ["limit"]


def whole(checkpoint: Path, parent: Path, name: str) -> None:
    """Use a store, a checkpoint and a fork in a folder of a name; nothing goes elsewhere."""
    before = {path.name for path in parent.iterdir()}
    folder = parent / name
    used(copied(checkpoint, folder / "checkpoint"), folder / "store", folder)
    assert ss.Checkpoint(folder / "checkpoint").fork(folder / "fork", at=3).epoch == 3
    assert ss.Checkpoint(folder.as_uri() + "/fork").capture(folder / "store", "fork").epochs == (3,)
    assert ss.open_store((folder / "store").as_uri()).queries() == ["fork", "q"]
    assert {path.name for path in parent.iterdir()} - before == {name}
    assert {path.name for path in folder.iterdir()} == {"checkpoint", "store", "fork", "exported"}


def test_a_folder_may_have_any_name(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """All marks in one name, accents in both normal forms, spaces at both ends."""
    whole(counted[0], tmp_path, EVERY)


@pytest.mark.slow
@settings(max_examples=8)
@given(NAMES)
def test_a_folder_of_random_name_is_used_or_refused(counted: tuple[Path, Path], name: str) -> None:
    """Refused is what deltalake would take for another folder, before anything is written."""
    if name.strip(".") == "":
        name = f"{name}a"
    with tempfile.TemporaryDirectory() as parent:
        try:
            whole(counted[0], Path(parent), name)
        except InvalidArgumentError:
            mistaken = any(name[at : at + 1] == "%" and _hexadecimal(name[at + 1 : at + 3]) for at in range(len(name)))
            assert mistaken or "\\" in name
            assert {path.name for path in Path(parent, name).iterdir()} == {"checkpoint"}


def _hexadecimal(text: str) -> bool:
    return len(text) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in text)


def test_both_normal_forms_are_different_stores(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Names are compared byte by byte, as the file system does."""
    for name, query in ((COMPOSED, "composed"), (DECOMPOSED, "decomposed")):
        ss.Checkpoint(counted[0]).capture(tmp_path / name, query)
    assert ss.open_store(tmp_path / COMPOSED).queries() == ["composed"]
    assert ss.open_store(tmp_path / DECOMPOSED).queries() == ["decomposed"]


@pytest.mark.parametrize("name", [*MISTAKEN, "back\\slash"])
def test_a_store_that_would_be_mistaken_is_refused(counted: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    """By each call that would read or write it, and nothing is written; a link does not help."""
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name)
    calls: list[Callable[[Path], object]] = [
        lambda store: ss.Checkpoint(counted[0]).capture(store),
        ss.Checkpoint(counted[0]).follow,
        ss.open_store,
        lambda store: ss.shared(str(store), "limit", "bigint"),
        ss.open_store(counted[1])["counts"].export,
    ]
    for call in calls:
        for folder in (tmp_path / name, tmp_path / "link"):
            with pytest.raises(InvalidArgumentError, match="Use a path without '%' before two hexadecimal digits"):
                call(folder / "store")
    assert [*(tmp_path / name).iterdir()] == []


@pytest.mark.parametrize("name", MISTAKEN)
def test_a_checkpoint_may_have_a_name_that_a_store_may_not(
    counted: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    """It holds no Delta tables."""
    checkpoint = copied(counted[0], tmp_path / name)
    assert len(ss.Checkpoint(checkpoint).capture(tmp_path / "store").epochs) == 5
    assert ss.Checkpoint(checkpoint).fork(tmp_path / f"{name}-fork", at=3).epoch == 3


@pytest.mark.slow
def test_an_object_may_have_any_name(counted: tuple[Path, Path], bucket: Bucket, tmp_path: Path) -> None:
    """A URI of an object store names keys as they are: nothing in it is decoded, and # and ? end no path."""
    bucket.requests()
    used(counted[0], f"{bucket.uri}/{EVERY}\\/store", tmp_path, bucket.options)
    put = [request.encode("latin-1").decode() for request in bucket.requests() if request.startswith("PUT ")]
    assert {request.removeprefix("PUT bucket/").split("/")[0] for request in put} == {f"{EVERY}\\"}


@pytest.mark.parametrize("name", [*MISTAKEN, "a//b", "a/./b", "a/../b"])
def test_an_object_that_would_be_mistaken_is_refused(counted: tuple[Path, Path], bucket: Bucket, name: str) -> None:
    """As on a disk, where the file system itself knows what dots and empty names mean."""
    bucket.requests()
    with pytest.raises(InvalidArgumentError, match="No table can be kept at"):
        ss.Checkpoint(counted[0], storage_options=bucket.options).capture(f"{bucket.uri}/{name}/store")
    assert not any(request.startswith("PUT") for request in bucket.requests())


@pytest.mark.parametrize("name", [EVERY, "per%20cent"])
def test_a_checkpoint_in_a_bucket_may_have_any_name(
    counted: tuple[Path, Path], bucket: Bucket, tmp_path: Path, name: str
) -> None:
    """Spark, too, takes the URI as it is."""
    plain = upload(bucket, counted[0], "uploaded")
    copy_objects(bucket, "uploaded", f"{name}/checkpoint")
    report = ss.Checkpoint(f"s3a://bucket/{name}/checkpoint", storage_options=bucket.options).capture(tmp_path, "q")
    assert len(report.epochs) == 5
    assert plain == "s3a://bucket/uploaded"


def copy_objects(bucket: Bucket, source: str, target: str) -> None:
    """Copy objects with obstore's client, which takes keys as they are."""
    import obstore
    from obstore.store import S3Store

    options = {name: value for name, value in bucket.options.items() if name != "AWS_ALLOW_HTTP"}
    client = S3Store("bucket", config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
    to = S3Store("bucket", prefix=target, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
    for page in obstore.list(client, source):
        for entry in page:
            content = obstore.get(client, entry["path"]).bytes()
            obstore.put(to, entry["path"].removeprefix(f"{source}/"), bytes(content))


def test_only_file_uris_are_decoded() -> None:
    """Plain paths and other URIs name files as they are written."""
    assert local_path("file:///a%20b/c%23?#d") == Path("/a b/c#?#d")
    assert local_path("file:/a") == local_path("file://localhost/a") == local_path("FILE:///a") == Path("/a")
    assert local_path("/a%20b#c?d") == Path("/a%20b#c?d")
    assert local_path("run:1/store") == Path("run:1/store")
    assert local_path("~name/store") == Path("~name/store")
    assert local_path("~/store") == Path.home() / "store"
    assert local_path("[a]/b") == Path("[a]/b")
    assert local_path("s3://bucket/a#b") is None
    assert local_path("hdfs:/a") is None
    assert location("s3://bucket/a%20b#c/") == "s3://bucket/a%20b#c"
    for name in (EVERY, *MISTAKEN):
        assert local_path(f"file:///tmp/{quote(name)}") == local_path(f"/tmp/{name}") == Path("/tmp") / name


@pytest.mark.slow
def test_spark_uses_a_folder_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """Its own reader escapes a path and then does not find it, so that it would confirm nothing: it gets a link."""
    folder = tmp_path / f"{EVERY}\\%20"
    checkpoint, plain = folder / "checkpoint", tmp_path / "plain"
    source = Source(spark, tmp_path / "input", "k string, v long")
    for epoch in range(3):
        source.add({"k": ["a", "b", f"only{epoch}"], "v": [epoch, 1, 2]})
    frame = source.stream().groupBy("k").sum("v")
    run(frame, checkpoint)
    assert ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q", verify="all", spark=spark).epochs == (0, 1, 2)
    plain.symlink_to(checkpoint)
    expected = spark.read.format("statestore").option("batchId", "2").load(str(plain)).count()
    history = ss.open_store(tmp_path / "store")["q"]
    assert len(captured_rows(history.at(2).table())) == expected == 5
    shutil.copytree(tmp_path / "store", tmp_path / EVERY / "store")
    opened = ss.open_store(tmp_path / EVERY / "store")
    assert opened.sql("SELECT * FROM q", engine="spark", spark=spark).to_arrow().num_rows == expected
    query = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint)).start()
    try:
        assert ss.Checkpoint(query).follow(tmp_path / "followed").checkpoint == str(checkpoint)
    finally:
        query.stop()
    assert ss.Checkpoint(checkpoint).rescale(3, spark=spark).partitions == (2, 3)
    ss.Checkpoint(checkpoint).fork(folder / "edited", at=2, edit="DELETE FROM op0 WHERE k = 'a'", spark=spark)
    history.at(1).restore(to=folder / "restored", spark=spark)
    recorded = ss.record(source.stream(), folder.parent / EVERY / "recording")
    until(lambda: ss.recorded(folder.parent / EVERY / "recording", spark=spark).isStreaming and recorded.recorder.query)
    running = ss.start(recorded.groupBy("k").count(), "w", tmp_path / EVERY / "started", trigger="100ms")
    until(lambda: running.status().rows == expected)
    running.stop()
    assert len(ss.open_store(tmp_path / EVERY / "started")["w"].live().result().to_arrow()) == expected
    left = [path for path in folder.rglob("*/_metadata/*") if path.is_file() and b"streamstate-" in path.read_bytes()]
    assert left == []
