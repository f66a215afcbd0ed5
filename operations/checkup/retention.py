"""Findings on the time for which a checkpoint keeps its epochs."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from streamstate.operations.checkup.report import CheckupFinding

if TYPE_CHECKING:
    from streamstate.snapshots.capture.plan import CaptureInterval
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_DEFAULT = 100
_SAMPLE = 21
_MINUTE = 60.0
# A restart of the capture, with Spark's start and a pass that catches up, takes less.
_SHORT_PAUSE = 2 * _MINUTE
_COMFORT = 10 * _MINUTE


def epoch_seconds(checkpoint: CheckpointFiles, committed: Sequence[int]) -> float | None:
    """Return the median time between the plans of the last epochs; copying a checkpoint does not change it."""
    plans = [checkpoint.readable_plan(epoch) for epoch in committed[-_SAMPLE:]]
    moments = [planned.began_at for planned in plans if planned and planned.began_at]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments)]
    return statistics.median(gaps) if gaps else None


def retention_findings(
    committed: Sequence[int], seconds: float | None, interval: CaptureInterval
) -> Iterator[CheckupFinding]:
    """Yield findings on epochs that Spark may purge before they are captured.

    The setting is not in the checkpoint. Once Spark has purged epochs, the number of the remaining ones shows it.
    """
    purged = bool(committed) and committed[0] > 0
    retained = len(committed) if purged else _DEFAULT
    held = f"the checkpoint holds {retained}" if purged else f"Spark's default is to keep {retained}"
    at_once = interval.epochs
    if interval.seconds and seconds:
        at_once = max(at_once, math.ceil(interval.seconds / seconds))
    if 2 * at_once > retained:
        yield CheckupFinding(
            "warning",
            f"A pass would take {at_once} epochs, and {held}: a delay makes a gap. Capture more often (--every), or"
            " have the query keep more epochs.",
            (_RETAIN, str(4 * at_once)),
        )
    elif seconds:
        pause = retained * seconds
        short = pause < _SHORT_PAUSE
        yield CheckupFinding(
            "warning" if short and purged else "note",
            f"A capture that pauses for more than {_span(pause)} leaves a gap ({held} epochs).",
            (_RETAIN, str(math.ceil(_COMFORT / seconds))) if short else None,
        )


def _span(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 120 * _MINUTE else f"{seconds / _MINUTE / 60:.0f} h"
