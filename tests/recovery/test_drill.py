"""Recovery drills find state that a restart loses, refuse invalid arguments, and clean up."""

from __future__ import annotations

import _thread
import dataclasses
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import drilled
import psutil
import pytest
from pyspark.sql import DataFrame

import streamstate as ss
from streamstate.errors import InvalidArgumentError, QueryError, WaitTimeoutError
from streamstate.operations.drill import drill
from streamstate.operations.drill.drilled_process import same_batches
from streamstate.operations.drill.processes import _state_files
from streamstate.operations.drill.task import pickled
from streamstate.reports import DrillReport
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import TableDifference


@pytest.fixture(autouse=True)
def _quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use only Java's C1 compiler, because Spark runs for seconds only."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Check that no process or folder of a drill is left, however it ended."""
    yield
    assert _processes_of_drill(tmp_path) == []
    assert list((tmp_path / "work").glob("*")) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four input files, one per epoch."""
    folder = tmp_path_factory.mktemp("drilled") / "input"
    drilled.write_input(folder)
    return folder


def _processes_of_drill(folder: Path) -> list[str]:
    """The names of a drill's processes, which have the folder in their environment."""
    names = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR", "").startswith(str(folder)):
                names.append(process.name())
    return names


def _drill(query: Callable[[], DataFrame], tmp_path: Path, **options: Any) -> DrillReport:
    return drill(query, directory=tmp_path / "work", **options)


@pytest.mark.exhaustive
def test_a_query_that_spark_can_recover_is_ok(folder: Path, tmp_path: Path) -> None:
    """Killed during an epoch, a query with a Python operator has the same state as an undisturbed run."""
    steps: list[str] = []
    report = _drill(
        drilled.of(drilled.deduplicated_sums, folder),
        tmp_path,
        after=1,
        partitions=2,
        progress=lambda step, _: steps.append(step),
    )
    assert (report.ok, report.aligned, report.in_flight) == (True, True, True)
    assert (report.differences, report.first_difference) == ((), None)
    assert (report.kill, report.after, report.epochs_replayed) == ("query", 1, 1)
    assert report.epochs >= drilled.FILES
    assert report.compared_at == report.epochs - 1
    assert list(report.phases) == ["to start Python", "to start Spark", "to plan the query", "to run the epoch"]
    assert all(seconds > 0 for seconds in report.phases.values())
    assert sum(report.phases.values()) == pytest.approx(report.seconds_to_recover)
    assert report.loading_seconds is not None
    assert len(steps) == 3
    assert "is the same, key by key" in repr(report)
    assert report.directory is None


@pytest.mark.exhaustive
@pytest.mark.slow
def test_state_that_a_restart_loses_is_found(folder: Path, tmp_path: Path) -> None:
    """The report names the epoch, the table and the key of a count that is kept in a module variable."""
    report = _drill(drilled.of(drilled.numbered, folder), tmp_path, after=1, partitions=1)
    assert not report.ok
    assert report.first_difference == 2
    (difference,) = report.differences
    assert difference.table == "op0_sum"
    assert difference.of_one == ('{"k":"k7","total":3}',)
    assert difference.of_other == ('{"k":"k7","total":1}',)
    assert "from epoch 2 on" in report.verdict
    assert '"k":"k7","total":3' in repr(report)


@pytest.mark.exhaustive
def test_spark_recovers_from_a_killed_executor(folder: Path, tmp_path: Path) -> None:
    """The query's own process keeps running, and only the requested epochs are run."""
    report = _drill(drilled.of(drilled.counts, folder), tmp_path, kill="executor", after=0, epochs=3, partitions=2)
    assert report.ok
    assert (report.in_flight, report.compared_at, report.epochs_replayed) == (True, 2, 0)
    assert report.seconds_to_recover > 0
    assert report.phases == {}
    assert "one executor while epoch 1 was in progress" in repr(report)


@pytest.mark.exhaustive
def test_a_query_that_is_not_streaming_is_refused(tmp_path: Path) -> None:
    """The error of the query's process is raised by the drill."""
    with pytest.raises(InvalidArgumentError, match="a DataFrame that is not streaming"):
        _drill(lambda: ss.session().range(3), tmp_path)


