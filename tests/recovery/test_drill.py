"""Recovery drills: what they find, what they refuse, and that nothing is left of them."""

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
from streamstate.recovery.drill.comparing import same_batches
from streamstate.recovery.drill.killing import _files_of
from streamstate.recovery.drill.sending import pickled
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidArgumentError, QueryError, WaitTimeoutError
from streamstate.snapshots.same_state import TableDifference


@pytest.fixture(autouse=True)
def _quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs for seconds here: the quick compiler beats the thorough one."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """However a drill ends: no process of it runs on, and no folder of it stays."""
    yield
    assert _of_drill(tmp_path) == []
    assert list((tmp_path / "work").glob("*")) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files, an epoch each."""
    made = tmp_path_factory.mktemp("drilled") / "input"
    drilled.write_input(made)
    return made


def _of_drill(folder: Path) -> list[str]:
    """The names of all processes, whose ever they are, that have the folder in their environment, as a drill's have."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get("TMPDIR", "").startswith(str(folder)):
                found.append(one.name())
    return found


def _drill(query: Callable[[], DataFrame], tmp_path: Path, **options: Any) -> ss.DrillReport:
    return ss.drill(query, directory=tmp_path / "work", **options)


@pytest.mark.exhaustive
def test_a_query_that_spark_can_recover_is_ok(folder: Path, tmp_path: Path) -> None:
    """Two operators, one of them Python: killed in the middle of an epoch, the state is that of a run never killed."""
    steps: list[str] = []
    report = _drill(
        drilled.of(drilled.deduplicated_sums, folder), tmp_path, after=1, partitions=2, progress=steps.append
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


@pytest.mark.slow
def test_what_a_restart_forgets_is_found(folder: Path, tmp_path: Path) -> None:
    """A count kept in a variable of the module begins anew: the report names the epoch, the table and the key."""
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
def test_an_executor_is_killed_and_spark_goes_on(folder: Path, tmp_path: Path) -> None:
    """One of two executors; the query's own process stays, and only as many epochs are run as were asked for."""
    report = _drill(drilled.of(drilled.counts, folder), tmp_path, kill="executor", after=0, epochs=3, partitions=2)
    assert report.ok
    assert (report.in_flight, report.compared_at, report.epochs_replayed) == (True, 2, 0)
    assert report.seconds_to_recover > 0
    assert report.phases == {}
    assert "one executor while epoch 1 was under way" in repr(report)


@pytest.mark.slow
def test_a_query_has_to_be_a_streaming_one(tmp_path: Path) -> None:
    """What is wrong in the other process is raised in this one."""
    with pytest.raises(InvalidArgumentError, match="no streaming DataFrame"):
        _drill(lambda: ss.session().range(3), tmp_path)


