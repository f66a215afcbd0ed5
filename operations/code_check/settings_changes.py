"""Settings of the session, and Spark's version, against what the checkpoint and the recorded plan say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.errors import worded
from streamstate.operations.checkup.examine import spark_of
from streamstate.operations.code_check.report import Finding, migrate_call
from streamstate.snapshots.checkpoint.logs import SHUFFLE_PARTITIONS
from streamstate.snapshots.spark.catalyst import each, walk
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_TIME_ZONE = "spark.sql.session.timeZone"
_ZONED = "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression"
_PINNED = "The checkpoint pins it: the session's value has no effect."


def pinned_findings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Settings of the session that the checkpoint overrides."""
    differing = {name: (value, spark.conf.get(name, None)) for name, value in conf.items()}
    for name, (value, here) in sorted(differing.items()):
        if here is None or here == value:
            continue
        change = f"{name} is {_short(here)} in the session; the checkpoint has {_short(value)}."
        if name == SHUFFLE_PARTITIONS:
            rescale = worded(
                f"ss.Checkpoint(checkpoint).rescale({here})", magic=f"%stream rescale NAME --partitions {here}"
            )
            yield Finding("partitions_pinned", change, _PINNED, f"To change it: {rescale}.")
        elif name == _PROVIDER:
            carry_over = f"Nothing. To change it, {migrate_call()} carries the state over."
            yield Finding("provider_pinned", change, _PINNED, carry_over)
        else:
            yield Finding("setting_pinned", change, _PINNED, "Nothing.")


def recorded_setting_findings(frame: DataFrame, recorded: QueryPlan, plan: QueryPlan) -> Iterator[Finding]:
    """Settings that expressions depend on, and that the checkpoint does not pin."""
    for name, value in sorted(recorded.settings.items()):
        here = plan.settings.get(name)
        if here is None or here == value:
            continue
        change = f"{name} was {value}; the session has {here}."
        if name != _TIME_ZONE:
            effect = "The same expressions may have other values, or fail where they did not."
            yield Finding("setting", change, effect, f"spark.conf.set({name!r}, {value!r}) before the query is built.")
        elif _depends_on_time_zone(frame):
            effect = "Dates, hours and times as text begin elsewhere: the same row gets another key or value."
            yield Finding(
                "time_zone", change, effect, f"spark.conf.set({name!r}, {value!r}) before the query is built."
            )
        else:
            yield Finding("time_zone_unused", change, "No expression of the query depends on it.", "Nothing.")


def version_findings(spark: SparkSession, conf: Mapping[str, str], recorded: QueryPlan | None) -> Iterator[Finding]:
    """That another Spark ran the query so far."""
    known = recorded.spark if recorded is not None else spark_of(conf)
    same = known.partition(" ")[0].split(".")[:2] == spark.version.split(".")[:2] or known == "unknown"
    if not same:
        change = f"Spark {known} ran the query so far; this is {spark.version}."
        effect = "An upgrade counts as a change of code: types, nullability and functions may differ."
        yield Finding("spark_version", change, effect, "Rehearse it: replay=3.")


def _depends_on_time_zone(frame: DataFrame) -> bool:
    jvm: Any = frame.sparkSession._jvm
    loader, initialize = jvm.java.lang.Thread.currentThread().getContextClassLoader(), True
    zoned = jvm.java.lang.Class.forName(_ZONED, initialize, loader)
    return any(
        zoned.isInstance(part) and (not str(part.nodeName()).lower().endswith("cast") or part.needsTimeZone())
        for node in walk(frame._jdf.queryExecution().analyzed())
        for expression in each(node.expressions())
        for part in walk(expression)
    )


def _short(value: str) -> str:
    return value.rpartition(".")[2] if value.startswith("org.apache.") else value