def test_a_function_that_the_querys_process_cannot_load_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drill's error has the message of the process."""
    module = types.ModuleType("only_here")
    exec("def build_query(): ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(QueryError, match="No module named 'only_here'"):
        _drill(module.build_query, tmp_path)


def test_a_drill_that_takes_too_long_ends(folder: Path, tmp_path: Path) -> None:
    """The message names the current step."""
    with pytest.raises(WaitTimeoutError, match=r"within 0\.5 seconds, while running the query undisturbed"):
        _drill(drilled.of(drilled.counts, folder), tmp_path, timeout=0.5)


def test_an_interrupt_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    """An interrupt while Java runs is raised, after all processes have ended."""
    interrupter = threading.Thread(target=_interrupt_once_java_runs, args=(tmp_path,))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        _drill(drilled.of(drilled.counts, folder), tmp_path)
    interrupter.join()


def _interrupt_once_java_runs(folder: Path) -> None:
    while "java" not in _processes_of_drill(folder):
        threading.Event().wait(0.01)
    _thread.interrupt_main()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kill": "worker"}, "Invalid kill='worker': expected one of query, executor, standby, store"),
        ({"mode": "upsert"}, "expected update, append or complete"),
        ({"after": -1}, "Invalid after=-1: expected an integer of at least 0"),
        ({"after": "2"}, "Invalid after='2'"),
        ({"epochs": 1}, "Invalid epochs=1: expected an integer of at least 2"),
        ({"partitions": 0}, "Invalid partitions=0"),
        ({"timeout": 0}, "Invalid timeout=0: expected seconds"),
    ],
)
def test_an_invalid_argument_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """The error names the argument, before anything is started."""
    with pytest.raises(InvalidArgumentError, match=message):
        _drill(lambda: ss.session().range(1), tmp_path, **options)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """The error names the file, before anything is started."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match=r"A drill cannot write to .*file"):
        drill(lambda: ss.session().range(1), directory=tmp_path / "file")


def test_a_value_that_is_not_a_function_is_refused(tmp_path: Path) -> None:
    """The query must be built in its own process."""
    with pytest.raises(InvalidArgumentError, match="Invalid build_query of type str: expected a function"):
        _drill("a query", tmp_path)  # type: ignore[arg-type]


def test_a_function_that_cannot_be_pickled_is_refused() -> None:
    """The error names the object that cannot be pickled, and an alternative."""
    lock = threading.Lock()
    with pytest.raises(InvalidArgumentError, match=r"cannot be sent there: .*lock(.|\n)*streamstate\.session\(\)"):
        pickled(lambda: lock)


def test_a_function_with_a_spark_session_is_refused() -> None:
    """The error names the variable with the session."""
    spark = object.__new__(_session_class())
    with pytest.raises(InvalidArgumentError, match=r"spark \(a SparkSession\) cannot be sent there"):
        pickled(lambda: spark.range(1))


def _session_class() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession


_REPORT = DrillReport(
    kill="query",
    after=2,
    in_flight=True,
    half_written=0,
    epochs_replayed=1,
    seconds_to_recover=4.0,
    phases={"to start Spark": 3.0, "to run the <epoch>": 1.0},
    loading_seconds=0.25,
    epochs=6,
    compared_at=5,
    aligned=True,
    first_difference=None,
    differences=(),
)
_DIFFERENCE = TableDifference("op0", "1 row is only in the first state", 3, 2, 1, 0, ('{"k":"<b>"}',))


def test_a_report_distinguishes_nondeterminism_from_failed_recovery() -> None:
    """Runs that differ before the kill are not deterministic."""
    report = dataclasses.replace(_REPORT, differences=(_DIFFERENCE,), first_difference=2)
    assert "before anything was killed" in report.verdict
    assert "from epoch 3 on" in dataclasses.replace(report, first_difference=3).verdict


def test_a_report_mentions_its_limits() -> None:
    """These are runs with different epochs, and a kill between two epochs."""
    report = dataclasses.replace(_REPORT, aligned=False, in_flight=False, epochs_replayed=0)
    assert "at the end of the input is the same" in report.verdict
    assert "divided their input into different epochs" in report.verdict
    assert "was not in progress" in report.moment
    assert "No epoch had to be run again" in repr(report)


def test_the_html_of_a_report_is_escaped() -> None:
    """Values of the state are shown as text."""
    html = dataclasses.replace(_REPORT, differences=(_DIFFERENCE,), first_difference=3)._repr_html_()
    assert "to run the &lt;epoch&gt;" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "✗" in html
    assert "✓" in _REPORT._repr_html_()


def _checkpoint(folder: Path, ends: list[int]) -> CheckpointFiles:
    """Write a checkpoint whose epochs end at the given offsets."""
    (folder / "offsets").mkdir(parents=True)
    for epoch, end in enumerate(ends):
        (folder / "offsets" / str(epoch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"rows":{end}}}')
    return CheckpointFiles(folder)


def test_runs_are_aligned_if_every_epoch_has_the_same_input(tmp_path: Path) -> None:
    """Ending at the same offset is not sufficient."""
    first = _checkpoint(tmp_path / "first", [3, 6, 9])
    assert same_batches(first, _checkpoint(tmp_path / "same", [3, 6, 9]), 2)
    assert not same_batches(first, _checkpoint(tmp_path / "other", [3, 7, 9]), 2)


def test_the_files_of_an_unfinished_epoch_are_counted(tmp_path: Path) -> None:
    """Files of both checkpoint formats are counted, but not those of other epochs or the operators' metadata."""
    partition = tmp_path / "state" / "0" / "0"
    (tmp_path / "state" / "0" / "_metadata" / "v2").mkdir(parents=True)
    partition.mkdir()
    for name in ("4_0a1b.changelog", "4.delta", "3_0a1b.changelog", "40.zip", ".4.delta.crc", "../_metadata/v2/4"):
        (partition / name).write_text("")
    assert _state_files(tmp_path, 3) == 2
