"""Drills of a query with a standby: who owned which epoch, and what was lost or written twice."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drilled
import pytest
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from pyspark.sql import DataFrame

from recovery.test_drill import _nothing_is_left, _quick_java, folder  # noqa: F401 (fixtures)
from streamstate.errors import InvalidArgumentError
from streamstate.operations.drill import AvailabilityReport, drill
from streamstate.operations.drill.late_files import LateFiles
from streamstate.operations.drill.outage import LocalOutage, proxy
from streamstate.operations.drill.report import Owner


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Callable[..., AvailabilityReport]:
    """Runs a drill of a query with four epochs, in the third of which something happens."""

    def running(query: Callable[[Path], DataFrame] = drilled.counts, **options: Any) -> AvailabilityReport:
        given = {"standby": True, "after": 1, "partitions": 2} | options
        report = drill(drilled.of(query, folder), directory=tmp_path / "work", **given)
        assert isinstance(report, AvailabilityReport)
        assert list(report.lost) == ["commits", "results", "history"]
        return report

    return running


def owned(report: AvailabilityReport) -> list[tuple[int, str, tuple[int, ...]]]:
    """The owners: token, process without its id, and the epochs whose results it wrote."""
    return [(owner.token, owner.process.split()[0], owner.wrote) for owner in report.owners]


BY_STANDBY = [(1, "primary", (0, 1, 2)), (2, "standby", (2, 3))]
BY_PRIMARY = [(1, "primary", (0, 1, 2, 3))]


@pytest.mark.slow
def test_a_standby_takes_over_from_a_killed_query(run: Callable[..., AvailabilityReport]) -> None:
    """It was killed after it wrote the results, which the sink gets again; nothing else is done twice."""
    report = run(kill="query")
    assert report.ok, report
    assert (owned(report), report.doubled, report.contested) == (BY_STANDBY, (2,), ())
    assert (report.in_flight, report.compared_at, report.aligned) == (True, 3, True)
    assert len(report.phases) == 3
    assert sum(report.phases.values()) == pytest.approx(report.seconds_to_recover)
    assert report.standby is not None
    assert "warm at epoch 1" in report.standby
    assert "epoch 2" in repr(report)


@pytest.mark.exhaustive
def test_a_store_that_is_away_for_a_while(run: Callable[..., AvailabilityReport]) -> None:
    """The owner stops in time, nobody takes over meanwhile, and the standby goes on once the store is back."""
    report = run(kill="store")
    assert report.ok, report
    assert (owned(report), report.doubled, report.contested) == (BY_STANDBY, (2,), ())
    assert report.stopped_after is not None
    assert report.stopped_after < report.lasted <= report.seconds_to_recover
    assert report.noticed is not None
    assert "could not be renewed" in report.noticed


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [{"kill": "standby"}, {"slow": "sink"}, {"slow": "source"}, {"slow": "task"}, {"kill": "executor"}],
    ids=str,
)
def test_the_owner_goes_on(run: Callable[..., AvailabilityReport], options: dict[str, str]) -> None:
    """Neither a slow place nor a killed standby changes the owner, though a slow one takes longer than a lease."""
    report = run(**options)
    assert report.ok, report
    assert (owned(report), report.doubled, report.phases) == (BY_PRIMARY, (), {})
    assert report.seconds_to_recover >= report.lasted
    assert (report.lasted >= 5) is ("slow" in options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{"partition": True}, {"kill": "store"}], ids=str)
def test_an_object_store_that_is_cut_off(
    run: Callable[..., AvailabilityReport], bucket: Bucket, options: dict[str, Any]
) -> None:
    """Nobody reaches it, or only the owner does not, who still reaches the checkpoint: the owner stops first."""
    report = run(**options, store="s3://bucket/drills", storage_options=bucket.options)
    assert report.ok, report
    assert (owned(report), report.doubled, report.contested) == (BY_STANDBY, (2,), ())
    assert report.stopped_after is not None
    assert report.stopped_after < report.seconds_to_recover
    assert "proxy" in report.moment


@pytest.mark.exhaustive
def test_state_that_a_takeover_loses_is_found(run: Callable[..., AvailabilityReport]) -> None:
    """A count that is kept in a module variable begins anew in the standby."""
    report = run(drilled.numbered, kill="query", partitions=1)
    assert not report.ok
    assert (report.first_difference, [difference.table for difference in report.differences]) == (2, ["op0_sum"])
    assert not any(report.lost.values())


@pytest.mark.exhaustive
def test_a_slow_sink_without_a_standby(run: Callable[..., AvailabilityReport]) -> None:
    """Nobody holds a lease."""
    report = run(slow="sink", standby=False)
    assert report.ok, report
    assert (owned(report), report.standby) == ([(0, "primary", (0, 1, 2, 3))], None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kill": "standby", "standby": False}, "kill='standby' is about a query with a standby"),
        ({"kill": "store", "standby": False}, r"Add standby=True"),
        ({"partition": True, "standby": False}, "partition=True is about a query with a standby"),
        ({"slow": "disk"}, "Invalid slow='disk': expected one of source, task, sink"),
        ({"slow": "sink", "kill": "query"}, "Choose one of kill=, slow= and partition="),
        ({"partition": True}, r"not reached over a network(.|\n)*use kill='store'"),
        ({"partition": True, "store": "s3://bucket/x"}, r"needs a server whose address is http://"),
        (
            {"partition": True, "store": "s3://bucket/x", "storage_options": {"AWS_ENDPOINT_URL": "https://host"}},
            "With https",
        ),
        ({"kill": "store", "store": "s3://bucket/x"}, "cannot be cut off"),
    ],
)
def test_an_invalid_option_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """The error says what would be right, before anything is started."""
    with pytest.raises(InvalidArgumentError, match=message):
        drill(lambda: None, directory=tmp_path / "work", **{"standby": True, **options})  # type: ignore[arg-type,return-value]
    assert not (tmp_path / "work").exists()


_REPORT = AvailabilityReport(
    kill="query",
    after=1,
    in_flight=True,
    half_written=0,
    epochs_replayed=1,
    seconds_to_recover=3.0,
    phases={"to start the <query>": 3.0},
    loading_seconds=None,
    epochs=4,
    compared_at=3,
    aligned=True,
    first_difference=None,
    differences=(),
    standby="standby ready",
    means="at once",
    lasted=0.0,
    stopped_after=None,
    owners=(Owner(1, "primary", (0, 1), (0, 1, 2)), Owner(2, "standby", (2, 3), (2, 3))),
    lost={"commits": (), "results": (), "history": ()},
    doubled=(2,),
    different=(),
    noticed=None,
)


def test_a_report_of_a_takeover() -> None:
    """It says what was done twice, and who owned what."""
    assert _REPORT.ok
    assert "Nothing was lost. Results written more than once, each time the same: epoch 2." in _REPORT.verdict
    assert "term 1, primary: committed epochs 0 to 1; wrote results of epochs 0 to 2" in repr(_REPORT)
    html = _REPORT._repr_html_()
    assert "to start the &lt;query&gt;" in html
    assert "✓ Nothing was lost" in html


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"lost": {"commits": (), "results": (1, 3), "history": (2,)}},
            "Lost: epochs 1 and 3 of the results. Lost: epoch 2",
        ),
        ({"owners": (Owner(1, "a", (0, 1, 2), ()), Owner(2, "b", (2, 3), ()))}, "Two owners committed epoch 2."),
        ({"different": (2,)}, "more than once, differently: epoch 2. The results of epoch 2 are not those"),
        ({"different": (0, 1, 3), "doubled": ()}, "The results of epochs 0 to 1 and 3 are not those"),
    ],
)
def test_a_report_of_a_failure(changes: dict[str, Any], message: str) -> None:
    """Each thing that must not happen makes the drill fail."""
    report = dataclasses.replace(_REPORT, **changes)
    assert not report.ok
    assert message in report.verdict
    assert "✗" in report._repr_html_()


def test_a_report_of_something_slow() -> None:
    """It says for how long, and what the status said meanwhile."""
    report = dataclasses.replace(_REPORT, kill="slow sink", lasted=5.01, noticed="no epoch for 4 s", doubled=())
    assert report.moment == "Slowed the sink in epoch 2 for 5.0 s: at once."
    assert "Noticed: no epoch for 4 s." in repr(report)
    assert "No results were written twice." in report.verdict


def test_a_store_on_disk_is_taken_away(tmp_path: Path) -> None:
    """Nobody can make it anew meanwhile."""
    (tmp_path / "store" / "lease").mkdir(parents=True)
    outage = LocalOutage(tmp_path / "store")
    outage.begin()
    with pytest.raises(OSError, match="store"):
        (tmp_path / "store" / "lease").mkdir(parents=True, exist_ok=True)
    outage.end()
    assert [*tmp_path.iterdir()] == [tmp_path / "store"]
    assert (tmp_path / "store" / "lease").is_dir()


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it receives."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = server.accept()
        while content := client.recv(100):
            client.sendall(content)
        client.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    thread.join()
    server.close()


def test_a_proxy_holds_back_what_is_sent_while_it_is_cut(echo: str) -> None:
    """It arrives later, as behind a network that was cut."""
    with proxy({"AWS_ENDPOINT_URL": echo}) as cut:
        host, port = cut.options["AWS_ENDPOINT_URL"].removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"before")
            assert client.recv(100) == b"before"
            cut.begin()
            client.sendall(b"meanwhile")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(100)
            cut.end()
            client.settimeout(10)
            assert client.recv(100) == b"meanwhile"


def test_files_of_later_epochs_come_late(tmp_path: Path) -> None:
    """Those that the undisturbed run has read until then stay."""
    links, checkpoint = tmp_path / "links", tmp_path / "checkpoint"
    (links / "a").mkdir(parents=True)
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "offsets").mkdir()
    for number in range(3):
        file = links / "a" / f"{number}.json"
        file.symlink_to(tmp_path)
        (checkpoint / "sources" / "0" / str(number)).write_text(
            f'v1\n{{"path":"file://{file}","timestamp":1,"batchId":{number}}}'
        )
        (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{number}}}')
    late = LateFiles(links, checkpoint, 1)
    assert sorted(file.name for file in links.glob("*/*")) == ["0.json", "1.json"]
    late.arrive()
    assert sorted(file.name for file in links.glob("*/*")) == ["0.json", "1.json", "2.json"]
    with pytest.raises(InvalidArgumentError, match="needs a source of files in one folder"):
        LateFiles(links, checkpoint, 2)
