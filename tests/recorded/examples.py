"""Record the store that the examples of the documentation read: ``PYTHONPATH=tests python -m recorded.examples``.

The archive has the input, the checkpoints and the plans of the queries, with the names that the examples use. Record it
again for a new version of Spark, or if the examples need another query.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from input_files import in_turn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_settings import SHARED

import streamstate as ss
from recorded.make import ROOT, archived, report
from recorded.unpacked import unpacked
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import Plans, store_plan
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan

EXAMPLES = "examples"
SCHEMA = "carrier string, origin string, dest string, user string, delay double, scheduled timestamp"
EPOCHS = 62
_SHORT = 14
_FORKED_AT, _FORK_UNTIL = 40, 46
_START = datetime(2026, 11, 26, 9, 45, tzinfo=UTC)
_ROUTES = (("UA", "EWR"), ("HA", "JFK"), ("DL", "JFK"), ("AA", "LGA"), ("UA", "JFK"))


def rows(epoch: int) -> Iterator[dict[str, Any]]:
    """Yield the flights of one epoch: a minute of event time, with a late row and, at epoch 2, a very late flight."""
    at = _START + timedelta(minutes=epoch)
    for number in range(6):
        carrier, origin = _ROUTES[(epoch + number) % len(_ROUTES)]
        delay = float(1301 if (epoch, carrier) == (2, "HA") else (7 * epoch + 11 * number) % 61)
        shift = timedelta(minutes=-30 if number == 5 and epoch % 4 == 3 else 0, seconds=8 * number)
        yield {
            "carrier": carrier,
            "origin": origin,
            "dest": ("LAX", "SFO")[number % 2],
            "user": f"u{number % 3 or 17}",
            "delay": delay,
            "scheduled": (at + shift).isoformat(),
        }


def flights(spark: SparkSession) -> DataFrame:
    """Return the flights of the working folder as a stream, of which each epoch reads one file."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(os.path.abspath("flights"))  # noqa: PTH100 (a URI is not a path)


def delays(rows: DataFrame) -> DataFrame:
    """Return departures and delays of each carrier and origin."""
    average = F.avg("delay").alias("average_delay")
    figures = (F.count("*").alias("departures"), average, F.max("delay").alias("max_delay"))
    return rows.groupBy("carrier", "origin").agg(*figures)


def delays_by_hour(rows: DataFrame) -> DataFrame:
    """Return delays in windows, which leave the state as the watermark passes them."""
    return rows.withWatermark("scheduled", "5 minutes").groupBy(F.window("scheduled", "2 minutes"), "carrier").count()


def sessions(rows: DataFrame) -> DataFrame:
    """Return the rows of each user in each minute."""
    return rows.groupBy(F.window("scheduled", "1 minute"), "user").count()


QUERIES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "airports": lambda rows: rows.groupBy("origin").count(),
    "by_route": lambda rows: rows.groupBy("carrier", "dest").count(),
    "delays_by_hour": delays_by_hour,
    "sessions": sessions,
    "payments": lambda rows: rows.dropDuplicates(["user", "scheduled"]),
    "delays": delays,  # the last, because it has more input
}
"""The queries, each with a checkpoint of its name."""


def _run(frame: DataFrame, checkpoint: str, mode: str = "update") -> None:
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", os.path.abspath(checkpoint))  # noqa: PTH100
    writer.trigger(availableNow=True).start().awaitTermination()


def add_input(epochs: range) -> None:
    """Write the input of some epochs to the working folder."""
    Path("flights").mkdir(exist_ok=True)
    for epoch in epochs:
        file = Path("flights") / f"{epoch:05}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows(epoch)), encoding="utf-8")
        in_turn(file, epoch)


def record(spark: SparkSession) -> None:
    """Run every query in the working folder, and a fork of one; write down the plans of the queries."""
    add_input(range(_SHORT))
    for name, build in QUERIES.items():
        if name == "delays":
            add_input(range(_SHORT, EPOCHS))
        mode = "append" if name == "payments" else "update"
        _run(build(flights(spark)), f"checkpoints/{name}", mode)
        ss.Checkpoint(f"checkpoints/{name}").capture("store", name, verify="never")
        ss.open_store("store")[name].describe(lambda: build(flights(spark)), mode=mode)  # noqa: B023
        plan = Plans(Layout.at("store"), name).at(0)
        assert plan is not None
        Path(f"{name}.plan.json").write_text(plan.to_json(), encoding="utf-8")
    edit = "UPDATE op0 SET max = 0 WHERE carrier = 'HA'"
    fork = ss.Checkpoint("checkpoints/delays").fork("checkpoints/what_if", at=_FORKED_AT, edit=edit)
    fork.step(lambda: delays(flights(spark)), epochs=_FORK_UNTIL - _FORKED_AT)
    shutil.rmtree("store")
    for checksum in Path().rglob("*.crc"):
        checksum.unlink()


def examples(folder: Path) -> Path:
    """Unpack the recording, with full paths that lead to the unpacked files, and capture it."""
    recorded = unpacked(EXAMPLES, folder)
    for file in recorded.rglob("*"):
        if file.is_file() and f"{ROOT}/{EXAMPLES}".encode() in (content := file.read_bytes()):
            file.write_bytes(content.replace(f"{ROOT}/{EXAMPLES}".encode(), os.fsencode(recorded)))
    store = recorded / "store"
    for name in (*QUERIES, "what_if"):
        ss.Checkpoint(recorded / "checkpoints" / name).capture(store, name, verify="never")
        plan = recorded / f"{'delays' if name == 'what_if' else name}.plan.json"
        store_plan(Layout.at(store), name, QueryPlan.from_json(plan.read_text(encoding="utf-8")), 0)
    return recorded


def main() -> None:
    """Record with the settings of the tests' session."""
    folder = Path(ROOT) / EXAMPLES
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    spark = ss.session(**SHARED)
    record(spark)
    spark.stop()
    report(archived(EXAMPLES, folder))


if __name__ == "__main__":
    main()
