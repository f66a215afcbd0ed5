"""A store in an object store: the same as on a disk, through ``storage_options`` alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.snapshots.delta import Place, append_once, compaction, open_or_create
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.delta.sweep import sweep
from streamstate.snapshots.errors import DamagedStoreError, NotAStoreError, StoreError
from streamstate.snapshots.executors.scale import ROWS_IN_DRIVER
from streamstate.snapshots.layout import Layout

KEY = "streamstate"


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server, and how to reach it."""

    options: dict[str, str]
    uri: str = "s3://bucket"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """An empty bucket in a server of its own."""
    command = [sys.executable, str(Path(__file__).with_name("s3_server.py")), KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"}
            with urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT", headers=signed)) as made:
                assert made.status == 200
            yield Bucket(
                {
                    "AWS_ENDPOINT_URL": url,
                    "AWS_ALLOW_HTTP": "true",
                    "AWS_REGION": "us-east-1",
                    "AWS_ACCESS_KEY_ID": KEY,
                    "AWS_SECRET_ACCESS_KEY": "secret",
                }
            )
        finally:
            server.kill()


@pytest.fixture(scope="module")
def captured(spark: SparkSession, bucket: Bucket, counted: tuple[Path, Path]) -> str:
    """The store of ``counted``'s query in the bucket."""
    store = f"{bucket.uri}/counted"
    report = ss.capture(counted[0], store, "counts", spark=spark, storage_options=bucket.options)
    assert report.epochs == (0, 1, 2, 3, 4)
    return store


def appended(bucket: Bucket, name: str, commits: int) -> Place:
    """A table with one row a commit."""
    place = Place(f"{bucket.uri}/{name}", bucket.options)
    open_or_create(place, pa.schema([("n", pa.int64())]), "numbers")
    for number in range(commits):
        append_once(place, "test", number, lambda _, number=number: pa.table({"n": [number]}))  # type: ignore[misc]
    return place


def numbers(place: Place) -> list[int]:
    """The rows."""
    found: list[int] = TableVersion(place, required(place)).scan("n").read_all()["n"].to_pylist()
    return sorted(found)


def test_a_store_in_a_bucket_reads_as_one_on_a_disk(
    spark: SparkSession, bucket: Bucket, captured: str, counted: tuple[Path, Path], store: ss.Store
) -> None:
    """Every epoch equals Spark's reader; differences, histories and SQL are those of the store on the disk."""
    there = ss.open_store(captured, storage_options=bucket.options)
    assert compare(spark, counted[0], there["counts"]) == 5
    assert there["counts"].diff(1, 3).counts == store["counts"].diff(1, 3).counts
    query = "SELECT k, max FROM counts VERSION AS OF 2 ORDER BY k"
    assert there.sql(query).to_arrow() == store.sql(query).to_arrow()


def test_capturing_again_changes_nothing(
    spark: SparkSession, bucket: Bucket, captured: str, counted: tuple[Path, Path]
) -> None:
    """The transaction identifiers are looked up and committed there too."""
    again = ss.capture(counted[0], captured, "counts", spark=spark, storage_options=bucket.options)
    assert (again.epochs, again.rows) == ((), 0)


def test_two_captures_at_once_make_one_history(spark: SparkSession, bucket: Bucket, counted: tuple[Path, Path]) -> None:
    """Whoever commits a version second finds it taken: the server refuses to write an object twice."""
    store, failures = f"{bucket.uri}/twice", []

    def capture() -> None:
        try:
            ss.capture(counted[0], store, "q", spark=spark, storage_options=bucket.options)
        except Exception as error:  # noqa: BLE001 (a thread's error would be lost)
            failures.append(error)

    threads = [threading.Thread(target=capture) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert compare(spark, counted[0], ss.open_store(store, storage_options=bucket.options)["q"]) == 5


def test_executors_write_into_the_bucket(spark: SparkSession, bucket: Bucket, counted: tuple[Path, Path]) -> None:
    """A large capture: tasks upload the files, the driver looks at them and commits."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    store = f"{bucket.uri}/large"
    ss.capture(counted[0], store, "q", spark=spark, storage_options=bucket.options)
    spark.conf.unset(ROWS_IN_DRIVER)
    assert compare(spark, counted[0], ss.open_store(store, storage_options=bucket.options)["q"]) == 5


def test_a_query_is_followed_into_the_bucket(
    spark: SparkSession, bucket: Bucket, source: Source, tmp_path: Path
) -> None:
    """Background captures take the options too."""
    source.add(letters(0))
    run(counts(source), tmp_path / "c")
    store = f"{bucket.uri}/followed"
    capture = ss.follow(tmp_path / "c", store, "q", spark=spark, storage_options=bucket.options)
    assert capture.wait(0, timeout=60) == 0
    capture.stop()
    assert compare(spark, tmp_path / "c", ss.open_store(store, storage_options=bucket.options)["q"]) == 1


def test_small_objects_are_merged_and_orphans_swept(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction changes no row; what no commit holds goes, what one holds stays."""
    monkeypatch.setattr(compaction, "_MANY", 3)
    place = appended(bucket, "merged", 3)
    orphan = f"part-{0:032x}-{0:032x}.parquet"
    with place.filesystem().open_output_stream(orphan) as file:
        file.write(b"left behind")
    assert compaction.compact(place, "n") == 3
    assert sweep(place) == [orphan]
    assert numbers(place) == [0, 1, 2]


def test_a_damaged_object_is_noticed(bucket: Bucket) -> None:
    """What was fetched is checked against the digest in its name before anything reads it."""
    place = appended(bucket, "damaged", 1)
    (path,) = [uri.rsplit("/", 1)[-1] for uri in required(place).file_uris()]
    with place.filesystem().open_input_file(path) as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 1
    with place.filesystem().open_output_stream(path) as changed:
        changed.write(bytes(content))
    with pytest.raises(DamagedStoreError, match="not those that were written"):
        numbers(place)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "does not exist in our records"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Connection refused"),
    ],
)
def test_what_cannot_be_reached_is_said_soon(
    spark: SparkSession, bucket: Bucket, counted: tuple[Path, Path], wrong: dict[str, str], says: str
) -> None:
    """Wrong credentials and a wrong endpoint: an error in seconds that names the options, not retries for minutes."""
    options, started = bucket.options | wrong, time.monotonic()
    with pytest.raises(StoreError, match=f"(?s){says}.*storage_options"):
        ss.capture(counted[0], f"{bucket.uri}/none", "q", spark=spark, storage_options=options)
    with pytest.raises(StoreError, match=f"(?s){says}.*storage_options"):
        ss.open_store(f"{bucket.uri}/none", storage_options=options)
    assert time.monotonic() - started < 20


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket) -> None:
    """As is a prefix that holds no store."""
    with pytest.raises(StoreError, match=r"s3://elsewhere.*bucket does not exist"):
        ss.open_store("s3://elsewhere/store", storage_options=bucket.options)
    with pytest.raises(NotAStoreError, match="no _queries table"):
        ss.open_store(f"{bucket.uri}/empty", storage_options=bucket.options)


def test_credentials_do_not_show(bucket: Bucket) -> None:
    """What is printed of a store never holds the options."""
    layout = Layout.at(f"{bucket.uri}/s", bucket.options)
    assert "secret" not in repr(layout) + repr(layout.queries) + str(layout.queries)
