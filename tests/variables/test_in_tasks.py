"""Nothing that workers and the driver keep between tasks gets into another task, query or run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamstate.snapshots.checkpoint.bindings import AGAIN, Binding, Version
from streamstate.variables import in_tasks
from streamstate.variables.contributions import begin_run, stage_group, take_in
from streamstate.variables.in_tasks import Here, QueryRun, collect, read_in_task, stage
from variables.conftest import NewAddress
from variables.staging import begun, declared

TOTAL = declared("bigint", "sum", 0)


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    """Each test begins like a worker that has run no task, and leaves none behind."""
    for kept in (in_tasks._tasks, in_tasks._values, in_tasks._logs):
        kept.clear()
    yield
    for kept in (in_tasks._tasks, in_tasks._values, in_tasks._logs):
        kept.clear()


def a_run(address: str, query: str, number: int = 0, checkpoint: str = "/none") -> QueryRun:
    """A run of a query that uses the variable."""
    return QueryRun(checkpoint, query, number, address, "", ("v",), (TOTAL.key,))


def test_functions_of_two_queries_in_the_driver_collect_apart(new_address: NewAddress) -> None:
    """``foreachBatch`` of two queries adds in turn; each query has all that it added."""
    address = new_address()
    log = begun(address, TOTAL)
    runs = {query: Here(a_run(address, query, begin_run(log.transport, query, -1)), 0) for query in ("a", "b")}
    for query, value in (("a", 1), ("b", 10), ("a", 2), ("b", 20)):
        collect(TOTAL, runs[query], (value,), "f0", reported=False)
    take_in(log, "a", 0)
    assert log.value(log.head()) == 3
    take_in(log, "b", 0)
    assert log.value(log.head()) == 33


def test_what_an_attempt_left_is_not_staged_by_the_next(new_address: NewAddress) -> None:
    """The worker of an attempt that failed is used again."""
    address = new_address()
    log = begun(address, TOTAL)
    run = a_run(address, "q", begin_run(log.transport, "q", -1))
    collect(TOTAL, Here(run, 0, 0, 1, 3), (100,), "a0", reported=True)
    retry = Here(run, 0, 0, 2, 3, retried=True)
    collect(TOTAL, retry, (1,), "a0", reported=True)
    stage(retry)
    take_in(log, "q", 0)
    assert log.value(log.head()) == 1


def test_a_retry_says_so_also_if_it_adds_nothing(new_address: NewAddress) -> None:
    """Then nothing counts of what the attempt before has staged."""
    address = new_address()
    log = begun(address, TOTAL)
    run = a_run(address, "q", begin_run(log.transport, "q", -1))
    first = Here(run, 0, 0, 1, 3)
    collect(TOTAL, first, (100,), "a0", reported=True)
    stage(first)
    stage(Here(run, 0, 0, 2, 3, retried=True))
    take_in(log, "q", 0)
    assert log.head() == 0


def test_an_epoch_that_runs_again_to_be_looked_at_stages_nothing(new_address: NewAddress) -> None:
    """Such as one whose cause is asked for."""
    address = new_address()
    log = begun(address, TOTAL)
    again = Here(a_run(address, "q", AGAIN), 0, 0, 1, 3)
    collect(TOTAL, again, (1,), "a0", reported=True)
    stage(again)
    assert log.transport.names(stage_group(TOTAL.key, "q")) == []


def test_a_checkpoint_that_is_begun_again_is_read_again(new_address: NewAddress, tmp_path: Path) -> None:
    """A worker that has read epoch 0 of a checkpoint sees what epoch 0 of the next query there is bound to."""
    address = new_address()
    log = begun(address, TOTAL)
    log.set(5, "", None)
    for query, version, value in (("first", 0, 0), ("second", 1, 5)):
        bind(tmp_path, address, version)
        assert read_in_task(TOTAL, Here(a_run(address, query, checkpoint=str(tmp_path)), 0, 0, 1, 0)) == value


def test_a_task_reads_what_its_epoch_is_bound_to_whatever_was_set_since(
    new_address: NewAddress, tmp_path: Path
) -> None:
    """Also a task that runs again, in another worker."""
    address = new_address()
    log = begun(address, TOTAL)
    bind(tmp_path, address, 0)
    at = Here(a_run(address, "q", checkpoint=str(tmp_path)), 0, 0, 1, 0)
    assert read_in_task(TOTAL, at) == 0
    log.set(5, "", None)
    assert read_in_task(TOTAL, at) == 0
    in_tasks._values.clear()
    in_tasks._logs.clear()
    assert read_in_task(TOTAL, at) == 0


def bind(checkpoint: Path, address: str, version: int) -> None:
    """Write what Spark writes before it runs epoch 0."""
    offset = Binding({"v": Version(version)}, address, "").offset()
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset)}", encoding="utf-8")
