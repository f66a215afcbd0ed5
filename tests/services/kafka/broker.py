"""A Kafka broker in a process of its own, and clients for it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from scripts.jars import jars
from streamstate.snapshots.spark.java import require_java

_CLUSTER = "c3RyZWFtc3RhdGVfdGVzdA"
STARTS_WITHIN = 60
"""Seconds."""


class Broker:
    """A broker of one node, which is its own controller.

    Args:
        folder: for its log and its settings.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._controller = _free_port(), _free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._classes = str(jars("kafka-broker")[0].parent / "*")
        self._settings = folder / "server.properties"
        self._settings.write_text(self._properties(), encoding="utf-8")
        self._java(
            "kafka.tools.StorageTool", "format", "-t", "c3RyZWFtc3RhdGVfdGVzdA", "-c", str(self._settings)
        ).wait()
        self._process = self._started()
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def create(self, topic: str, partitions: int = 2, **settings: str) -> None:
        """Create a topic that keeps its records, whatever their time."""
        config = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in settings.items()}
        self._done(self.admin.create_topics([NewTopic(topic, partitions, config=config)]))

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions."""
        self._done(self.admin.create_partitions([NewPartitions(topic, total)]))

    def delete(self, topic: str) -> None:
        """Delete a topic; a new one of this name can be created at once."""
        self._done(self.admin.delete_topics([topic]))
        while topic in self.admin.list_topics(timeout=5).topics:
            time.sleep(0.05)

    def expire(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of partitions before an offset, as a retention time does."""
        self._done(self.admin.delete_records([TopicPartition(topic, *each) for each in before.items()]))

    def produce(self, topic: str, records: Iterable[tuple[int, str | bytes | None, str | bytes | None]]) -> None:
        """Append records, each as partition, key and value."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        for partition, key, value in records:
            producer.produce(topic, value=value, key=key, partition=partition)
        assert producer.flush(30) == 0

    def stop(self) -> None:
        """Stop the process; its records stay."""
        self._process.terminate()
        self._process.wait(30)

    def start(self) -> None:
        """Start it again, at the same address."""
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = self._java("kafka.Kafka", str(self._settings))
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until and process.poll() is None:
            try:
                AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=1)
            except Exception:  # noqa: BLE001 (not yet)
                time.sleep(0.1)
            else:
                return process
        process.kill()
        raise AssertionError(f"Kafka did not start:\n{(self.folder / 'log').read_text()[-3000:]}")

    def _java(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        quick = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(require_java() / "bin" / "java"), *quick, "-cp", self._classes, program, *arguments],
                stdout=log,
                stderr=log,
            )

    @staticmethod
    def _done(futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(30)

    def _properties(self) -> str:
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
            "auto.create.topics.enable": "false",
            "file.delete.delay.ms": "100",
            "log.cleaner.backoff.ms": "100",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
