"""A Kafka broker on this machine, for trying queries over topics: its own process, with the jars that Maven fetches.

It is no broker for anything that should last: one node, one copy of each record, no encryption.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import weakref
from pathlib import Path

from streamstate.snapshots.spark.java import require_java
from streamstate.tutorials.maven import JarSet, fetched

BROKER = JarSet(("org.apache.kafka:kafka_2.13:4.1.1",), alone=False)
# 4.2.0 also works with Spark 4.3.
CONNECTOR = JarSet(
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    )
)
"""Kafka's source and sink for Spark."""

_CLUSTER = "c3RyZWFtc3RhdGVfdGVzdA"
_STARTS_WITHIN = 60
"""Seconds."""
_GUARDED = 'exec 3<&0; { cat <&3; kill $$; } >/dev/null 2>&1 & exec "$@"'
"""Runs a command that ends when its standard input does: with the process that holds the other end, even if killed."""


def connector() -> str:
    """Return Spark's setting ``spark.jars`` for queries over Kafka: the jars of the connector, fetched once.

    Raises:
        MissingDependencyError: they are missing, and there is no Maven.

    Example:
        >>> spark = ss.session(**{"spark.jars": broker.connector()})
    """
    return ",".join(map(str, fetched("kafka", CONNECTOR)))


class Broker:
    """A broker of one node, which is its own controller. Topics appear when something is written to them.

    It ends with :meth:`stop`, or with the process that started it, however that ends.

    Args:
        folder: for its records and settings; an earlier broker's records in it are there again.
        **settings: of the broker, with ``_`` for ``.``, such as ``num_partitions="3"``.

    Raises:
        MissingDependencyError: Kafka's jars are missing, and there is no Maven.
        JavaNotFoundError: there is no Java.
        RuntimeError: the broker did not start.

    Example:
        >>> kafka = Broker("kafka")
        >>> options = {"kafka.bootstrap.servers": kafka.servers, "topic": "flights"}
        >>> flights.write.format("kafka").options(**options).save()
        >>> kafka.stop()
    """

    def __init__(self, folder: str | os.PathLike[str], **settings: str) -> None:
        self._classes = str(fetched("kafka-broker", BROKER)[0].parent / "*")
        self.folder = Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self._controller = free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        """Spark's option ``kafka.bootstrap.servers``."""
        self._settings = self.folder / "server.properties"
        self._settings.write_text(self._properties(settings), encoding="utf-8")
        if not (self.folder / "records").exists():
            self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings)).wait()
        self.start()

    def start(self) -> None:
        """Start the process, at the same address as before."""
        self._process = self._java("kafka.Kafka", str(self._settings))
        self._close = weakref.finalize(self, _end, self._process)
        until = time.monotonic() + _STARTS_WITHIN
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                self.stop()
                raise RuntimeError(f"Kafka did not start:\n{(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the process; its records stay."""
        self._close()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _java(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        quick = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        java = str(require_java() / "bin" / "java")
        with (self.folder / "log").open("ab") as log:
            # In a group of its own, so that Ctrl-C in a terminal interrupts only the cell.
            return subprocess.Popen(
                ["sh", "-c", _GUARDED, "sh", java, *quick, "-cp", self._classes, program, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _properties(self, chosen: dict[str, str]) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "records"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
            "num.partitions": "2",
            "file.delete.delay.ms": "100",
            "log.cleaner.backoff.ms": "100",
        }
        settings |= {name.replace("_", "."): value for name, value in chosen.items()}
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=30)  # closes its input, then waits
    except subprocess.TimeoutExpired:
        process.kill()


def free_port() -> int:
    """Return a port of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
