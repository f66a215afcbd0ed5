"""Damaged files, because of which Spark does not start, whatever the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamstate.operations.code_check.report import Finding
from streamstate.snapshots.checkpoint.damage.next_start import NextStart
from streamstate.snapshots.spark.keeping_state import keeps_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def damage_findings(start: NextStart, frame: DataFrame) -> Iterator[Finding]:
    """What is damaged of the files that the next start reads; code without state does not read any of state."""
    stateful = keeps_state(frame)
    for damage in start.damages:
        change = f"{damage}."
        if damage.stops and (stateful or damage.file.partition("/")[0] != "state"):
            yield Finding("damaged", change, "Spark does not start, whatever the code.", damage.advice)
        else:
            effect = "Spark starts without it." if stateful else "This code keeps no state, so Spark starts without it."
            yield Finding("damaged_unread", change, effect, damage.advice)
    if start.whole is not None and stateful:
        change = f"The newest epoch whose state is whole is {start.whole}."
        advice = f"Without a backup: ss.Checkpoint(…).fork(at={start.whole}), and start the code from the fork."
        yield Finding("damaged_unread", change, "From there, the code can go on.", advice)
