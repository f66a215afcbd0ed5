"""A TCP server on localhost that sends lines to whoever is connected."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LineServer:
    """Sends lines to the newest connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connected = threading.Condition()
        self._connections: list[socket.socket] = []
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                connection, _ = self._listening.accept()
                with self._connected:
                    self._connections.append(connection)
                    self._connected.notify_all()

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return its lines as Spark reads them."""
        return spark.readStream.format("socket").option("host", "127.0.0.1").option("port", self.port).load()

    def send(self, lines: Iterable[str], connections: int = 1) -> None:
        """Send lines once so many connections have been made."""
        with self._connected:
            assert self._connected.wait_for(lambda: len(self._connections) >= connections, timeout=300)
            self._connections[-1].sendall("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Refuse connections, and end those that there are."""
        with contextlib.suppress(OSError):  # it is closed
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()