def test_a_function_that_the_other_process_cannot_load_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised as the drill's, with what the process said."""
    module = types.ModuleType("only_here")
    exec("def build_query(): ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(QueryError, match="No module named 'only_here'"):
        _drill(module.build_query, tmp_path)


def test_a_drill_that_takes_too_long_ends(folder: Path, tmp_path: Path) -> None:
    """The message says while doing what, and what to do about it."""
    with pytest.raises(WaitTimeoutError, match=r"within 0\.5 seconds, while running the query undisturbed"):
        _drill(drilled.of(drilled.counts, folder), tmp_path, timeout=0.5)


def test_an_interrupt_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """Ctrl-C while Java runs: it comes through, and all processes are gone with it."""
    watching = threading.Thread(target=_interrupt_once_java_runs, args=(tmp_path,))
    watching.start()
    with pytest.raises(KeyboardInterrupt):
        _drill(drilled.of(drilled.counts, folder), tmp_path)
    watching.join()


def _interrupt_once_java_runs(folder: Path) -> None:
    while "java" not in _of_drill(folder):
        threading.Event().wait(0.01)
    _thread.interrupt_main()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kill": "worker"}, "Choose from query, executor"),
        ({"mode": "upsert"}, "Choose from update, append, complete"),
        ({"after": -1}, "after=-1 cannot be meant"),
        ({"after": "2"}, "after='2' cannot be meant"),
        ({"epochs": 1}, "epochs=1 cannot be meant: give a whole number, 2 or more"),
        ({"partitions": 0}, "partitions=0 cannot be meant"),
        ({"timeout": 0}, "give seconds, more than 0"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Before anything is started."""
    with pytest.raises(InvalidArgumentError, match=message):
        _drill(lambda: ss.session().range(1), tmp_path, **options)


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is started."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match=r"A drill cannot write to .*file"):
        ss.drill(lambda: ss.session().range(1), directory=tmp_path / "file")


def test_what_is_no_function_is_refused(tmp_path: Path) -> None:
    """A frame that is made already belongs to this process."""
    with pytest.raises(InvalidArgumentError, match="build_query is a str, not a function"):
        _drill("a query", tmp_path)  # type: ignore[arg-type]


def test_a_function_that_cannot_leave_this_process_is_refused() -> None:
    """The error says what of it cannot, and what to write instead."""
    lock = threading.Lock()
    with pytest.raises(InvalidArgumentError, match=r"cannot be sent there: .*lock(.|\n)*streamstate\.session\(\)"):
        pickled(lambda: lock)  # type: ignore[arg-type, return-value]


def test_a_function_that_uses_this_processes_spark_is_refused() -> None:
    """By the name that it has there."""
    spark = object.__new__(_session_class())
    with pytest.raises(InvalidArgumentError, match=r"spark \(a SparkSession\) cannot go there"):
        pickled(lambda: spark.range(1))


def _session_class() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession


_REPORT = ss.DrillReport(
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
_DIFFERENCE = TableDifference("op0", "1 row is only in the one", 3, 2, 1, 0, ('{"k":"<b>"}',))


def test_a_report_tells_a_fault_of_the_query_from_one_of_the_recovery() -> None:
    """Where the two runs part before anything was killed, they would have parted anyway."""
    report = dataclasses.replace(_REPORT, differences=(_DIFFERENCE,), first_difference=2)
    assert "before anything was killed" in report.verdict
    assert "from epoch 3 on" in dataclasses.replace(report, first_difference=3).verdict


def test_a_report_says_what_was_not_as_it_should_be() -> None:
    """Epochs that are not the same, and a kill that came between two epochs."""
    report = dataclasses.replace(_REPORT, aligned=False, in_flight=False, epochs_replayed=0)
    assert "at the end of the input is the same" in report.verdict
    assert "cut their input into different epochs" in report.verdict
    assert "was not under way just then" in report.moment
    assert "No epoch had to be run again" in repr(report)


def test_a_report_in_a_notebook_is_a_table_and_escaped() -> None:
    """Values of the state are text, whatever they look like."""
    shown = dataclasses.replace(_REPORT, differences=(_DIFFERENCE,), first_difference=3)._repr_html_()
    assert "to run the &lt;epoch&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "✗" in shown
    assert "✓" in _REPORT._repr_html_()


def _checkpoint(folder: Path, ends: list[int]) -> Checkpoint:
    """A checkpoint whose epochs end at these offsets."""
    (folder / "offsets").mkdir(parents=True)
    for epoch, end in enumerate(ends):
        (folder / "offsets" / str(epoch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"rows":{end}}}')
    return Checkpoint(folder)


def test_epochs_are_the_same_where_they_took_in_the_same(tmp_path: Path) -> None:
    """Also where both end at the same offset in the end."""
    one = _checkpoint(tmp_path / "one", [3, 6, 9])
    assert same_batches(one, _checkpoint(tmp_path / "same", [3, 6, 9]), 2)
    assert not same_batches(one, _checkpoint(tmp_path / "other", [3, 7, 9]), 2)


def test_the_files_of_an_unfinished_epoch_are_counted(tmp_path: Path) -> None:
    """In either checkpoint format, of all operators; neither those of other epochs nor what describes the operators."""
    partition = tmp_path / "state" / "0" / "0"
    (tmp_path / "state" / "0" / "_metadata" / "v2").mkdir(parents=True)
    partition.mkdir()
    for name in ("4_0a1b.changelog", "4.delta", "3_0a1b.changelog", "40.zip", ".4.delta.crc", "../_metadata/v2/4"):
        (partition / name).write_text("")
    assert _files_of(tmp_path, 3) == 2
