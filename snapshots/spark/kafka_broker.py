"""A Kafka broker, asked about the topics of a query's source: through Kafka's own client, with the source's options."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.errors import QueryError, choices
from streamstate.snapshots.spark.catalyst import each, kind_of, scala_list
from streamstate.snapshots.spark.failures import innermost
from streamstate.snapshots.spark.private_classes import spark_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANSWERS_WITHIN = 5
"""Seconds for all questions of one look at a broker."""
_ADMIN = "org.apache.kafka.clients.admin."
_COMMON = "org.apache.kafka.common."
_OPTION = "kafka."
_SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy")
_UNKNOWN = "UnknownTopicOrPartitionException"


class SilentBrokerError(Exception):
    """A broker does not answer, or refuses to."""


@dataclass(frozen=True)
class Topic:
    """A topic as it is now."""

    id: str
    """The topic's own id, which a topic of the same name that is created later does not have."""
    first: Mapping[int, int]
    """The offset of the oldest record that is kept, by partition."""
    end: Mapping[int, int]
    """The offset after the newest record, by partition."""
    settings: Mapping[str, str]
    """Its settings for retention; empty if the user may not read them."""

    @property
    def compacted(self) -> bool:
        """True if records are removed once there are newer ones with their keys."""
        return "compact" in self.settings.get("cleanup.policy", "")

    @property
    def expires(self) -> bool:
        """True if records are removed after some time, or beyond some size."""
        return "delete" in self.settings.get("cleanup.policy", "delete")


def reads_kafka(leaf: Any) -> bool:
    """Return whether a leaf of a plan is Kafka's source."""
    return kind_of(leaf) == "StreamingRelationV2" and str(leaf.sourceName()) == "kafka"


def source_option(leaf: Any, name: str) -> str | None:
    """Return an option of a source, whatever the case of its name; None if it is not set."""
    value = leaf.extraOptions().get(name)
    return None if value is None else str(value)


def servers(leaf: Any) -> str:
    """Return the addresses that a source connects to first."""
    return source_option(leaf, "kafka.bootstrap.servers") or "no kafka.bootstrap.servers"


def no_answer(leaf: Any, error: SilentBrokerError) -> str:
    """Return the message for a broker of a source that does not answer, with advice."""
    return (
        f"Kafka at {servers(leaf)} does not answer within {ANSWERS_WITHIN} seconds: {error}\n"
        "Start the broker, or correct kafka.bootstrap.servers and the settings of access in the query's code."
    )


def loss_fails(leaf: Any) -> bool:
    """Return whether a query fails where its source has lost records, which is the default."""
    return (source_option(leaf, "failOnDataLoss") or "true").lower() != "false"


def assigned(leaf: Any) -> dict[str, set[int]] | None:
    """Return the partitions that a source names, by topic; None if it reads all of its topics."""
    text = source_option(leaf, "assign")
    return None if text is None else {topic: set(partitions) for topic, partitions in json.loads(text).items()}


def subscribed(jvm: Any, leaf: Any) -> list[str]:
    """Return the topics that a source reads: those that it names, or those of its broker that match its pattern.

    Raises:
        SilentBrokerError: the broker does not answer.
    """
    if (named := source_option(leaf, "subscribe")) is not None:
        return [topic.strip() for topic in named.split(",") if topic.strip()]
    if (pattern := source_option(leaf, "subscribePattern")) is None:
        return list(assigned(leaf) or ())
    with _asking(jvm, leaf) as ask:
        names = [str(name) for name in ask.result(ask.admin.listTopics().names())]
    return sorted(name for name in names if jvm.java.util.regex.Pattern.matches(pattern, name))


def topic_ids(jvm: Any, leaf: Any) -> dict[str, str | None]:
    """Return the ids of the topics that a source reads; None for a topic that does not exist.

    Raises:
        SilentBrokerError: the broker does not answer.
    """
    names = subscribed(jvm, leaf)
    with _asking(jvm, leaf) as ask:
        described = ask.described(names)
        return {name: None if of is None else str(of.topicId().toString()) for name, of in described.items()}


