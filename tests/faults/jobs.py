"""The jobs of a child process; arguments and results are JSON."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import streamstate as ss
from faults.inspection import QUERY, Expected, inspect
from faults.shim import arm
from streamstate.errors import StreamStateError
from streamstate.snapshots.capture import epoch_commit
from streamstate.snapshots.store import keyframes
from streamstate.snapshots.store.delta import maintenance, table

_WARM = ("deltalake", "duckdb", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "sqlglot")


def warm() -> None:
    """Import what every child needs, without using it."""
    for module in (*_WARM, "pyspark.sql.functions", "pyspark.sql.pandas.types", "oracle"):
        importlib.import_module(module)


def attached() -> SparkSession:
    """A session of the JVM that the environment names; another process owns it, so it must not be stopped."""
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    java = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    return SparkSession(SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jvm=jvm, _jconf=java.getConf())))


def capture(
    checkpoint: str, store: str, control: str | None = None, epochs_a_pass: int = 4, log_checkpoint_every: int = 50
) -> dict[str, Any]:
    """Capture with the faults of a control file, and return the captured epochs."""
    spark = attached()
    epoch_commit._EPOCHS_A_PASS = epochs_a_pass
    keyframes.SMALLEST_KEYFRAME = 0
    table.CHECKPOINT_INTERVAL = log_checkpoint_every
    if control is not None:
        arm(Path(control))
    report = ss.Checkpoint(checkpoint).capture(store, QUERY, spark=spark)
    return {"epochs": list(report.epochs), "gaps": list(report.gaps), "by_spark": dict(report.by_spark)}


def merge(store: str, control: str | None = None) -> dict[str, Any]:
    """Merge the files of all tables with the faults of a control file, and return how many fewer files each has."""
    maintenance._MANY = 2
    if control is not None:
        arm(Path(control))
    return {"merged": [table.files_before - table.files_after for table in ss.open_store(store)[QUERY].compact()]}


def read_and_capture(checkpoint: str, store: str, expected: str, epochs: int) -> dict[str, Any]:
    """Read everything from a damaged store, capture into it, and read everything again."""
    known = Expected.load(Path(expected))
    before = inspect(store, known, epochs, epochs)
    ended: str | None = None
    unclear = False
    try:
        ss.Checkpoint(checkpoint).capture(store, QUERY, spark=attached())
    except BaseException as error:  # noqa: BLE001 — a panic in Rust is no Exception, and is what is looked for
        ended, unclear = f"{type(error).__name__}: {error}", not isinstance(error, StreamStateError)
    after = inspect(store, known, epochs if ended else known.epochs)
    return {"before": asdict(before), "capture": ended, "unclear": unclear, "after": asdict(after)}
