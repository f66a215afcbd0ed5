"""A store names a checkpoint and its sources, and a checkpoint names types: none of them makes this process do more."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import SparkSession
from recorded.unpacked import CURRENT, copied, unpacked

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UntrustedCheckpointError, UntrustedStoreError
from streamstate.reports import History
from streamstate.snapshots.checkpoint.decoding.schema_files import family_schemas
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest

NAMES = [
    "../../../victim/startup",
    "/victim",
    "..",
    "",
    "a/../../../victim",
    "..\\victim",
    "a\0",
    "file:///victim",
    "ä",
    "%2e%2e",
    "0 ",
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded checkpoint."""
    return unpacked(CURRENT, tmp_path_factory.mktemp("recorded")) / "counted" / "checkpoint"


@pytest.fixture
def checkpoint(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, which somebody else controls."""
    return copied(recorded, tmp_path / "theirs" / "checkpoint")


def with_sources(store: Path, names: list[str]) -> History:
    """The history of a store whose manifest names the sources like this."""
    layout = Layout.at(store)
    manifest = Manifest(layout, "q")
    manifest.refresh()
    offsets = json.dumps({name: {"logOffset": 0} for name in names})
    entries = [replace(entry, offsets=offsets) for entry in manifest.entries]
    shutil.rmtree(Path(layout.manifest("q").uri))
    Manifest(layout, "q").append(entries, "q/_epochs")
    return ss.open_store(store)["q"]


@pytest.mark.parametrize("name", NAMES)
def test_a_source_s_name_leads_nowhere(spark: SparkSession, checkpoint: Path, tmp_path: Path, name: str) -> None:
    """It is a folder of the new checkpoint, which would be filled with the store's author's files."""
    victim = tmp_path / "victim" / "startup"
    (tmp_path / "theirs" / "victim" / "startup").mkdir(parents=True)
    (tmp_path / "theirs" / "victim" / "startup" / "evil.py").write_text("evil")
    ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q")
    history = with_sources(tmp_path / "store", ["flights", name])
    mine = tmp_path / "mine" / "deep"
    mine.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UntrustedStoreError, match="source name"):
        history.live().restore(to=mine / "restored", spark=spark)
    assert not victim.exists()
    assert sorted(tmp_path.rglob("*")) == before


def udt(**more: object) -> dict[str, Any]:
    """A user-defined type, whose module PySpark imports."""
    kind = {"type": "udt", "pyClass": "evil.Evil", "serializedClass": "gASV", "sqlType": "long"} | more
    return {name: value for name, value in kind.items() if value is not None}


@pytest.fixture(autouse=True)
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the module writes, which is on the path, as one in the current folder is."""
    (tmp_path / "evil.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return tmp_path / "ran"


def schema(kind: object, *, text: Callable[[str], str] = str) -> bytes:
    """A state schema file of version 2, whose value has the type."""

    def written(content: str) -> bytes:
        return struct.pack(">H", len(content.encode())) + content.encode()

    key = {"type": "struct", "fields": [{"name": "k", "type": "string", "nullable": True, "metadata": {}}]}
    value = {"type": "struct", "fields": [{"name": "v", "type": kind, "nullable": True, "metadata": {}}]}
    pieces = [written(text(json.dumps(part))) for part in (key, value)]
    return written("v2") + b"".join(struct.pack(">i", 1) + piece for piece in pieces)


KINDS: dict[str, object] = {
    "plain": udt(),
    "in an array": {"type": "array", "elementType": udt(), "containsNull": True},
    "in a map": {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "struct", "fields": [{"name": "u", "type": udt(), "nullable": True}]},
        "valueContainsNull": True,
    },
    "pickled": udt(pyClass="json.Evil"),
    "a Java class": udt(pyClass=None, serializedClass=None, **{"class": "java.lang.Object"}),
    "a known type with another Java class": udt(
        **{"pyClass": "pyspark.ml.linalg.VectorUDT", "class": "java.lang.Object"}
    ),
    "a class that is no type": udt(pyClass="json.JSONDecoder"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_that_names_code_is_refused_by_every_call(
    spark: SparkSession, checkpoint: Path, tmp_path: Path, ran: Path, kind: str
) -> None:
    """Before Spark reads the schema; the calls that only read files refuse it too."""
    store = tmp_path / "store"
    ss.Checkpoint(checkpoint).capture(store, "q")
    files = [*(checkpoint / "state").rglob("_metadata/schema")]
    assert files
    for file in files:
        file.write_bytes(schema(KINDS[kind]))
        file.with_name(".schema.crc").unlink(missing_ok=True)
    history = ss.open_store(store)["q"]
    calls: list[Callable[[], object]] = [
        lambda: ss.Checkpoint(checkpoint).capture(tmp_path / "again", "q", verify="all", spark=spark),
        lambda: history.live().restore(to=tmp_path / "restored", spark=spark),
        lambda: ss.Checkpoint(checkpoint).fork(tmp_path / "fork", spark=spark),
        lambda: ss.Checkpoint(checkpoint).fork(tmp_path / "edited", edit="DELETE FROM op0", spark=spark),
        lambda: ss.Checkpoint(checkpoint).rescale(3, spark=spark),
    ]
    for call in calls:
        with pytest.raises(UntrustedCheckpointError, match="user-defined type"):
            call()
    assert not ran.exists()
    assert not any((tmp_path / name).exists() for name in ("restored", "fork", "edited"))


def test_pyspark_would_run_it(spark: SparkSession, checkpoint: Path, ran: Path) -> None:
    """PySpark, which the calls must not ask, imports the module when it reads the schema."""
    for file in (checkpoint / "state").rglob("_metadata/schema"):
        file.write_bytes(schema(udt()))
        file.with_name(".schema.crc").unlink(missing_ok=True)
    with pytest.raises(PySparkException):
        _ = spark.read.format("statestore").load(str(checkpoint)).schema
    assert ran.exists()


@pytest.mark.parametrize("text", [lambda text: text.replace('"udt"', '"\\u0075dt"')])
def test_escapes_hide_nothing(text: Callable[[str], str]) -> None:
    """JSON has several spellings of a text."""
    with pytest.raises(UntrustedCheckpointError, match="user-defined type"):
        family_schemas(schema(udt(), text=text), "schema")


def test_a_type_that_is_imported_is_known() -> None:
    """Its classes are those that this process has loaded already."""
    kind = json.loads(VectorUDT().json())
    [found] = family_schemas(schema(kind), "schema").values()
    assert found.value["fields"][0]["type"] == kind


def test_the_caller_names_the_checkpoint(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    """Before the store does; the progress says which one is read."""
    ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q")
    history = ss.open_store(tmp_path / "store")["q"]
    mine = checkpoint.rename(tmp_path / "mine")
    said: list[str] = []
    history.live().restore(
        to=tmp_path / "restored", checkpoint=mine, spark=spark, progress=lambda message, _: said.append(message)
    )
    assert any(str(mine) in message for message in said)
    with pytest.raises(InvalidArgumentError, match="not both"):
        history.live().restore(to=tmp_path / "other", build_query=lambda: spark.range(1), checkpoint=mine)
