"""Settings of a query's own: a session has them while the query is built and started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_own: WeakKeyDictionary[DataFrame, Mapping[str, str]] = WeakKeyDictionary()


@contextmanager
def with_settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set the settings that a query adopts when it is built and started, and restore the session's own afterwards."""
    before = {key: spark.conf.get(key, None) for key in conf}
    changed = {key: value for key, value in conf.items() if before[key] != value}
    try:
        for key, value in changed.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key in changed:
            original = before[key]
            if original is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, original)


def keep_settings(frame: DataFrame, conf: Mapping[str, str]) -> None:
    """Remember the settings that a query has to be started with."""
    _own[frame] = dict(conf)


def settings_of(frame: DataFrame) -> Mapping[str, str]:
    """Return the settings that a query has to be started with; none of most queries."""
    return _own.get(frame, {})
