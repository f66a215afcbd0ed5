"""Delta tables that a fork's next epoch reads: what they no longer have, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from streamstate.errors import NotReplayableError
from streamstate.replay.stepping.next_epoch import NextEpoch
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.query_plans.plan_inputs import sources_of
from streamstate.state_inspect.inputs.delta_reads import DeltaRead, reads_delta
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange
from streamstate.state_inspect.inputs.source_batches import SourceReader


@contextmanager
def delta_checked(
    frame: DataFrame, original: CheckpointFiles, fork: CheckpointFiles, upcoming: NextEpoch
) -> Iterator[None]:
    """Check the logs of Delta tables before an epoch of the original runs in the block.

    Spark would run an epoch whose start is not known with other input. If the block fails since input is gone, the
    error names the files that the tables lack.
    """
    ranges = [] if upcoming.input == "new" else _ranges(frame, original, fork, upcoming.number)
    with _fork_unchanged(upcoming.number - 1):
        for leaf, source in ranges:
            DeltaRead(frame.sparkSession, leaf, source).check_log()
    try:
        yield
    except NotReplayableError:
        with _fork_unchanged(upcoming.number - 1):
            _read_again(frame, fork, ranges)
        raise


@contextmanager
def _fork_unchanged(epoch: int) -> Iterator[None]:
    try:
        yield
    except NotReplayableError as error:
        raise NotReplayableError(f"{error}\nThe fork is unchanged, at epoch {epoch}.") from error


def _ranges(
    frame: DataFrame, original: CheckpointFiles, fork: CheckpointFiles, number: int
) -> list[tuple[Any, SourceRange]]:
    """Return the frame's Delta sources, each with its range in an epoch of the original."""
    java: Any = frame._jdf
    planned, before = original.planned(number), fork.planned(number - 1)
    if planned is None:
        return []
    names = planned.names or [str(at) for at in range(len(planned.offsets))]
    starts = before.offsets if before is not None else [None] * len(names)
    known = {
        name: SourceRange(f"sources/{name}", start, end)
        for name, start, end in zip(names, starts, planned.offsets, strict=True)
    }
    sources = sources_of(java.queryExecution().analyzed())
    ranges = [(source.leaf, known[source.name]) for source in sources if source.name in known]
    return [(leaf, source) for leaf, source in ranges if not source.is_empty and reads_delta(leaf, source)]


def _read_again(frame: DataFrame, fork: CheckpointFiles, ranges: list[tuple[Any, SourceRange]]) -> None:
    reader = SourceReader(frame.sparkSession, fork.path, fork.files)
    try:
        for leaf, source in ranges:
            reader.batch(leaf, source)
    finally:
        reader.close()
