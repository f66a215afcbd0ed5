"""The server by which a driver gives its executors what it reaches is closed to all others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from memory_peak import measured
from pyspark.sql import SparkSession

from streamstate.errors import InvalidArgumentError, TransportError, VariableError
from streamstate.operations.drill.scratch import scratch
from streamstate.snapshots.checkpoint.bindings import binding_in_log
from streamstate.variables.transports import driver_key
from streamstate.variables.transports.files import FilesTransport
from streamstate.variables.transports.flight import FlightServer, FlightTransport
from streamstate.variables.transports.transport import BINDINGS, MAX_BYTES

GROUP = "log/limit-0"
TESTS = Path(__file__).parents[1]
OUTSIDE = [
    "../../../../etc",
    "/etc",
    "log/../../../etc",
    "log",
    "",
    "log/limit-0/../../..",
    "stage/limit-0/..",
    "log/./x",
]


@pytest.fixture
def server(spark: SparkSession, tmp_path: Path) -> Iterator[FlightServer]:
    """A driver's server over a folder."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("s3cret")
    running = FlightServer(FilesTransport(tmp_path / "t"), spark)
    yield running
    running.shutdown()


@pytest.fixture
def other_key() -> Iterator[driver_key.DriverKey]:
    """A key of another driver."""
    driver_key.own_key.cache_clear()
    yield driver_key.own_key()
    driver_key.own_key.cache_clear()
    driver_key._learned.clear()


@pytest.mark.parametrize("group", [*OUTSIDE, "../outside", "log/../../outside"])
def test_a_group_cannot_lead_out_of_the_transport(server: FlightServer, tmp_path: Path, group: str) -> None:
    """Groups are those that variables have; nothing else is listed, read, written or removed."""
    for transport in (FlightTransport(server.address), FilesTransport(tmp_path / "t")):
        for call in (
            partial(transport.names, group),
            partial(transport.get, group, "secret"),
            partial(transport.put, group, "new", b""),
            partial(transport.add, group, "new", b""),
            partial(transport.remove, group, ["secret"]),
        ):
            with pytest.raises(InvalidArgumentError, match="Invalid group"):
                call()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_the_server_checks_groups_itself(server: FlightServer) -> None:
    """A client that does not check is refused too."""
    client = FlightTransport(server.address)
    for group in OUTSIDE:
        with pytest.raises(TransportError, match="InvalidArgumentError"):
            client._call("names", group, [])
    with pytest.raises(TransportError, match="ValueError"):
        client._call("put", GROUP, ["0"], b"x" * (MAX_BYTES + 1))


def test_a_link_cannot_lead_out_of_the_transport(server: FlightServer, tmp_path: Path) -> None:
    """A copied store may have one in place of a group's folder."""
    (tmp_path / "t" / "log").mkdir(parents=True)
    (tmp_path / "t" / GROUP).symlink_to(tmp_path / "outside")
    for transport in (FlightTransport(server.address), FilesTransport(tmp_path / "t")):
        with pytest.raises(VariableError):
            transport.get(GROUP, "secret")
        with pytest.raises(VariableError):
            transport.put(GROUP, "new", b"")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_only_files_are_read(tmp_path: Path) -> None:
    """A link in a file's place is not followed, a pipe is not waited for, and no file is read beyond the limit."""
    transport = FilesTransport(tmp_path)
    transport.put(GROUP, "0", b"x")
    (tmp_path / GROUP / "1").symlink_to(tmp_path / GROUP / "0")
    os.mkfifo(tmp_path / GROUP / "2")
    with (tmp_path / GROUP / "3").open("wb") as file:
        file.truncate(10 * 2**30)
    for name in ("1", "3"):
        with measured() as cost, pytest.raises(TransportError):
            transport.get(GROUP, name)
        assert cost.megabytes < 50
    assert transport.get(GROUP, "2") == b""


