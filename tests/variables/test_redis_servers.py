"""The password goes to the right Redis servers only, over the right connections."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis_process import RedisProcess

import streamstate as ss
from streamstate.errors import InvalidArgumentError, TransportError
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.transports.redis_server import PASSWORD, SERVER, RedisTransport

GROUP = "log/limit-0"


class Listener:
    """A server that writes down what it is sent, and answers that it does not know it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                connection, _ = self._socket.accept()
                with suppress(OSError):
                    while data := connection.recv(65_536):
                        self.heard += data
                        connection.sendall(b"-NOAUTH\r\n" * data.count(b"*"))

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Another server than the user's own."""
    server = Listener()
    yield server
    server.close()


@pytest.mark.parametrize(
    "mine",
    [
        "redis://cache.example.org:6379",
        "redis://127.0.0.1:1",
        "rediss://127.0.0.1:{port}",
        "redis://localhost:{port}",
        "redis://127.0.0.1.example.org:{port}",
    ],
)
@pytest.mark.parametrize(
    "store", ["redis://127.0.0.1:{port}/0", "redis://me@127.0.0.1:{port}/3#x", "valkey://127.0.0.1:{port}"]
)
def test_a_server_that_a_store_names_is_not_sent_the_password(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, mine: str, store: str
) -> None:
    """The user says which server it is for: its host, its port, and whether by TLS."""
    monkeypatch.setenv(PASSWORD, "swordfish")
    monkeypatch.setenv(SERVER, mine.format(port=listener.port))
    with pytest.raises(TransportError):
        RedisTransport(store.format(port=listener.port)).names(GROUP)
    assert listener.heard
    assert b"swordfish" not in listener.heard


def test_a_password_without_a_server_is_an_error(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and the error says what to set."""
    monkeypatch.setenv(PASSWORD, "swordfish")
    monkeypatch.delenv(SERVER, raising=False)
    with pytest.raises(InvalidArgumentError, match=rf"{SERVER}=redis://127.0.0.1:{listener.port}"):
        RedisTransport(f"redis://127.0.0.1:{listener.port}/0")
    assert listener.heard == b""


@pytest.mark.parametrize(
    "address",
    [
        "redis://127.0.0.1:6379/0?password=x",
        "redis://127.0.0.1:6379?db=1",
        "rediss://127.0.0.1:6379/0?ssl_cert_reqs=none",
        "redis:///var/run/redis.sock",
        "redis://127.0.0.1:6379/x",
        "redis://127.0.0.1:port/0",
        "redis://[::1/0",
    ],
)
def test_an_address_has_nothing_else(address: str) -> None:
    """A query could bring a password past the check, or leave out the one of the certificate."""
    with pytest.raises(InvalidArgumentError, match="Expected redis://host:6379/0"):
        transport_at(address)


def test_the_password_of_the_named_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and stores hold the address, so a password in it is refused."""
    server = RedisProcess("--requirepass", "swordfish")
    try:
        with pytest.raises(InvalidArgumentError, match=rf"has a password.*\n.*{PASSWORD}") as raised:
            transport_at(server.address.replace("//", "//:swordfish@"))
        assert "swordfish" not in str(raised.value)
        with pytest.raises(TransportError, match=r"cannot be reached: .*authenticate"):
            transport_at(f"{server.address}#without").names(GROUP)
        monkeypatch.setenv(PASSWORD, "swordfish")
        monkeypatch.setenv(SERVER, server.address)
        assert transport_at(f"{server.address}#with").names(GROUP) == []
    finally:
        server.kill()


class TlsProxy:
    """Passes on what comes over TLS to a server without."""

    def __init__(self, folder: Path, port: int) -> None:
        self.certificate = self._certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        self._socket = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.port = self._socket.getsockname()[1]
        self._to = port
        threading.Thread(target=self._serve, daemon=True).start()

    @staticmethod
    def _certificate(folder: Path) -> Path:
        key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        (folder / "server.pem").write_bytes(made.public_bytes(pem) + private)
        return folder / "server.pem"

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except ssl.SSLError:
                continue
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rediss://`` needs a certificate of the host that the system trusts, or the file in ``SSL_CERT_FILE``."""
    server = RedisProcess()
    proxy = TlsProxy(tmp_path, server.port)
    try:
        with pytest.raises(TransportError, match=r"(?i)certificate"):
            RedisTransport(f"rediss://localhost:{proxy.port}/0").names(GROUP)
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
        transport = RedisTransport(f"rediss://localhost:{proxy.port}/0")
        transport.put(GROUP, "0", b"x")
        assert transport.get(GROUP, "0") == b"x"
        with pytest.raises(TransportError, match=r"(?i)certificate"):
            RedisTransport(f"rediss://127.0.0.1:{proxy.port}/0").names(GROUP)
    finally:
        proxy.close()
        server.kill()


@pytest.fixture(params=["files", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty transport."""
    if request.param == "files":
        yield str(tmp_path / "t")
        return
    server = RedisProcess()
    yield server.address
    server.kill()


def test_other_names_in_a_transport_are_left_out(address: str, tmp_path: Path) -> None:
    """A system may put a ``Thumbs.db`` into any folder, and a server may hold anything."""
    limit = ss.shared(tmp_path / "store", "limit", "double", init=60.0, transport=address)
    transport = transport_at(address)
    names = ["Thumbs.db", "desktop.ini", "7", "-1", "٣", "1e9", "0000000007 ", "9" * 200, "0x10", "a.b.c"]
    for kind in ("log/{}", "stage/{}/q", "heard/{}"):
        for name in names:
            transport.put(kind.format(limit.declaration.key), name, b"x")
    for name in ("Thumbs.db", "x", "1.5"):
        transport.put("runs/q", name, b"x")
    limit.set(45)
    assert ss.shared(tmp_path / "store", "limit").get() == 45.0
    assert limit.history()["value"].tolist() == [60.0, 45.0]
