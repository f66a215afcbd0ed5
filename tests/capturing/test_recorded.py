"""The recorded query that tests read instead of running one equals what the installed Spark writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import captured_rows, compare
from pyspark.sql import SparkSession
from recorded.current import EPOCHS, record
from recorded.unpacked import CURRENT

import streamstate as ss
from streamstate.reports import Store

AGAIN = "Record it again: PYTHONPATH=tests python -m recorded.current"


@pytest.mark.exhaustive
def test_the_recorded_query_is_current(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Every epoch that Spark writes now has the recorded rows."""
    assert spark.version.startswith(CURRENT), AGAIN
    record(spark, tmp_path)
    ss.Checkpoint(tmp_path / "checkpoint").capture(tmp_path / "store", "counts", spark=spark)
    history, recorded = ss.open_store(tmp_path / "store")["counts"], store["counts"]
    assert compare(spark, tmp_path / "checkpoint", history) == EPOCHS
    assert recorded.captured() == history.captured(), AGAIN
    for epoch in history.captured():
        now, then = history.at(epoch).table(), recorded.at(epoch).table()
        assert then.to_arrow().schema == now.to_arrow().schema, AGAIN
        assert captured_rows(then) == captured_rows(now), AGAIN
