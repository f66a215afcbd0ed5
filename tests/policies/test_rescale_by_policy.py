"""A controller that looks for the bottleneck of a query that Spark runs, and rescales the query, or names a hot key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Source
from pyspark.sql import SparkSession

import streamstate as ss
from policies.test_bottleneck_of_spark import worked
from policies.test_running_policy import until
from streamstate.launch import load_policy
from streamstate.operations.policies import controller_rules
from streamstate.operations.policies.runtime import QueryLevers
from streamstate.operations.rescaling import rescale as rescaling
from streamstate.reports import Running
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]


@pytest.fixture
def start(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Running]]:
    """Starts the query, which spends 200 µs on a row; a bottleneck need not last for a minute."""
    monkeypatch.setattr(controller_rules, "_RESCALE_AFTER", 0.0)
    monkeypatch.setattr(load_policy, "QueryLevers", lambda *levers: replace(QueryLevers(*levers), cores=8))
    started: list[Running] = []

    def starting(**options: Any) -> Running:
        started.append(ss.start(worked(source.stream()), "q", tmp_path / "store", **options))
        return started[-1]

    yield starting
    for running in started:
        running.stop()


def feed(running: Running, source: Source, epochs: int, rows: int = 3000, hot: int = 0) -> None:
    """Run some epochs, each over one file, some of whose rows have one key."""
    keys = ["ORD"] * hot + [f"k{n % 40}" for n in range(rows - hot)]
    for _ in range(epochs):
        goal = len(list(source.folder.glob("*.parquet"))) + 1
        source.add({"k": keys, "v": [*range(rows)]})
        running.wait(epoch=goal - 1, timeout=300)


def partitions(running: Running) -> dict[int, int | None]:
    """The partitions of the state at each epoch."""
    checkpoint = CheckpointFiles(running.checkpoint.path)
    return {epoch: checkpoint.partitions(epoch) for epoch in checkpoint.committed()}


def test_the_controller_rescales_a_running_query(
    start: Callable[..., Running], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure the query runs as before, and nothing is tried again for a while; then it has more partitions."""
    tried: list[object] = []

    def lost(*arguments: object, **_options: object) -> int:
        tried.append(arguments)
        raise OSError("executor lost")

    running = start(partitions=1, policy=ss.Policy(latency="50ms", partitions=(1, 2)))
    with monkeypatch.context() as patched:
        patched.setattr(rescaling, "repartition", lost)
        feed(running, source, 4)
        until(lambda: running.status().error)
        assert "The policy's rescale to 2 partitions failed: " in str(running.status().error)
        feed(running, source, 4)
    assert len(tried) == 1
    assert set(partitions(running).values()) == {1}
    monkeypatch.setattr(controller_rules, "_RESCALE_AGAIN", 0.0)
    feed(running, source, 1)
    until(lambda: 2 in partitions(running).values() and running.state == "running")
    feed(running, source, 2)
    until(lambda: running.status().error is None)
    running.stop()
    first, second = running.history.decisions().query("lever == 'rescale'").to_dict("records")
    assert (first["before"], first["after"]) == (second["before"], second["after"]) == (1, 2)
    assert first["acted"] is None
    known = partitions(running)
    assert second["acted"] == min(epoch for epoch, count in known.items() if count == 2)
    assert running.history.why_policy(max(known)).partitions == 2
    assert running.history.epochs()["epoch"].tolist() == sorted(known)


def test_a_hot_key_is_named_and_no_rescale_is_tried(start: Callable[..., Running], source: Source) -> None:
    """Half of all rows have one key: the first decision says that no number helps."""
    running = start(partitions=4, policy=ss.Policy(latency="50ms", partitions=(2, 8)))
    feed(running, source, 5, rows=16_000, hot=8000)
    running.stop()
    decided = running.history.decisions()
    assert "k='ORD' has 50% of all rows" in decided["reason"].iloc[0], [*decided["reason"]]
    assert "rescale" not in set(decided["lever"])
