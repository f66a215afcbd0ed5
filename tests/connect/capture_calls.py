"""Captures in which Spark has to read, beside a session that is classic or of Spark Connect, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import streamstate as ss

UNKNOWN = {"spark.sql.streaming.stateStore.compression.codec": "lzf"}
"""With this codec, only Spark can read the state."""
ELSEWHERE = "viewfs://far"
"""A file system that only Hadoop's client can read, if it is mounted as follows."""


def mounted(folder: Path) -> tuple[str, str]:
    """The setting of Hadoop's client that makes a folder the root of the file system."""
    return "fs.viewfs.mounttable.far.link./checkpoints", folder.as_uri()


def building(spark: Any, source: Path) -> Callable[[], Any]:
    """A query with columns that only Spark computes from its state."""
    from pyspark.sql import functions as F

    def build_query() -> Any:
        shout = F.udf(lambda key: f"{key}!", "string")
        rows = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).parquet(str(source))
        counts = rows.groupBy("k").agg(F.count("*").alias("n"), F.approx_count_distinct("v").alias("about"))
        return counts.select("k", "n", "about", shout("k").alias("shouted"))

    return build_query


def answers(spark: Any, folder: Path, made: Path) -> dict[str, Any]:
    """Make the calls on ``folder/unknown``, which only Spark can read, and on ``folder/checkpoint``."""
    unknown, far = ss.Checkpoint(folder / "unknown"), ss.Checkpoint(f"{ELSEWHERE}/checkpoints/checkpoint")
    report = unknown.capture(made / "store", "captured")
    again = unknown.capture(made / "store", "captured")
    following = unknown.follow(made / "store2", "followed")
    waited = following.wait(timeout=300)
    following.stop()
    status = following.status
    passes: list[Any] = []
    remote = far.follow(made / "store", "remote", on_pass=passes.append)
    remote.wait(timeout=300)
    remote.stop()
    history = ss.open_store(made / "store")["captured"]
    history.describe(building(spark, folder / "input"))
    compared = ss.Checkpoint(folder / "checkpoint").capture(made / "store", "compared", verify="all", spark=spark)
    return {
        "report": [report.epochs, report.gaps, report.rows, dict(report.by_spark), report.committed],
        "again": [again.epochs, again.rows],
        "captured": states(made / "store", "captured"),
        "followed": states(made / "store2", "followed"),
        "result": {str(epoch): rows(history.at(epoch).result().to_pandas()) for epoch in (0, 3)},
        "waited": [waited, following.name, following.checkpoint == unknown.path, following.lag().epochs],
        "status": [status.state, status.epoch, status.behind, status.error, status.tidy_error, dict(status.by_spark)],
        "remote": [far.query_id, len(far.epochs()), remote.status.state, remote.status.epoch, len(passes)],
        "remote state": states(made / "store", "remote"),
        "compared": [compared.epochs, compared.rows, dict(compared.by_spark)],
    }


def states(store: Path, name: str) -> dict[str, Any]:
    """The state at every captured epoch."""
    history = ss.open_store(store)[name]
    frames = {str(epoch): history.at(epoch).table().to_pandas() for epoch in history.captured()}
    return {epoch: rows(frame) for epoch, frame in frames.items()}


def rows(frame: pd.DataFrame) -> list[Any]:
    """The columns and the rows of a frame."""
    return [list(frame.columns), *sorted(frame.astype(str).to_numpy().tolist())]
