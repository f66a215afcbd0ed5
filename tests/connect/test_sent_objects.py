"""Arguments travel to the worker process and results back: by value, as a session, or as an object that stays there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownEpochError
from streamstate.reports import Store
from streamstate.snapshots.spark.worker.kept_objects import KeptObjects, StandIns
from streamstate.snapshots.spark.worker.sent_objects import (
    packed_call,
    packed_error,
    packed_result,
    unpacked_call,
    unpacked_error,
    unpacked_result,
)


@dataclass(frozen=True)
class Session:
    """A report of streamstate that holds something that belongs to the worker's process."""

    epoch: int
    folder: Any

    def next(self, by: int = 1) -> int:
        """Return a later epoch."""
        return self.epoch + by

    def same(self) -> Session:
        """Return the object itself."""
        return self


Session.__module__ = "streamstate.reports"


class Loopback:
    """A worker in the same process."""

    def __init__(self) -> None:
        self.kept = KeptObjects()
        self.stand_ins = StandIns(self)
        self.released: list[int] = []

    def call_kept(self, number: int, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of a kept object."""
        return self.result(getattr(self.kept.get(number), name)(*args, **kwargs))

    def read_kept(self, number: int, name: str) -> Any:
        """Return an attribute of a kept object."""
        return self.result(getattr(self.kept.get(number), name))

    def release(self, number: int) -> None:
        """Note that a stand-in is gone."""
        self.released.append(number)

    def result(self, value: Any) -> Any:
        """A result as the client receives it."""
        return unpacked_result(packed_result(value, self.kept), self.stand_ins)

    def argument(self, value: Any, session: object = None) -> Any:
        """An argument as the worker receives it."""
        data = packed_call(("function", "module", "name", (value,), {}), self)
        return unpacked_call(data, self.kept, lambda: session, lambda *_: None)[3][0]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """A worker in this process, which finds the class above where streamstate's are."""
    import streamstate.reports

    monkeypatch.setattr(streamstate.reports, "Session", Session, raising=False)
    return Loopback()


def connect_session() -> Any:
    """A client's session of Spark Connect, of a server that is asked for nothing."""
    vars(sys.modules["__main__"]).setdefault("__spec__", None)  # PySpark asks for it; tests of shells put others there
    session = pytest.importorskip("pyspark.sql.connect.session").SparkSession
    return session.__new__(session)


def test_the_session_in_a_function_becomes_the_workers(worker: Loopback) -> None:
    """A notebook's ``spark`` is the classic session of the worker there."""
    spark = connect_session()
    received = worker.argument(lambda: spark, session="the worker's")
    assert received() == "the worker's"


def test_what_cannot_travel_is_named(worker: Loopback) -> None:
    """The error names the variable and the function."""
    guard = threading.Lock()

    def build_query() -> Any:
        return guard.locked()

    with pytest.raises(InvalidArgumentError, match="build_query uses guard, an object of the type lock, which cannot"):
        worker.argument(build_query)


def test_reports_of_values_are_copied(worker: Loopback) -> None:
    """An object that holds nothing of the process is an ordinary one in the client."""
    received = worker.result([Session(3, "a folder")])
    assert received == [Session(3, "a folder")]
    assert type(received[0]) is Session
    assert not worker.released


def test_other_reports_stay_and_answer_from_there(worker: Loopback) -> None:
    """Attributes, methods and the text of a stand-in are those of its object."""
    kept = Session(3, threading.Lock())
    received = worker.result(kept)
    assert isinstance(received, Session)
    assert type(received) is not Session
    assert (received.epoch, received.next(), received.next(by=4)) == (3, 4, 7)
    assert repr(received) == repr(kept)
    assert worker.argument(received) is kept


def test_an_object_is_kept_until_its_last_stand_in_is_gone(worker: Loopback) -> None:
    """The same object has one stand-in, and sending it again keeps it no longer than that."""
    received = worker.result(Session(3, threading.Lock()))
    assert received.same() is received
    [number] = worker.released
    del received
    assert worker.released == [number, number]
    worker.kept.release(worker.released)
    with pytest.raises(KeyError):
        worker.kept.get(number)


def test_an_error_keeps_its_class_and_causes(worker: Loopback) -> None:
    """Also one with a class of the user's program; one that cannot travel arrives as its text."""
    error = UnknownEpochError("There is no epoch 9.")
    error.__cause__ = OSError("gone")
    received = unpacked_error(packed_error(error))
    assert (type(received), str(received)) == (UnknownEpochError, "There is no epoch 9.")
    assert isinstance(received.__cause__, OSError)
    error.__cause__ = ValueError(threading.Lock())
    assert isinstance(unpacked_error(packed_error(error)).__cause__, RuntimeError)


def test_histories_and_snapshots_are_opened_again(worker: Loopback, store: Store) -> None:
    """They travel by what they are made of; copies in one process share an index."""
    [name] = store.queries()
    snapshot = worker.argument(store[name].at(2))
    assert snapshot.epoch == 2
    assert snapshot.table().to_pandas().equals(store[name].at(2).table().to_pandas())
    assert worker.argument(store[name]).recorded.index is snapshot.history.recorded.index


def test_a_checkpoint_travels_by_its_path(worker: Loopback, tmp_path: Path) -> None:
    """Open files and a running query stay."""
    checkpoint = ss.Checkpoint(tmp_path, storage_options={"AWS_REGION": "eu-central-1"})
    vars(checkpoint)["_opened"] = vars(checkpoint)["_query"] = threading.Lock()
    received = worker.argument(checkpoint)
    assert received == checkpoint
    assert received._storage_options == checkpoint._storage_options
