"""A store in an S3 bucket, accessed with ``storage_options``, behaves like a store on disk."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from streamstate.errors import DamagedStoreError, NotAStoreError, StoreError
from streamstate.reports import Store
from streamstate.snapshots.capture.table_capture import ROWS_IN_DRIVER
from streamstate.snapshots.store.delta import Place, append_once, maintenance, open_or_create
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.maintenance import sweep
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout


@pytest.fixture(scope="module")
def captured(bucket: Bucket, counted: tuple[Path, Path]) -> str:
    """A store in the bucket with the query of ``counted``."""
    store = f"{bucket.uri}/counted"
    report = ss.Checkpoint(counted[0], storage_options=bucket.options).capture(store, "counts")
    assert report.epochs == (0, 1, 2, 3, 4)
    return store


def table_with_rows(bucket: Bucket, name: str, commits: int) -> Place:
    """A table with one row per commit."""
    place = Place(f"{bucket.uri}/{name}", bucket.options)
    open_or_create(place, pa.schema([("n", pa.int64())]), "numbers")
    for number in range(commits):
        append_once(place, "test", number, lambda _, number=number: pa.table({"n": [number]}))  # type: ignore[misc]
    return place


def numbers(place: Place) -> list[int]:
    """The column ``n`` of the table."""
    values: list[int] = TableVersion(place, required(place)).scan("n").read_all()["n"].to_pylist()
    return sorted(values)


@pytest.mark.slow
def test_a_store_in_a_bucket_reads_like_one_on_disk(
    spark: SparkSession, bucket: Bucket, captured: str, counted: tuple[Path, Path], store: Store
) -> None:
    """Every epoch equals Spark's reader. Diffs and SQL results equal those of a store on disk."""
    remote = ss.open_store(captured, storage_options=bucket.options)
    assert compare(spark, counted[0], remote["counts"]) == 5
    assert remote["counts"].diff(1, 3).counts == store["counts"].diff(1, 3).counts
    query = "SELECT k, max FROM counts VERSION AS OF 2 ORDER BY k"
    assert remote.sql(query).to_arrow() == store.sql(query).to_arrow()


def test_capturing_again_changes_nothing(bucket: Bucket, captured: str, counted: tuple[Path, Path]) -> None:
    """A repeated capture writes no epochs and no rows."""
    report = ss.Checkpoint(counted[0], storage_options=bucket.options).capture(captured, "counts")
    assert (report.epochs, report.rows) == ((), 0)


@pytest.mark.slow
def test_concurrent_captures_make_one_history(spark: SparkSession, bucket: Bucket, counted: tuple[Path, Path]) -> None:
    """Conditional writes make sure that each version of a table has one writer."""
    store, failures = f"{bucket.uri}/twice", []

    def capture() -> None:
        try:
            ss.Checkpoint(counted[0], storage_options=bucket.options).capture(store, "q", spark=spark)
        except Exception as error:  # noqa: BLE001 (a thread's error would be lost)
            failures.append(error)

    threads = [threading.Thread(target=capture) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert compare(spark, counted[0], ss.open_store(store, storage_options=bucket.options)["q"]) == 5


@pytest.mark.slow
def test_executors_write_to_the_bucket(spark: SparkSession, bucket: Bucket, counted: tuple[Path, Path]) -> None:
    """In a large capture, executors upload the files, and the driver commits them."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    store = f"{bucket.uri}/large"
    ss.Checkpoint(counted[0], storage_options=bucket.options).capture(store, "q", spark=spark)
    spark.conf.unset(ROWS_IN_DRIVER)
    assert compare(spark, counted[0], ss.open_store(store, storage_options=bucket.options)["q"]) == 5


@pytest.mark.slow
def test_a_background_capture_writes_to_the_bucket(
    spark: SparkSession, bucket: Bucket, source: Source, tmp_path: Path
) -> None:
    """``Checkpoint.follow`` takes the storage options."""
    source.add(letters(0))
    run(counts(source), tmp_path / "c")
    store = f"{bucket.uri}/followed"
    capture = ss.Checkpoint(tmp_path / "c", storage_options=bucket.options).follow(store, "q", spark=spark)
    assert capture.wait(0, timeout=300) == 0
    capture.stop()
    assert compare(spark, tmp_path / "c", ss.open_store(store, storage_options=bucket.options)["q"]) == 1


def test_small_objects_are_merged_and_orphans_deleted(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are unchanged. Only uncommitted objects are deleted."""
    monkeypatch.setattr(maintenance, "_MANY", 3)
    place = table_with_rows(bucket, "merged", 3)
    orphan = f"part-{0:032x}-{0:032x}.parquet"
    with place.filesystem().open_output_stream(orphan) as file:
        file.write(b"left behind")
    assert maintenance.merge_small_files(place, "n") == 3
    assert sweep(place) == [orphan]
    assert numbers(place) == [0, 1, 2]


def test_a_damaged_object_is_detected(bucket: Bucket) -> None:
    """The content of a downloaded file is compared with the digest in its name before it is read."""
    place = table_with_rows(bucket, "damaged", 1)
    (path,) = [uri.rsplit("/", 1)[-1] for uri in required(place).file_uris()]
    with place.filesystem().open_input_file(path) as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 1
    with place.filesystem().open_output_stream(path) as output:
        output.write(bytes(content))
    with pytest.raises(DamagedStoreError, match="have changed since"):
        numbers(place)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "does not exist in our records"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Connection refused"),
    ],
)
def test_an_inaccessible_store_is_an_error_within_seconds(
    bucket: Bucket, counted: tuple[Path, Path], changed: dict[str, str], message: str
) -> None:
    """Wrong credentials and endpoints are not retried for minutes. The error refers to ``storage_options``."""
    options, started = bucket.options | changed, time.monotonic()
    with pytest.raises(StoreError, match=f"(?s){message}.*storage_options"):
        ss.Checkpoint(counted[0], storage_options=options).capture(f"{bucket.uri}/none", "q")
    with pytest.raises(StoreError, match=f"(?s){message}.*storage_options"):
        ss.open_store(f"{bucket.uri}/none", storage_options=options)
    assert time.monotonic() - started < 60


def test_missing_buckets_and_stores_are_reported(bucket: Bucket) -> None:
    """The errors for a missing bucket and for a prefix without a store are different."""
    with pytest.raises(StoreError, match=r"s3://elsewhere.*bucket does not exist"):
        ss.open_store("s3://elsewhere/store", storage_options=bucket.options)
    with pytest.raises(NotAStoreError, match="no _queries table"):
        ss.open_store(f"{bucket.uri}/empty", storage_options=bucket.options)


def test_credentials_are_not_printed(bucket: Bucket) -> None:
    """The repr of a layout does not contain the storage options."""
    layout = Layout.at(f"{bucket.uri}/s", bucket.options)
    assert "secret" not in repr(layout) + repr(layout.queries) + str(layout.queries)
