"""The numbers at the head of a dashboard, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from streamstate.widgets.dashboard.drawing import Trouble
from streamstate.widgets.dashboard.figures import amount, milliseconds, rate, size, span
from streamstate.widgets.dashboard.rates import watermark_lag
from streamstate.widgets.values import timestamp

if TYPE_CHECKING:
    from streamstate.snapshots import CaptureStatus
    from streamstate.snapshots.manifest import Entry
    from streamstate.widgets.dashboard.sample import Batch, Sample
    from streamstate.widgets.dashboard.spread import Spread

__all__ = ["facts_of", "troubles_of"]

_PYTHON = "Traceback (most recent call last):"
_SHORT = 240


def facts_of(
    entries: Sequence[Entry], sample: Sample | None, captured: CaptureStatus | None, spreads: Sequence[Spread]
) -> list[tuple[str, str]]:
    """What is known now, label and value; what is not known is left out.

    Args:
        entries: the manifest, ascending.
        sample: the query of this process.
        captured: its capture.
        spreads: state tables that were looked at, for their sizes on disk.
    """
    newest = next((entry for entry in reversed(entries) if entry.captured), None)
    facts = list(_of_epoch(newest)) if newest is not None else []
    facts += [(f"log of {spread.table}", f"{size(spread.bytes)} on disk") for spread in spreads]
    if sample is not None and sample.batches:
        facts += _of_batch(sample.batches[-1])
    facts += _of_capture(newest, captured)
    gaps = sum(not entry.captured for entry in entries)
    return [*facts, ("gaps", amount(gaps, "epoch"))] if gaps else facts


def troubles_of(sample: Sample | None, captured: CaptureStatus | None, *, late: bool) -> list[Trouble]:
    """What is wrong with the query and its capture; nothing where all is well.

    Args:
        sample: the query of this process.
        captured: its capture.
        late: whether Spark keeps those waiting who ask it.
    """
    found = []
    if sample is not None and sample.problem:
        what = {"failed": "The query failed", "unreachable": "Spark does not answer"}.get(
            sample.state, "Spark cannot say how the query is"
        )
        found.append(Trouble(what, _line(sample.problem), sample.problem))
    if late:
        found.append(Trouble("Spark is busy", "it has not answered for some seconds; its figures are older."))
    for what, error in (
        ("The capture reports", captured.error if captured else None),
        ("Keeping the store tidy failed", captured.tidy_error if captured else None),
    ):
        if error:
            found.append(Trouble(what, _line(error), error))
    return found


def _of_epoch(entry: Entry) -> Iterator[tuple[str, str]]:
    if entry.committed_at is not None:
        yield "committed", timestamp(entry.committed_at)
    yield "state", amount(sum(facts.rows for facts in entry.tables.values()), "row")
    changes = sum(facts.changes for facts in entry.tables.values())
    yield "changed", amount(changes, "row")
    if entry.input_rows is not None:
        yield "input", amount(entry.input_rows, "row")
    if entry.watermark is not None:
        lag = watermark_lag(entry)
        behind = "" if lag is None else f" ({span(lag)} behind)"
        yield "watermark", "none yet" if lag is None else f"{timestamp(entry.watermark)}{behind}"


def _of_batch(batch: Batch) -> Iterator[tuple[str, str]]:
    if batch.input_per_second is not None:
        yield "arriving", rate(batch.input_per_second)
    if batch.processed_per_second is not None:
        yield "processed", rate(batch.processed_per_second)
    yield "batch", milliseconds(batch.milliseconds)


def _of_capture(newest: Entry | None, captured: CaptureStatus | None) -> Iterator[tuple[str, str]]:
    if captured is not None:
        behind = f", {amount(captured.behind, 'epoch')} behind" if captured.behind else ""
        yield "capture", f"{captured.state}{behind}"
    if newest is not None and newest.committed_at is not None:
        delay = (newest.captured_at - newest.committed_at).total_seconds()
        if delay >= 0:
            yield "captured", f"{span(delay)} after its commit"


def _line(problem: str) -> str:
    """The line that says what went wrong: a Python error's is the last of its traceback."""
    text = problem.partition("=== Streaming Query ===")[0].rpartition("terminated with exception: ")[2]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    if _PYTHON in text:
        after = text.partition(_PYTHON)[2].splitlines()
        lines = [line for line in after if line.strip() and not line.startswith((" ", "\t", "SQLSTATE"))][-1:]
    said = re.sub(r"\s*SQLSTATE:.*", "", lines[0] if lines else problem.strip())
    return said if len(said) <= _SHORT else said[: _SHORT - 1] + "…"
