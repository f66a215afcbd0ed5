"""Paths in an untrusted store cannot lead out of it, neither for readers nor for maintenance."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.errors import StoreError, UntrustedStoreError
from streamstate.snapshots.store.delta.maintenance import sweep
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.snapshots.store.retention.tidying import compact

STATES = [{"a": 1}, {"a": 2, "b": 5}, {"a": 3}]

USES: dict[str, Callable[[Path], object]] = {
    "reading": lambda path: ss.open_store(path)["q"].live().table().to_arrow(),
    "SQL": lambda path: ss.open_store(path).sql("FROM q.changes").to_arrow(),
    "merging": lambda path: compact(path, "q"),
    "retention": lambda path: ss.open_store(path)["q"].retain(last=1),
    "export": lambda path: ss.open_store(path)["q"].export(path.parent / "exported"),
}
"""Operations that read or change a store."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that each test copies."""
    folder = tmp_path_factory.mktemp("original") / "store"
    write(folder, [dict(state) for state in STATES])
    return folder


@pytest.fixture
def theirs(original: Path, tmp_path: Path) -> Path:
    """The untrusted store."""
    return Path(shutil.copytree(original, tmp_path / "theirs"))


@pytest.fixture
def mine(original: Path, tmp_path: Path) -> Path:
    """A store of the user, which must not be read or changed through the untrusted store."""
    return Path(shutil.copytree(original, tmp_path / "mine"))


