"""A Kafka broker in a process of its own, and clients for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from streamstate.tutorials import broker

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PASSWORD = "hushhush"


class Broker(broker.Broker):
    """A broker whose topics are created first.

    Args:
        folder: for its log and its settings.
    """

    def __init__(self, folder: Path) -> None:
        self.secured = f"127.0.0.1:{broker.free_port()}"
        """The address that asks for the user ``reader`` and a password."""
        super().__init__(folder, auto_create_topics_enable="false", num_partitions="1", log_retention_ms="604800000")
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def _properties(self, chosen: dict[str, str]) -> str:
        addresses = {"PLAINTEXT": self.servers, "SECURED": self.secured}
        listeners = [f"{name}://{address}" for name, address in addresses.items()]
        own = {
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{self._controller}"]),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f'{LOGIN} user_reader="{PASSWORD}";',
        }
        return super()._properties(chosen | own)

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

    def _answers(self) -> bool:
        try:
            AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=1)
        except Exception:  # noqa: BLE001 (not yet)
            return False
        return True

    @staticmethod
    def _done(futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(30)
