"""Files, Redis and the driver's server keep the same contract, and say so when they cannot be reached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from redis_process import RedisProcess

import streamstate as ss
from streamstate.errors import InvalidArgumentError, TransportError
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.transports.files import FilesTransport
from streamstate.variables.transports.flight import FlightServer, FlightTransport
from streamstate.variables.transports.transport import Transport

GROUP = "log/limit-0"
NAMES = ["0", "12.3.ab.0.7", ".hidden", "..", "a/b", "../../x", "%2F", "two words", "ß∂", "name'; --"]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    """A running server."""
    server = RedisProcess()
    yield server
    server.kill()


@pytest.fixture(params=["files", "redis"])
def transport(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisProcess) -> Transport:
    """An empty transport."""
    return transport_at(str(tmp_path / "t") if request.param == "files" else f"{redis.address}#{tmp_path.name}")


def a_name_is_added_once(transport: Transport) -> None:
    """Of all who add a name at once, one does, and its bytes stay."""
    together = threading.Barrier(8)

    def add(number: int) -> bool:
        together.wait()
        return transport.add(GROUP, "0", b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, range(8)))
    assert added.count(True) == 1
    assert transport.get(GROUP, "0") == b"%d" % added.index(True)


def put_replaces(transport: Transport) -> None:
    """The last bytes count, whether they were added or put before."""
    transport.add(GROUP, "0", b"a")
    transport.put(GROUP, "0", b"b")
    transport.put(GROUP, "1", b"c")
    assert [transport.get(GROUP, name) for name in ("0", "1", "2")] == [b"b", b"c", None]
    assert not transport.add(GROUP, "1", b"d")


def groups_are_apart(transport: Transport) -> None:
    """A name of one group is not in another, even if one group's name begins with the other's."""
    for group in (GROUP, f"{GROUP}@fork", f"{GROUP}2"):
        transport.add(group, "0", group.encode())
    assert transport.get(f"{GROUP}2", "0") == b"log/limit-02"
    assert transport.names(GROUP) == ["0"]
    assert transport.names("log/nothing-0") == []


def any_name_and_any_bytes(transport: Transport) -> None:
    """Names of any characters come back as they are, with their bytes; none leads out of its group."""
    contents = [b"", bytes(range(256)), b"x" * 1_000_000]
    for number, name in enumerate(NAMES):
        assert transport.add(GROUP, name, contents[number % 3])
    assert sorted(transport.names(GROUP)) == sorted(NAMES)
    assert [transport.get(GROUP, name) for name in NAMES] == [contents[number % 3] for number in range(len(NAMES))]


def several_at_once(transport: Transport) -> None:
    """They come in the order in which they were asked for; those that are gone are left out, and removed in silence."""
    for name in ("0", "1", "2"):
        transport.put(GROUP, name, name.encode())
    transport.remove(GROUP, ["1", "gone"])
    assert transport.get_all(GROUP, ["2", "1", "0", "gone"]) == [b"2", b"0"]
    assert transport.get_all(GROUP, []) == []
    transport.remove(GROUP, [])
    assert sorted(transport.names(GROUP)) == ["0", "2"]


def readers_see_whole_values(transport: Transport) -> None:
    """While bytes are replaced, readers see the old ones or the new ones."""
    transport.put(GROUP, "0", b"a" * 100_000)
    ended = threading.Event()

    def write() -> None:
        for number in range(40):
            transport.put(GROUP, "0", (b"a", b"b")[number % 2] * 100_000)
        ended.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not ended.is_set() and not writing.done():
            data = transport.get(GROUP, "0")
            assert data in (b"a" * 100_000, b"b" * 100_000)
        writing.result()


CONTRACT: tuple[Callable[[Transport], None], ...] = (
    a_name_is_added_once,
    put_replaces,
    groups_are_apart,
    any_name_and_any_bytes,
    several_at_once,
    readers_see_whole_values,
)


@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
def test_files_and_redis_keep_the_contract(transport: Transport, rule: Callable[[Transport], None]) -> None:
    """Each rule holds for both."""
    rule(transport)


@pytest.fixture
def server(spark: SparkSession, tmp_path: Path) -> Iterator[FlightServer]:
    """A driver's server over a folder."""
    running = FlightServer(FilesTransport(tmp_path / "t"), spark)
    yield running
    running.shutdown()


