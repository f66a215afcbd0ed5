"""A union of streams whose watermarks have different delays: the slowest counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from pyspark.sql import functions as F

from inputs.streams import EPOCHS, HOUR, read, rows_of_file, run, watermark_before, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.exhaustive
def test_two_streams_with_different_delays(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of either stream fall on a key, and either's are late by the one watermark of the query."""
    files = {side: [rows_of_file(epoch, seed) for epoch in range(EPOCHS)] for side, seed in (("left", 0), ("right", 9))}
    for side, written in files.items():
        write_files(tmp_path / side, written)
    both = read(spark, tmp_path / "left", "10 minutes").union(read(spark, tmp_path / "right", "2 hours"))
    query = both.groupBy(F.window("ts", "1 hour").alias("hour"), "user").count()
    history, progress = run(query, tmp_path, "update")
    for epoch in range(EPOCHS):
        watermark = watermark_before(history, epoch)
        rows = pd.concat([files[side][epoch].assign(side=side) for side in files])
        is_late = rows.ts.dt.floor("1h") + pd.Timedelta("1h") <= watermark
        why, late = history.why(epoch, hour=HOUR, user="b"), history.late(epoch)
        own = rows[(rows.user == "b") & (rows.ts >= HOUR["start"]) & (rows.ts < HOUR["end"]) & ~is_late]
        for answer, expected in ((why, own), (late, rows[is_late])):
            found = answer.sides["rows"].select("_source0.id", F.col("_source1.id").alias("other")).toPandas()
            for side, ids in (("left", found.id), ("right", found.other)):
                assert sorted(ids.dropna()) == sorted(expected[expected.side == side].id)
        assert history.inputs(epoch, source=0).count() + history.inputs(epoch, source=1).count() == len(rows)
        assert progress[epoch]["numInputRows"] == len(rows)
        assert (late.groups or 0) == progress[epoch]["stateOperators"][0]["numRowsDroppedByWatermark"]
