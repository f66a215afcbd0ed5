"""A query over files whose rows are dropped by a level, and rules that move it by the epoch's number."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from policies.made import RULES as MADE
from policies.made import MadePolicy
from streamstate.operations.policies.decision import Decision, Levers, Observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.variables.shared_variable import SharedVariable

ROWS = 100


def add(folder: Path, number: int) -> None:
    """Add a file with a hundred rows."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{number}"
    draft.write_text("\n".join(json.dumps({"k": row % 5, "v": number * ROWS + row}) for row in range(ROWS)))
    os.utime(draft, (number, number))  # Spark reads the oldest first
    draft.rename(folder / f"{number:04}.json")


def levelled(spark: SparkSession, folder: Path, level: SharedVariable, files: int = 50) -> DataFrame:
    """Count the rows that the level keeps, by key; a row is kept by its value, so that it can be told again."""
    from pyspark.sql import functions as F

    kept = F.udf(lambda v: v * 7919 % 10_000 < level.get(), "boolean")
    rows = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", files).json(str(folder))
    return rows.where(kept("v")).groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def decide(
    policy: MadePolicy, observed: Sequence[Observed], levers: Levers, past: Sequence[Decision]
) -> Iterable[Decision]:
    """Halve what is kept after each second epoch, until it is an eighth; limit rows once, from epoch 3 on."""
    epoch = observed[-1].epoch
    if epoch % 2 == 1:
        after = 1.0 if levers.kept < 0.3 else levers.kept / 2
        reason = f"Epoch {epoch} took {observed[-1].load.seconds:.1f} s."
        inputs: dict[str, float | str | None] = {"rows": float(observed[-1].load.rows)}
        yield Decision("shedding", levers.kept, after, after > 0.3, reason, "" if after > 0.3 else "4 cores", inputs)
    if epoch >= 3 and levers.can_limit and not any(decision.lever == "admission" for decision in past):
        yield Decision("admission", levers.rows, 2.0 * ROWS, holds=True, reason="Two files are enough.")


RULES = dataclasses.replace(MADE, decide=decide)
