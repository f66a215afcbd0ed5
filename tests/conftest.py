"""One Spark session for the tests that ask for it, and small streaming queries to capture."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import settings
from input_files import in_turn
from no_spark import without_spark
from quick_files import use_quick_files
from recorded.unpacked import CURRENT, unpacked
from spark_settings import SHARED

import streamstate as ss
from streamstate.launch.starting import STARTED
from streamstate.reports import Store
from streamstate.state_inspect import captured_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# How long an example takes depends on what else the machine does.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first, those with a long time limit before others, so that no worker is still busy at the end."""
    longest = {item.path for item in items for limit in item.iter_markers("timeout") if limit.args[0] >= 600}
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("browser")}
    items.sort(key=lambda item: (item.path not in longest, item.path not in slow))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Set up tests without Spark, unless they or their fixtures ask for it."""
    with _as_asked(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run tests without Spark, unless they or their fixtures ask for it."""
    with _as_asked(item):
        return (yield)


def _as_asked(item: pytest.Item) -> AbstractContextManager[None]:
    asked = "spark" in getattr(item, "fixturenames", ())
    return nullcontext() if asked else without_spark()


@pytest.fixture(autouse=True, scope="module")
def no_thread_remains() -> Iterator[None]:
    """Check that every thread that a file's tests start ends with them: views, servers, captures, supervision."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("streamstate"):
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} still runs"


@pytest.fixture(autouse=True, scope="module")
def no_started_query_remains() -> Iterator[None]:
    """Forget what a file's tests started with ``ss.start``, which ``%stream list`` of a later file would list."""
    yield
    for running in STARTED.values():
        running.stop()
    STARTED.clear()


@pytest.fixture(params=[captured_query._SOON_READ, -1], ids=["all keys", "from files"])
def read_either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test twice; the second time each epoch is a part of the history."""
    monkeypatch.setattr(captured_query, "_SOON_READ", request.param)
    if request.param < 0:
        monkeypatch.setattr(captured_query, "_IN_A_PART", 0)


@pytest.fixture
def read_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are read from the files that have them."""
    monkeypatch.setattr(captured_query, "_SOON_READ", -1)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The embedded session, shared because starting Spark is slow. Only tests that ask for it can use Spark."""
    session = ss.session(**SHARED)
    use_quick_files(session)
    yield session
    session.stop()


class Source:
    """A folder of Parquet files, of which a query reads one per epoch."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self._spark = spark
        self._schema = schema
        self._numbers = itertools.count()
        self.folder = folder
        folder.mkdir(parents=True)

    def add(self, rows: dict[str, list[Any]]) -> None:
        """Add the input of one epoch, atomically: a running query never sees an incomplete file."""
        number = next(self._numbers)
        file = self.folder / f"{number:05}.parquet"
        hidden = file.with_name(f"_{file.name}")
        pd.DataFrame(rows).to_parquet(hidden, coerce_timestamps="us")
        in_turn(hidden, number)
        hidden.rename(file)

    def stream(self) -> DataFrame:
        """The folder as a streaming DataFrame."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


def run(frame: DataFrame, checkpoint: Path, mode: str = "update") -> None:
    """Run a query over the available input until it ends."""
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """An empty source of ``k string, v long``."""
    return Source(spark, tmp_path / "input", "k string, v long")


def counts(source: Source) -> DataFrame:
    """A keyed aggregate. With both ``avg`` and ``count``, Spark's value struct has two fields named count."""
    from pyspark.sql import functions as F

    return source.stream().groupBy("k").agg(F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("v").alias("most"))


def letters(epoch: int, keys: int = 7, rows: int = 20) -> dict[str, list[Any]]:
    """The input of an epoch: all keys but one, and a key that only this epoch has."""
    numbers = range(rows * epoch, rows * (epoch + 1))
    names = [f"k{number % keys}" for number in numbers if number % keys != epoch % keys]
    return {"k": [*names, f"only{epoch}"], "v": [*numbers[: len(names)], epoch]}


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recorded query of five epochs, captured as ``counts``: its checkpoint and the store.

    The input is in the folder ``input`` beside them. See ``recorded/current.py``.
    """
    folder = unpacked(CURRENT, tmp_path_factory.mktemp("recorded")) / "counted"
    ss.Checkpoint(folder / "checkpoint").capture(folder / "store", "counts", verify="never")
    return folder / "checkpoint", folder / "store"


@pytest.fixture(scope="session")
def store(counted: tuple[Path, Path]) -> Store:
    """The opened store of ``counted``."""
    return ss.open_store(counted[1])
