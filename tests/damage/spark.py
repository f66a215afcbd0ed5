"""Spark's verdicts on each kind of damage: ``PYTHONPATH=tests python -m damage.spark [KIND…]`` writes them down."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from recorded.restarts import NEXT, add_input, configured, query_of, restarts, run
from spark_settings import SHARED

import streamstate as ss
from damage.kinds import CASES, KINDS, damaged

VERDICTS = Path(__file__).with_name("verdicts.json")
_SECONDS = 300


def committed(checkpoint: Path) -> list[int]:
    """The epochs in the commit log of a checkpoint."""
    folder = checkpoint / "commits"
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit()) if folder.exists() else []


def starts(spark: SparkSession, kind: str, checkpoint: str, recorded: Path, folder: Path) -> bool:
    """Return whether Spark starts from a damaged copy of a checkpoint, and runs one more epoch."""
    source = recorded / "input" / str(query_of(checkpoint).epochs)
    copy = damaged(kind, recorded / checkpoint, Path(tempfile.mkdtemp(dir=folder)) / "c")
    before = committed(copy)
    spark = configured(spark, checkpoint)
    query = None
    try:
        query = run(spark, checkpoint, source, copy, trigger={"availableNow": True})
        ended = query.awaitTermination(_SECONDS)
    except (PySparkException, Py4JError):
        return False
    finally:
        if query is not None:
            with contextlib.suppress(PySparkException, Py4JError):
                query.stop()
    if not ended:
        raise TimeoutError(f"{checkpoint}, {kind}: the query has not ended after {_SECONDS} s")
    return len(committed(copy)) > len(before)


def verdicts(spark: SparkSession, cases: Iterable[tuple[str, str]], folder: Path) -> dict[str, dict[str, bool]]:
    """Return whether Spark starts, by kind of damage and checkpoint."""
    recorded = restarts(folder)
    for source in (recorded / "input").iterdir():
        add_input(source, NEXT)
    found: dict[str, dict[str, bool]] = {}
    for kind, checkpoint in cases:
        found.setdefault(kind, {})[checkpoint] = starts(spark, kind, checkpoint, recorded, folder)
    return found


def main() -> None:
    """Start Spark on every case, or on those of some kinds."""
    kinds = sys.argv[1:] or [*KINDS]
    before = json.loads(VERDICTS.read_text(encoding="utf-8")) if sys.argv[1:] else {}
    folder = Path(tempfile.mkdtemp())
    spark = ss.session(**SHARED)
    spark.sparkContext.setLogLevel("OFF")
    found = before | verdicts(spark, [case for case in CASES if case[0] in kinds], folder)
    found = {kind: found[kind] for kind in KINDS if kind in found}
    VERDICTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    spark.stop()
    shutil.rmtree(folder)
    sys.stdout.write(f"{sum(map(len, found.values()))} cases\n")


if __name__ == "__main__":
    main()
