"""Every verb, with the checkpoint, the store and the input in a bucket."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from capturing.buckets import Bucket
from pyspark.sql import SparkSession

import streamstate as ss
from services.s3.orders import Orders
from streamstate.errors import CaptureError, QueryError, StateWriteError, StreamStateError
from streamstate.replay.stepping.fork_folder import LOCK_FILE, stepping
from streamstate.reports import History
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles


@pytest.fixture(scope="module")
def orders(spark: SparkSession, bucket: Bucket) -> Orders:
    """Three epochs of a query, which are captured."""
    made = Orders(spark, bucket, "orders")
    for _ in range(3):
        made.add()
    running = ss.start(
        made.build(),
        "orders",
        made.store,
        checkpoint=made.uri("checkpoint"),
        trigger="available-now",
        storage_options=bucket.options,
    )
    running.wait(timeout=300)
    running.stop()
    return made


@pytest.fixture
def history(orders: Orders) -> History:
    """The captured epochs."""
    return ss.open_store(orders.store, storage_options=orders.bucket.options)["orders"]


def test_epochs_are_captured(orders: Orders, history: History) -> None:
    """While the query runs: each epoch has the rows of a batch, and the files are examined."""
    assert history.captured() == [0, 1, 2]
    for epoch in range(3):
        rows = history.at(epoch).table().to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == orders.batch(slice(epoch + 1))
    checkpoint = orders.checkpoint()
    assert checkpoint.doctor().can_capture
    assert list(checkpoint.epochs()["epoch"]) == [0, 1, 2]
    assert list(checkpoint.operators()["table"]) == ["op0"]
    assert checkpoint.capture(orders.store).epochs == ()


def test_a_change_leads_to_its_input(history: History) -> None:
    """The input rows of an epoch and those behind a change are read from the bucket."""
    assert history.inputs(1).count() == 12
    assert history.why(1, k="k1").count() == 3
    assert history.late(1).count() == 0
    assert len(history.diff(0, 1).changed) == 5


def test_a_fork_is_copied_on_the_servers_side(orders: Orders) -> None:
    """Files of the state are neither downloaded nor uploaded; the fork then runs the original's next epoch."""
    orders.bucket.requests()
    fork = orders.checkpoint().fork(orders.uri("fork"), at=1)
    requests = [request.split(maxsplit=1) for request in orders.bucket.requests()]
    state = {(verb, "fork/" in key) for verb, key in requests if key.endswith((".changelog", ".zip", ".sst"))}
    assert state == {("HEAD", False), ("HEAD", True), ("COPY", True)}
    assert orders.state("fork") == orders.batch(slice(2))
    assert fork.step(orders.build).epoch == 2
    assert orders.state("fork") == orders.batch()


def test_a_fork_is_stepped_by_one_process(orders: Orders) -> None:
    """Of two that begin at the same moment one is refused, and the lock of a process that is gone is taken over."""
    fork = orders.checkpoint().fork(orders.uri("locked"), at=1)
    files, lock = HadoopFiles(orders.spark), f"{fork.path}/{LOCK_FILE}"
    host = socket.gethostname()
    files.write(lock, json.dumps({"process": os.getppid(), "host": host}))
    with pytest.raises(QueryError, match=f"is being stepped by process {os.getppid()} on {host}"):
        fork.step(orders.build)
    files.write(lock, json.dumps({"process": 999999999, "host": host}), replace=True)
    with stepping(fork.path, orders.spark):
        assert str(os.getpid()) in (files.text(lock) or "")
    assert files.text(lock) is None


def test_of_two_writers_of_a_new_object_one_fails(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the other one writes it after the first has looked whether it exists."""
    files, path = HadoopFiles(orders.spark), orders.uri("contested")
    created = HadoopFiles._created

    def late(late_files: HadoopFiles, *arguments: Any) -> Any:
        stream = created(late_files, *arguments)
        with monkeypatch.context() as first:
            first.setattr(HadoopFiles, "_created", created)
            files.write(path, "first")
        return stream

    monkeypatch.setattr(HadoopFiles, "_created", late)
    with pytest.raises(FileExistsError):
        HadoopFiles(orders.spark).write(path, "second")
    assert files.text(path) == "first"


@pytest.mark.slow
def test_epochs_are_run_again(orders: Orders) -> None:
    """Also on a fork on this machine's disk, which reads the plan of the next epoch from the bucket."""
    checkpoint = orders.checkpoint()
    assert checkpoint.replay(orders.build, epochs=(1, 2)).same
    audit = checkpoint.audit(orders.build, epochs=(2, 2), replays=1)
    assert audit.clean
    assert [replay.upto for replay in audit.replays] == [2, 2]
    with checkpoint.debug(orders.build, at=1) as session:
        session.step()
        assert session.epoch == 2


@pytest.mark.slow
def test_code_is_checked(orders: Orders) -> None:
    """The same code goes on; another aggregate does not, and a mapping is proposed."""
    checkpoint = orders.checkpoint()
    assert checkpoint.check(orders.build).ok
    assert not checkpoint.check(lambda: orders.build("max")).ok
    (proposal,) = checkpoint.propose_mapping(lambda: orders.build("max"))
    assert proposal.table == "op0"


@pytest.mark.slow
def test_new_checkpoints_equal_the_batch(orders: Orders, history: History) -> None:
    """Migrated, restored, bootstrapped and rescaled ones have the state of a batch, and go on to it."""
    checkpoint = orders.checkpoint()
    checkpoint.migrate(orders.build, to=orders.uri("migrated"))
    history.at(1).restore(to=orders.uri("restored"))
    state = orders.spark.createDataFrame(orders.batch(slice(1)), "k string, sum long, count long")
    first = [[f"{orders.uri('input')}/00000.parquet"]]
    ss.bootstrap(orders.build, to=orders.uri("bootstrapped"), state=state, offsets=first)
    orders.checkpoint().fork(orders.uri("rescaled"))
    assert orders.checkpoint("rescaled").rescale(3).partitions == (1, 3)
    for name, epochs in {"migrated": 3, "restored": 2, "bootstrapped": 1, "rescaled": 3}.items():
        assert orders.state(name) == orders.batch(slice(epochs)), name
    for name in ("restored", "bootstrapped"):
        orders.run(name)
        assert orders.state(name) == orders.batch(), name


def test_the_reason_is_said_at_once(orders: Orders) -> None:
    """If the server refuses, the message is the innermost cause, from whichever call it comes."""
    checkpoint = orders.checkpoint()
    checkpoint.fork(orders.uri("refused"), at=1)
    edit = "UPDATE op0 SET count = 0 WHERE k = 'k1'"
    calls: dict[str, tuple[type[StreamStateError], Callable[[], object]]] = {
        "step": (QueryError, lambda: orders.checkpoint("refused").step(orders.build)),
        "fork": (CaptureError, lambda: checkpoint.fork(orders.uri("none"))),
        "edit": (StateWriteError, lambda: checkpoint.fork(orders.uri("none"), edit=edit)),
    }
    orders.bucket.fail((r"^(PUT|COPY) .*\.(zip|changelog|sst)$", 403))
    try:
        for name, (kind, call) in calls.items():
            with pytest.raises(kind, match=r"S3Exception: This request fails in a test.*Status Code: 403") as raised:
                call()
            assert len(str(raised.value).splitlines()) <= 3, name
    finally:
        orders.bucket.fail()