def test_another_drivers_key_is_no_key(server: FlightServer, other_key: driver_key.DriverKey, tmp_path: Path) -> None:
    """Nor is a name without one; a key that others can read, or a link to one, is not used."""
    FlightTransport(server.address).put(GROUP, "0", b"secret")
    other = other_key
    with pytest.raises(TransportError):
        FlightTransport(f"{server.address.rpartition('/')[0]}/{other.name}").get(GROUP, "0")
    for name in ("", "../../etc/passwd", "0" * 16):
        with pytest.raises(TransportError, match="has no key"):
            FlightTransport(f"{server.address.rpartition('/')[0]}/{name}")
    mine = driver_key._path(other.name)
    driver_key._learned.clear()
    assert driver_key.known_key(other.name) == other
    assert mine.stat().st_mode & 0o777 == 0o600
    mine.chmod(0o644)
    driver_key._learned.clear()
    with pytest.raises(TransportError, match="has no key"):
        driver_key.known_key(other.name)
    mine.chmod(0o600)
    mine.rename(tmp_path / "moved")
    mine.symlink_to(tmp_path / "moved")
    with pytest.raises(TransportError, match="has no key"):
        driver_key.known_key(other.name)
    mine.unlink()
    assert other.private.decode() not in repr(other)


STRANGER = """
import sys
from pyarrow import flight
options = {"disable_server_verification": True} if "tls" in sys.argv[1] else {}
client = flight.FlightClient(sys.argv[1], **options)
try:
    list(client.do_action(flight.Action("get", b"x" * 300_000_000), flight.FlightCallOptions(timeout=20)))
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("scheme", ["grpc", "grpc+tls"])
def test_a_stranger_cannot_make_the_driver_hold_anything(server: FlightServer, scheme: str) -> None:
    """Without the key there is no connection, so that no request is read, however long it is."""
    command = [sys.executable, "-c", STRANGER, f"{scheme}://127.0.0.1:{server.port}"]
    with measured() as cost:
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "FlightUnavailableError"
    assert cost.megabytes < 30


def test_no_error_tells_a_path(server: FlightServer, tmp_path: Path) -> None:
    """A client learns that a call failed, and of which kind; the driver's log has the rest."""
    client = FlightTransport(server.address)
    (tmp_path / "t").write_text("a file where the folder was")
    for call in (lambda: client.names(GROUP), lambda: client.get(BINDINGS, f"x/{tmp_path}")):
        with pytest.raises(TransportError) as raised:
            call()
        assert str(tmp_path) not in str(raised.value)
        assert "Traceback" not in f"{raised.value}{raised.value.__cause__}"


def test_other_folders_are_no_checkpoints(server: FlightServer, counted: tuple[Path, Path]) -> None:
    """Only those of the queries that the server is for are read."""
    client, path = FlightTransport(server.address), counted[0]
    with pytest.raises(TransportError):
        client.get(BINDINGS, f"3/{path}")
    server.checkpoints.add(str(path))
    offsets = client.get(BINDINGS, f"3/{path}")
    assert offsets == (path / "offsets/3").read_bytes()
    assert binding_in_log(offsets.decode()) is None
    assert client.get(BINDINGS, f"committed/{path}") == b"4"
    assert client.get(BINDINGS, f"9/{path}") is None
    assert (client.get(BINDINGS, f"id/{path}") or b"").decode() in (path / "metadata").read_text()


@pytest.mark.slow
def test_a_cluster_shares_a_variable_and_its_key_is_nowhere(tmp_path: Path) -> None:
    """Not in the event log, the settings, the local properties, a plan's text or Spark's page."""
    with scratch(tmp_path, keep=False) as place:
        command = [sys.executable, "-m", "variables.cluster_process", str(tmp_path / "made"), str(place.temporary)]
        environment = place.environment() | {"PYSPARK_PYTHON": sys.executable}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=TESTS)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    assert ran.stdout.split()[-1] == "shared"
