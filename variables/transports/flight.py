"""An Arrow Flight server in the driver's process, for executors on other machines, and the client that they use."""

from __future__ import annotations

import atexit
import json
import logging
import socket
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from streamstate.errors import TransportError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.variables.transports.driver_key import HOST, known_key, own_key
from streamstate.variables.transports.transport import BINDINGS, MAX_BYTES, Transport, check_group, unreachable

SCHEME = "grpc+tls"
_TIMEOUT = flight.FlightCallOptions(timeout=10)
_servers: dict[str, FlightServer] = {}
_starting = threading.Lock()


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a transport to executors, over TLS. Only who has the driver's key gets a connection."""

    def __init__(self, transport: Transport, spark: Any) -> None:
        host, key = spark.sparkContext.getConf().get("spark.driver.host", socket.gethostname()), own_key()
        super().__init__(
            f"{SCHEME}://{host}:0",
            tls_certificates=[(key.certificate, key.private)],
            verify_client=True,
            root_certificates=key.certificate,
        )
        self.address = f"{SCHEME}://{host}:{self.port}/{key.name}"
        self.checkpoints: set[str] = set()
        """The checkpoints of which it tells; those of the queries that it was started for."""
        self._transport = transport
        self._spark = spark

    def do_action(self, _context: object, action: Any) -> list[Any]:
        """Answer one call of :class:`FlightTransport`. An error tells its kind; paths are for the driver's log."""
        try:
            header, _, data = action.body.to_pybytes().partition(b"\n")
            answer = self._answer(action.type, data, **json.loads(header))
        except Exception as error:
            logging.getLogger("streamstate").warning("A call of an executor failed.", exc_info=True)
            kind = type(error).__name__
            raise flight.FlightServerError(f"the driver could not answer ({kind}); its log says why") from None
        return [flight.Result(pa.py_buffer(part)) for part in answer]

    def _answer(self, call: str, data: bytes, group: str, names: list[str]) -> list[bytes]:
        if group == BINDINGS:
            return self._of_checkpoint(*names[0].split("/", 1))
        check_group(group)
        if len(data) > MAX_BYTES:
            raise ValueError(f"{len(data):,} bytes; a version has at most {MAX_BYTES:,}")
        served = self._transport
        if call == "add":
            return [b"1"] if served.add(group, names[0], data) else []
        if call == "put":
            served.put(group, names[0], data)
        if call == "remove":
            served.remove(group, names)
        if call == "names":
            return [name.encode() for name in served.names(group)]
        return served.get_all(group, names) if call == "get" else []

    def _of_checkpoint(self, asked: str, path: str) -> list[bytes]:
        if path not in self.checkpoints:
            raise ValueError(f"{path} is no checkpoint of a query that was started here")
        checkpoint = CheckpointFiles(path, self._spark)
        if asked == "id":
            return [checkpoint.query_id.encode()]
        if asked == "committed":
            return [str(max(checkpoint.committed(), default=-1)).encode()]
        text = checkpoint.files.text(f"{path}/offsets/{int(asked)}")
        return [] if text is None else [text.encode()]


class FlightTransport:
    """The client of executors: each call goes to the driver's server."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address = address
        self._shown = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        key = known_key(parts.path.lstrip("/"))
        self._client = flight.FlightClient(
            self._shown,
            tls_root_certs=key.certificate,
            cert_chain=key.certificate,
            private_key=key.private,
            override_hostname=HOST,
        )

    def _call(self, call: str, group: str, names: list[str], data: bytes = b"") -> list[bytes]:
        header = json.dumps({"group": group, "names": names}).encode()
        try:
            found = self._client.do_action(flight.Action(call, header + b"\n" + data), _TIMEOUT)
            return [result.body.to_pybytes() for result in found]
        except (pa.ArrowException, OSError) as error:
            raise unreachable(self._shown, error) from error

    def add(self, group: str, name: str, data: bytes) -> bool:
        """Add bytes under a name."""
        return bool(self._call("add", check_group(group), [name], data))

    def put(self, group: str, name: str, data: bytes) -> None:
        """Set the bytes under a name."""
        self._call("put", check_group(group), [name], data)

    def get(self, group: str, name: str) -> bytes | None:
        """Return the bytes under a name."""
        return next(iter(self._call("get", group if group == BINDINGS else check_group(group), [name])), None)

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """Return the bytes under some names."""
        return self._call("get", check_group(group), names) if names else []

    def names(self, group: str) -> list[str]:
        """Return the names in a group."""
        return [name.decode() for name in self._call("names", check_group(group), [])]

    def remove(self, group: str, names: list[str]) -> None:
        """Remove names."""
        self._call("remove", check_group(group), names)


def served_to_executors(transport: Transport, spark: Any, checkpoints: Iterable[str]) -> str:
    """Return the address by which the executors of a session reach a transport; a server is started if need be.

    ``checkpoints`` are those that executors may ask about.
    """
    with _starting:
        key = f"{transport.address}\n{spark.sparkContext.applicationId}"
        if key not in _servers:
            try:
                _servers[key] = FlightServer(transport, spark)
                atexit.register(_servers[key].shutdown)
            except (pa.ArrowException, OSError) as error:
                raise TransportError(
                    f"The driver cannot serve shared variables to its executors: {error}\n"
                    "Set spark.driver.host to an address of this machine, or use transport='redis://…'."
                ) from error
        _servers[key].checkpoints.update(checkpoints)
        return _servers[key].address
