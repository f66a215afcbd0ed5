"""Records that a query has read, and that its topics no longer have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

import streamstate as ss
from services.kafka.broker import Broker
from services.kafka.counting import Counting
from streamstate.errors import NotReplayableError
from streamstate.snapshots.store.query_plans import plan_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 3
GONE = r"records 30 to 39 of the topic exp, partition 0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the queries of this file."""
    return tmp_path_factory.mktemp("lost")


@pytest.fixture(scope="module")
def queries(spark: SparkSession, broker: Broker, folder: Path) -> dict[str, Counting]:
    """Two queries with epochs of 60 records, whose first 40 records of a partition have expired by now.

    One fails where records are lost, which is the default, the other does not.
    """
    broker.create("exp", retention_ms=str(7 * 24 * 60 * 60 * 1000))
    found = {
        "strict": Counting(spark, broker, "strict", folder, subscribe="exp"),
        "lenient": Counting(spark, broker, "lenient", folder, subscribe="exp", failOnDataLoss="false"),
    }
    for _ in range(EPOCHS):
        broker.produce("exp", ((n % 2, f"k{n % 5}", "v") for n in range(60)))
        for query in found.values():
            query.run()
    broker.expire("exp", {0: 40})
    return found


@pytest.fixture(params=[pytest.param("strict", marks=pytest.mark.exhaustive), "lenient"])
def query(request: pytest.FixtureRequest, queries: dict[str, Counting]) -> Counting:
    """Each of the queries; where Spark would not fail, nothing else names what is gone."""
    return queries[request.param]


def test_inputs_names_the_records_that_are_gone(query: Counting) -> None:
    """The message has the topic, the partition, the offsets, how long the topic keeps records, and what would help."""
    with pytest.raises(NotReplayableError, match=GONE) as error:
        query.history.inputs(1)
    assert "7 days (retention.ms=604800000)" in str(error.value)
    assert "record_input=True" in str(error.value)


@pytest.mark.parametrize("verb", ["why", "late"])
def test_causes_name_the_records_that_are_gone(query: Counting, verb: Literal["why", "late"]) -> None:
    """Neither returns what is left of the rows."""
    key = {"k": "k3"} if verb == "why" else {}
    with pytest.raises(NotReplayableError, match=GONE):
        getattr(query.history, verb)(1, **key)


def test_an_epoch_that_the_topic_still_has_is_read(query: Counting) -> None:
    """Later epochs are whole."""
    assert query.history.inputs(2).count() == 60
    assert query.history.why(2, k="k3").count() == 12


def test_a_step_names_the_records_that_are_gone(query: Counting, tmp_path: Path) -> None:
    """The fork is as it was."""
    fork = query.checkpoint.fork(tmp_path / "fork", at=0)
    with pytest.raises(NotReplayableError, match=GONE):
        fork.step(query.build)
    assert fork.epochs()["epoch"].tolist() == [0]


def test_replays_and_audits_name_the_records_that_are_gone(query: Counting) -> None:
    """A replay with other input would differ for no fault of the code."""
    with pytest.raises(NotReplayableError, match=GONE):
        query.checkpoint.replay(query.build, epochs=(1, 2))
    with pytest.raises(NotReplayableError, match=GONE):
        query.checkpoint.audit(query.build, epochs=(1, 1), replays=1)


def test_a_check_says_that_it_cannot_rehearse(query: Counting) -> None:
    """The code is not at fault, so the finding is a note."""
    report = query.checkpoint.check(query.build, store=query.store, replay=2)
    assert report.ok, report
    assert [finding.kind for finding in report.findings if finding.kind.startswith(("input", "replay"))] == [
        "input_gone"
    ]
    assert "records 30 to 39" in str(report)


def test_sparks_error_keeps_the_reason_of_kafka(spark: SparkSession, broker: Broker, folder: Path) -> None:
    """The status of a query that failed has the line that says which records are lost."""
    broker.create("short")
    broker.produce("short", ((0, "k", "v") for _ in range(20)))
    query = Counting(spark, broker, "short", folder, subscribe="short")
    query.run()
    broker.expire("short", {0: 20})
    broker.delete("short")
    broker.create("short", partitions=1)
    broker.produce("short", ((0, "k", "v") for _ in range(10)))
    running = ss.start(query.build(), "short", query.store, checkpoint=query.path, trigger="available-now")
    with pytest.raises(ss.StreamStateError, match=r"Reason: .*short-\d"):
        running.wait(timeout=300)
    running.stop()


def test_a_topic_that_was_created_again_has_other_records(
    spark: SparkSession, broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has enough records, and an id that the query's topic did not have."""
    broker.create("again")
    query = Counting(spark, broker, "again", folder, subscribe="again")
    for _ in range(2):
        broker.produce("again", ((n % 2, f"k{n % 5}", "v") for n in range(20)))
        query.run()
    assert query.history.inputs(0).count() == 20
    broker.delete("again")
    broker.create("again")
    broker.produce("again", ((n % 2, f"other{n}", "v") for n in range(60)))
    another = "the topic again was deleted and created again"
    with pytest.raises(NotReplayableError, match=another):
        query.history.inputs(0)
    with pytest.raises(NotReplayableError, match=another):
        query.checkpoint.fork(folder / "again-fork", at=0).step(query.build)
    report = query.checkpoint.check(query.build, store=query.store, replay=1)
    assert [finding.kind for finding in report.findings if another in finding.change] == ["input_gone"]
    goes_on = next(finding for finding in report.findings if finding.kind == "topics")
    assert goes_on.change == "Source 0 reads again, which was deleted and created again."
    monkeypatch.setattr(plan_table, "_layouts", {})  # as in another process
    with pytest.raises(NotReplayableError, match=another):
        query.checkpoint.replay(query.build, epochs=(1, 1), store=query.store, name="replayed")