@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
def test_the_drivers_server_keeps_the_contract(
    spark: SparkSession,
    server: FlightServer,
    rule: Callable[[Transport], None],
) -> None:
    """Each rule holds through the server, too."""
    rule(FlightTransport(server.address))


def calls(transport: Transport) -> list[Callable[[], object]]:
    """Everything that a transport can be asked to do."""
    return [
        lambda: transport.add(GROUP, "0", b""),
        lambda: transport.put(GROUP, "0", b""),
        lambda: transport.get(GROUP, "0"),
        lambda: transport.get_all(GROUP, ["0"]),
        lambda: transport.names(GROUP),
        lambda: transport.remove(GROUP, ["0"]),
    ]


def fails(transport: Transport) -> None:
    """Check that every call is an error that names the transport."""
    for call in calls(transport):
        with pytest.raises(TransportError, match=r"cannot be reached: .+\nNothing was read or written"):
            call()


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """Nothing is read as empty because its folder is unreachable."""
    (tmp_path / "t").write_text("a file, where the folder was")
    fails(FilesTransport(tmp_path / "t"))


def test_a_server_that_was_killed_is_an_error() -> None:
    """Every call says so, at once."""
    server = RedisProcess()
    transport = transport_at(server.address)
    transport.put(GROUP, "0", b"")
    server.kill()
    fails(transport)


def test_a_driver_that_is_gone_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Its executors' calls say so."""
    server = FlightServer(FilesTransport(tmp_path / "t"), spark)
    transport = FlightTransport(server.address)
    server.shutdown()
    fails(transport)


def test_stores_share_a_server_under_prefixes(redis: RedisProcess) -> None:
    """The prefix after # keeps them apart."""
    transport_at(f"{redis.address}#one").put(GROUP, "0", b"1")
    assert transport_at(f"{redis.address}#two").names(GROUP) == []


@pytest.mark.parametrize("address", ["ftp://host/x", "s3://bucket/x", "http://host:80"])
def test_an_unknown_address_is_refused(address: str) -> None:
    """The error says which there are."""
    with pytest.raises(InvalidArgumentError, match=r"Expected a local folder, or a server: redis://"):
        transport_at(address)


def test_variables_work_alike_in_a_server(tmp_path: Path, redis: RedisProcess) -> None:
    """The store's table has the same versions, wherever they are kept meanwhile."""
    found = []
    for name, address in (("files", None), ("redis", f"{redis.address}#{tmp_path.name}")):
        limit = ss.shared(tmp_path / name, "limit", "double", init=60.0, transport=address)
        limit.set(45)
        found.append(limit.history()[["version", "value", "kind"]].to_dict("list"))
    assert found == [{"version": [0, 1], "value": [60.0, 45.0], "kind": ["init", "set"]}] * 2


def test_an_emptied_server_gets_its_newest_version_back(tmp_path: Path) -> None:
    """The store has all versions, so a server that lost them goes on with the newest when the variable is opened."""
    server = RedisProcess()
    address = f"{server.address}#s"
    limit = ss.shared(tmp_path, "limit", "double", init=60.0, transport=address)
    limit.set(45)
    limit.record()
    transport_at(address).remove(GROUP, transport_at(address).names(GROUP))
    try:
        again = ss.shared(tmp_path, "limit")
        assert (again.version, again.get()) == (1, 45.0)
        assert again.set(50) == 2
        assert again.history()["value"].tolist() == [60.0, 45.0, 50.0]
    finally:
        server.kill()
