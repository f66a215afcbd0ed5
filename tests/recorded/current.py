"""Record the query that most tests read, with the installed Spark: ``PYTHONPATH=tests python -m recorded.current``.

Tests capture the recorded checkpoint with the changelog reader, so that they need neither Spark nor Java. Record it
again for a new version of Spark, or if the query changes; ``test_recorded.py`` fails until then.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import Source, counts, letters, run
from pyspark.sql import SparkSession
from spark_settings import SHARED

import streamstate as ss
from recorded.make import ROOT, archived, report
from recorded.unpacked import CURRENT

COUNTED = "counted"
EPOCHS = 5


def record(spark: SparkSession, folder: Path) -> None:
    """Run a query of five epochs, and audit two of them.

    The folder then has ``input``, ``checkpoint`` and the audit's ``record.json``.
    """
    source = Source(spark, folder / "input", "k string, v long")
    for epoch in range(EPOCHS):
        source.add(letters(epoch))
    run(counts(source), folder / "checkpoint")
    audit = ss.Checkpoint(folder / "checkpoint").audit(lambda: counts(source), epochs=(1, 2), replays=1, spark=spark)
    audit.save(folder / "record.json")


def main() -> None:
    """Record with the settings of the tests' session."""
    folder = Path(ROOT) / CURRENT
    shutil.rmtree(folder, ignore_errors=True)
    spark = ss.session(**SHARED)
    record(spark, folder / COUNTED)
    spark.stop()
    report(archived(CURRENT, folder))


if __name__ == "__main__":
    main()
