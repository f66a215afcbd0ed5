"""``%stream migrate`` stops a query, and starts the changed query with its state; if that fails, the query goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Source, letters
from notebook_shell import Shell, bare_shell, shell, shown_at_once  # noqa: F401 (fixtures)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import InvalidArgumentError, NameTakenError, QueryError, StateWriteError
from streamstate.launch.running import Running
from streamstate.launch.starting import start_launch
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles


def by_letter_and_parity(letters: DataFrame) -> DataFrame:
    """The query before the change."""
    return letters.groupBy("k", (F.col("v") % 2).alias("odd")).agg(F.count("*").alias("n"), F.avg("v").alias("mean"))


def by_letter(letters: DataFrame) -> DataFrame:
    """The changed query: the key is rolled up, and the sum of the average is a result, too."""
    return letters.groupBy("k").agg(F.count("*").alias("n"), F.avg("v").alias("mean"), F.sum("v").alias("total"))


MAPPING = {
    "op0": """
        SELECT k, sum(count) AS count, sum(sum) AS sum, sum(count_2) AS count_2, sum(sum) AS sum_2
        FROM op0 GROUP BY k"""
}


@pytest.fixture
def running(shell: Shell, source: Source) -> Running:
    """A running query ``counts`` with two captured epochs, and changed code for it."""
    for epoch in range(2):
        source.add(letters(epoch))
    shell.names.update(
        before=by_letter_and_parity(source.stream()),
        changed=lambda: by_letter(source.stream()),
        finer=lambda: (
            source.stream().groupBy("k", (F.col("v") % 2).alias("odd"), (F.col("v") % 3).alias("third")).count()
        ),
        mapping=MAPPING,
    )
    handle = shell.run("%%stream counts --trigger 100ms --partitions 3\nbefore")
    assert isinstance(handle, Running)
    handle.wait(epoch=1, timeout=300)
    return handle


@pytest.mark.slow
def test_a_running_query_goes_on_as_the_changed_one(
    shell: Shell, running: Running, source: Source, shown_at_once: list[str]
) -> None:
    """It equals a recomputation over all input; the query before stays in the store, up to the epoch of the change."""
    written = shell.run("%stream migrate counts changed --mapping mapping -o written")
    assert shell.names["written"] is written
    assert (written.epoch, written.rows) == (1, {"op0": 9})
    assert shown_at_once[-1] == "counts was stopped. counts_2 was started with the state of counts after epoch 1."
    assert (written.started, "Next:" in written._repr_html_()) == ("counts_2", False)
    handle = shell.notebook.query("counts_2")
    assert (running.state, handle.state) == ("stopped", "running")
    assert handle.wait(epoch=1, timeout=300) == 1
    migrated = ss.open_store(handle.store)["counts_2"]
    assert migrated.results() == ["result"]
    assert [*migrated.live().result().to_pandas().columns] == ["k", "n", "mean", "total"]
    assert CheckpointFiles(handle.checkpoint).partitions(1) == 3
    source.add(letters(2))
    assert handle.wait(epoch=2, timeout=300) == 2
    history = ss.open_store(handle.store)
    assert (history["counts"].captured(), history["counts_2"].captured()) == ([0, 1], [1, 2])
    whole = by_letter(source.stream().sparkSession.read.parquet(str(source.folder))).toPandas()
    found = history["counts_2"].live().result().to_pandas()
    assert found.sort_values("k").values.tolist() == whole.sort_values("k").values.tolist()


@pytest.mark.slow
def test_what_cannot_be_migrated_goes_on(shell: Shell, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is refused at once does not stop the query; a later failure restarts it and leaves no checkpoint."""
    first = running.query
    migrate = "%stream migrate counts changed"
    assert "nothing says what its key column" in shell.fails("%stream migrate counts finer", StateWriteError)
    assert "already a query 'counts'" in shell.fails(f"{migrate} --as counts", NameTakenError)
    assert "no_such is not defined" in shell.fails(f"{migrate} --mapping no_such", InvalidArgumentError)
    shell.fails(f"{migrate} --to {running.checkpoint}", StateWriteError)
    assert shell.notebook.query("counts").query is first

    def refused(launch: Any, *given: Any, **options: Any) -> Running:
        if launch.name == "counts_2":
            raise QueryError("Spark did not start it")
        return start_launch(launch, *given, **options)

    monkeypatch.setattr("streamstate.magics.interruption.start_launch", refused)
    shell.fails(f"{migrate} --mapping mapping", QueryError)
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    assert handle.query is not first
    assert [path.name for path in Path(handle.checkpoint).parent.iterdir()] == ["counts"]


@pytest.mark.slow
def test_a_stopped_query_is_migrated_and_not_started(shell: Shell, running: Running, source: Source) -> None:
    """The mapping that is obvious is printed, and so is the cell that starts the changed query."""
    shell.run("%stream stop counts")
    shell.run("%stream migrate counts before --as again --to again")
    assert "op0: SELECT k, _groupingexpression, count, sum, count_2 FROM op0" in shell.printed
    assert "again" not in shell.notebook.running
    handle = shell.run("\n".join(shell.printed.partition("Start it:\n")[2].splitlines()[:2]))
    source.add(letters(2))
    assert handle.wait(epoch=2, timeout=300) == 2


@pytest.mark.slow
def test_a_query_that_runs_elsewhere_is_refused(shell: Shell, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The message says to stop it where it runs."""
    shell.run(f"%stream attach {counted[0]} --name away --store {tmp_path / 'store'}")
    shell.names["changed"] = by_letter
    assert "Stop it where it runs" in shell.fails("%stream migrate away changed", QueryError)