def content(folder: Path) -> dict[str, bytes]:
    """The content of all files of a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def with_action(table: Path, action: str, path: str) -> None:
    """Add a log entry with an action on a file to a table."""
    newest = max(int(file.stem) for file in (table / "_delta_log").glob("*.json"))
    size = next(table.glob("part-*")).stat().st_size
    facts = {"path": path, "size": size, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    if action == "remove":
        facts = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    (table / f"_delta_log/{newest + 1:020}.json").write_text(json.dumps({action: facts}) + "\n")


def with_deleted_rows(table: Path) -> None:
    """Mark a row of each data file as deleted beside the file, as other writers of Delta do."""
    log = table / "_delta_log"
    for entry in sorted(log.glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                bits = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
                action["add"]["deletionVector"] = bits | {"sizeInBytes": 40, "cardinality": 1}
            if "protocol" in action:
                features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
                action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7} | features
        entry.write_text("\n".join(map(json.dumps, actions)) + "\n")
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("table", ["q/op0", "q/_epochs", "_queries"])
def test_deleted_rows_are_not_read_as_live(theirs: Path, use: str, table: str) -> None:
    """Rows that a deletion vector removes would be read, so a table with that feature of Delta is refused."""
    with_deleted_rows(theirs / table)
    before = content(theirs)
    with pytest.raises(StoreError, match="uses deletionVectors of Delta") as raised:
        USES[use](theirs)
    assert str(raised.value).count("The table") == 1
    assert content(theirs) == before


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("table", ["q/op0", "q/_epochs", "_queries"])
def test_a_log_cannot_list_files_of_other_tables(mine: Path, theirs: Path, use: str, table: str) -> None:
    """Otherwise, files of the user would be read, and shared, as part of the untrusted store."""
    stolen = next((mine / table).glob("part-*"))
    with_action(theirs / table, "add", str(stolen))
    before = content(mine)
    with pytest.raises(UntrustedStoreError, match="does not belong to this table"):
        USES[use](theirs)
    assert content(mine) == before


@pytest.mark.parametrize(
    "form",
    [
        "{}", "file://{}", "../../../mine/q/op0/{name}", "..%2F..%2F..%2Fmine%2Fq%2Fop0%2F{name}", "./{name}",
        "%2e%2e/x", "s3://bucket/{name}", "sub/../../{name}", "..\\{name}", "", "..", "a\0b", "sub/{name}",
    ],
)  # fmt: skip
def test_invalid_paths_in_a_log_are_rejected(mine: Path, theirs: Path, form: str) -> None:
    """Paths in a Delta log are URIs, and may be percent-encoded."""
    stolen = next((mine / "q/op0").glob("part-*"))
    with_action(theirs / "q/op0", "add", form.format(stolen, name=stolen.name))
    with pytest.raises(UntrustedStoreError, match="does not belong to this table"):
        USES["SQL"](theirs)


def test_spark_sql_does_not_read_files_of_other_tables(mine: Path, theirs: Path, spark: SparkSession) -> None:
    """Paths are also checked if Spark reads the files."""
    with_action(theirs / "q/op0", "add", str(next((mine / "q/op0").glob("part-*"))))
    with pytest.raises(UntrustedStoreError, match="does not belong to this table"):
        ss.open_store(theirs).sql("FROM q.changes", engine="spark", spark=spark).to_arrow()


@pytest.mark.parametrize("path", ["{}", "../../../mine/q/op0/{name}", "..%2F..%2F..%2Fmine%2Fq%2Fop0%2F{name}"])
def test_a_log_cannot_delete_files_of_other_tables(mine: Path, theirs: Path, path: str) -> None:
    """Maintenance deletes files in the folder of the table only."""
    stolen = next((mine / "q/op0").glob("part-*"))
    with_action(theirs / "q/op0", "remove", path.format(stolen, name=stolen.name))
    before = content(mine)
    USES["merging"](theirs)
    sweep(Layout.at(theirs).changelog("q", "op0"), timedelta(0))
    USES["retention"](theirs)
    assert content(mine) == before


@pytest.mark.parametrize("name", ["../mine/q", "/tmp/q", "..", "", ".hidden", "a/b", "x" * 101, "q\n"])
def test_invalid_query_names_are_rejected(mine: Path, theirs: Path, name: str) -> None:
    """Query names are appended to the path of the store, so they are checked when the queries table is read."""
    with contextlib.suppress(UntrustedStoreError):  # it reads the table after writing
        register(Layout.at(theirs), name, "other", "checkpoint")
    before = content(mine)
    uses: list[Callable[[], object]] = [
        lambda: ss.open_store(theirs).queries(),
        lambda: ss.open_store(theirs)[name].retain(last=1),
    ]
    for use in uses:
        with pytest.raises(UntrustedStoreError, match="not valid as a folder"):
            use()
    assert content(mine) == before


@pytest.mark.parametrize("table", ["../../mine/q/op0", "/tmp/op0", "..", "", "a/b", "a\\b"])
@pytest.mark.parametrize("use", USES)
def test_invalid_table_names_are_rejected(mine: Path, theirs: Path, use: str, table: str) -> None:
    """Otherwise, retention could delete files of another store's table by a name in the manifest."""
    manifest = Manifest(Layout.at(theirs), "q")
    manifest.refresh()
    manifest.append([Entry(3, CAPTURED, tables={table: TableEntry(1, 0, None)})], "q/_epochs")
    before = content(mine)
    with pytest.raises(UntrustedStoreError, match="not valid as a folder"):
        USES[use](theirs)
    assert content(mine) == before


@pytest.mark.parametrize("link", ["q", "q/op0", "q/_epochs", "_queries", "q/op0/_delta_log", "q/op0/part"])
@pytest.mark.parametrize("use", USES)
def test_symlinks_out_of_the_store_are_rejected(mine: Path, theirs: Path, use: str, link: str) -> None:
    """Otherwise, retention could delete files of another store through a symlink."""
    if link == "q/op0/part":
        link = str(next((theirs / "q/op0").glob("part-*")).relative_to(theirs))
    target = mine / link
    if (theirs / link).is_dir():
        shutil.rmtree(theirs / link)
    else:
        (theirs / link).unlink()
    (theirs / link).symlink_to(target)
    before = content(mine)
    with pytest.raises(UntrustedStoreError, match="link"):
        USES[use](theirs)
    assert content(mine) == before


def test_the_path_of_a_store_may_be_a_symlink(mine: Path, tmp_path: Path) -> None:
    """All operations work through a symlink to the store."""
    (tmp_path / "link").symlink_to(mine)
    for use in USES.values():
        use(tmp_path / "link")
