"""Checks that given offsets of Kafka cover all partitions: Spark reads the others from their earliest records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, QueryError, first_line
from streamstate.snapshots.checkpoint.source_offsets import Partitions, kafka_topics
from streamstate.snapshots.spark.private_classes import private_calls
from streamstate.snapshots.spark.source_plans import initial_offset, reads_micro_batches
from streamstate.snapshots.store.query_plans.plan_inputs import StreamSource, sources_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_whole_offsets(frame: DataFrame, texts: Sequence[str | None]) -> None:
    """Refuse offsets of Kafka's sources that lack partitions which the topics have.

    Args:
        frame: the query's streaming DataFrame.
        texts: the offset of each of its sources, in the query's order, as text.

    Raises:
        InvalidArgumentError: some are missing.
        QueryError: Kafka does not answer.
    """
    given = {place: found for place, text in enumerate(texts) if (found := kafka_topics(text)) is not None}
    if not given:
        return
    sources = {source.name: source for source in sources_of(frame._jdf.queryExecution().analyzed())}
    for place, topics in given.items():
        if (source := sources.get(str(place))) is not None and source.leaf.getClass().getSimpleName().endswith("V2"):
            _check(place, topics, _there(frame, source))


def _check(place: int, given: Mapping[str, Partitions], there: Mapping[str, Partitions]) -> None:
    missing = {topic: sorted({*partitions} - {*given.get(topic, ())}, key=int) for topic, partitions in there.items()}
    lacking = [f"{_partitions(numbers)} of {topic}" for topic, numbers in missing.items() if numbers]
    if lacking:
        raise InvalidArgumentError(
            f"The offset of source {place} lacks {' and '.join(lacking)}.\n"
            "Name every partition: Spark would read the missing ones from their earliest records. 0 is the beginning."
        )


def _partitions(numbers: Iterable[str]) -> str:
    named = list(numbers)
    return f"partition{'s' * (len(named) > 1)} {', '.join(named)}"


def _there(frame: DataFrame, source: StreamSource) -> Mapping[str, Partitions]:
    """Return the partitions that a source of Kafka would begin with."""
    from pyspark.errors import PySparkException

    jvm: Any = frame.sparkSession._jvm
    if not reads_micro_batches(jvm, source.leaf):
        return {}
    with tempfile.TemporaryDirectory(prefix="streamstate-offsets-") as log, private_calls(frame.sparkSession):
        try:
            return kafka_topics(initial_offset(source.leaf, Path(log).as_uri())) or {}
        except PySparkException as error:
            raise QueryError(f"Kafka does not say which partitions there are: {first_line(error)}") from error