def unread(jvm: Any, leaf: Any, offsets: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many records of a source's topics lie after some offsets now; those that are gone do not count.

    Raises:
        SilentBrokerError: the broker does not answer.
    """
    own = assigned(leaf)
    found = topics(jvm, leaf, {*subscribed(jvm, leaf), *offsets})
    behind = 0
    for name, topic in found.items():
        for part, end in ({} if topic is None else topic.end).items():
            if own is None or part in own.get(name, ()):
                after = max(offsets.get(name, {}).get(str(part), 0), 0 if topic is None else topic.first[part])
                behind += max(end - after, 0)
    return behind


def check_answers(frame: DataFrame) -> None:
    """Check, before a query starts, that the brokers of its sources answer and have its topics.

    Raises:
        QueryError: they do not; Spark would say so after three minutes.
    """
    jvm: Any = frame.sparkSession._jvm
    for leaf in kafka_sources(frame._jdf.queryExecution().analyzed()):
        try:
            missing = [name for name, known in topic_ids(jvm, leaf).items() if known is None]
        except SilentBrokerError as error:
            raise QueryError(no_answer(leaf, error)) from error
        if missing:
            raise QueryError(
                f"There is no topic {choices(missing)} at {servers(leaf)}.\nCreate it first, or correct its name."
            )


def kafka_sources(analyzed: Any) -> list[Any]:
    """Return the leaves of a plan that are Kafka's source."""
    return [leaf for leaf in each(analyzed.collectLeaves()) if reads_kafka(leaf)]


def topics(jvm: Any, leaf: Any, names: Iterable[str]) -> dict[str, Topic | None]:
    """Return some topics of a source's broker; None for a topic that does not exist.

    Raises:
        SilentBrokerError: the broker does not answer.
    """
    with _asking(jvm, leaf) as ask:
        described = ask.described(names)
        known = [name for name, of in described.items() if of is not None]
        parts = {name: [int(part.partition()) for part in described[name].partitions()] for name in known}
        first, end = ask.offsets(parts, "earliest"), ask.offsets(parts, "latest")
        settings = ask.settings(known)
        made = {
            name: Topic(str(described[name].topicId().toString()), first[name], end[name], settings.get(name, {}))
            for name in known
        }
        return {name: made.get(name) for name in described}


@contextmanager
def _asking(jvm: Any, leaf: Any) -> Iterator[_Questions]:
    from py4j.protocol import Py4JJavaError

    admin = None
    try:
        # Spark's own way to a client: it also adds a delegation token.
        strategy = spark_class(jvm, "org.apache.spark.sql.kafka010.SubscribeStrategy")
        admin = strategy(scala_list(jvm, [])).createAdmin(_parameters(jvm, leaf))
        yield _Questions(jvm, admin)
    except Py4JJavaError as error:
        raise SilentBrokerError(innermost(error)) from error
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)


def _parameters(jvm: Any, leaf: Any) -> Any:
    """Return the settings of Kafka's client that a source has, in a map of Java."""
    found = jvm.java.util.HashMap()
    options = leaf.extraOptions().asCaseSensitiveMap()
    for name in options:
        if name.lower().startswith(_OPTION):
            found.put(name[len(_OPTION) :], options[name])
    for name in ("default.api.timeout.ms", "request.timeout.ms"):
        found.put(name, str(ANSWERS_WITHIN * 1000))
    return found


class _Questions:
    """Questions to one broker, all of which are answered in a few seconds."""

    def __init__(self, jvm: Any, admin: Any) -> None:
        self._jvm = jvm
        self.admin = admin
        self._until = time.monotonic() + ANSWERS_WITHIN

    def result(self, future: Any) -> Any:
        """Return what a future of Kafka has, within the time."""
        left = max(int(1000 * (self._until - time.monotonic())), 1)
        return future.get(left, self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS)

    def described(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the descriptions of topics; None for those that do not exist."""
        from py4j.protocol import Py4JJavaError

        asked = self.admin.describeTopics(_java_list(self._jvm, names)).topicNameValues()
        found = {}
        for name in asked:
            try:
                found[str(name)] = self.result(asked[name])
            except Py4JJavaError as error:
                if _UNKNOWN not in innermost(error):
                    raise
                found[str(name)] = None
        return found

    def offsets(self, parts: Mapping[str, Iterable[int]], which: str) -> dict[str, dict[int, int]]:
        """Return the ``earliest`` or ``latest`` offsets of partitions, by topic."""
        partition = spark_class(self._jvm, f"{_COMMON}TopicPartition")
        spec = getattr(spark_class(self._jvm, f"{_ADMIN}OffsetSpec"), which)()
        asked = self._jvm.java.util.HashMap()
        for name, numbers in parts.items():
            for number in numbers:
                asked.put(partition(name, number), spec)
        answers = self.result(self.admin.listOffsets(asked).all())
        found: dict[str, dict[int, int]] = {name: {} for name in parts}
        for place in answers:
            found[str(place.topic())][int(place.partition())] = int(answers[place].offset())
        return found

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings for retention of those topics whose settings may be read."""
        from py4j.protocol import Py4JJavaError

        resource = spark_class(self._jvm, f"{_COMMON}config.ConfigResource")
        kind = spark_class(self._jvm, f"{_COMMON}config.ConfigResource$Type").TOPIC
        asked = self.admin.describeConfigs(_java_list(self._jvm, [resource(kind, name) for name in names])).values()
        found = {}
        for place in asked:
            try:
                config = self.result(asked[place])
            except Py4JJavaError:  # the user may read the topic, and not its settings
                continue
            entries = {name: config.get(name) for name in _SETTINGS}
            found[str(place.name())] = {
                name: str(entry.value()) for name, entry in entries.items() if entry is not None
            }
        return found


def _java_list(jvm: Any, items: Iterable[Any]) -> Any:
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return made
