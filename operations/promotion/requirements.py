"""Requirements of a promotion: no input is read twice or missed, and no epoch is unfinished."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from streamstate.errors import PromotionError
from streamstate.operations import stopped_query
from streamstate.operations.promotion.switch import check_not_replaced, exists, kept_beside, promotion_of
from streamstate.snapshots.checkpoint.bindings import binding_in, is_binding
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries, log_upto
from streamstate.snapshots.checkpoint.filesystem import files_for
from streamstate.snapshots.checkpoint.fork_record import forked_from
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.checkpoint.source_offsets import file_batch

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


def check_promotable(
    fork: CheckpointFiles, over: CheckpointFiles, spark: SparkSession, written: DeltaTable | None = None
) -> int:
    """Return the epoch at which a fork can take over; raises if it cannot. Writes nothing.

    Args:
        fork: the fork.
        over: the checkpoint that it is to replace.
        spark: the session.
        written: the table of the query's sink, which may have an epoch that the query has begun and not committed.
    """
    _check_paths(fork.path, over.path)
    check_not_replaced(over.path, spark)
    check_stopped([fork, over], spark)
    _check_lineage(fork, over, spark)
    epoch = _same_epoch(fork, over, spark, written)
    plans = [_planned(checkpoint, epoch) for checkpoint in (fork, over)]
    if any(binding_in(plan.offsets) is not None for plan in plans):
        raise PromotionError(
            "Queries that use shared variables cannot be promoted: a fork has versions of its own.\n"
            f"Go on with {over.path}, or start the fork as a query of its own."
        )
    _check_same_input(fork, over, epoch, plans, spark)
    kept = kept_beside(over.path, epoch)
    if exists(files_for(spark, kept), kept):
        raise PromotionError(
            f"{kept}, where the old checkpoint would be kept, already exists.\nMove it away, then try again."
        )
    return epoch


def _check_paths(fork: str, over: str) -> None:
    if fork == over or f"{fork}/".startswith(f"{over}/") or f"{over}/".startswith(f"{fork}/"):
        raise PromotionError(
            f"The fork {fork} and the checkpoint {over} are the same folder, or one is inside the other.\n"
            "Pass the fork's checkpoint, and over= the checkpoint that it is to replace."
        )


def check_stopped(checkpoints: list[CheckpointFiles], spark: SparkSession) -> None:
    """Raise if one of some queries runs in this Spark application; other applications cannot be seen."""
    stopped_query.check_stopped(checkpoints, spark, "promoted or replaced", "%stream promote FORK --over NAME")


def _check_lineage(fork: CheckpointFiles, over: CheckpointFiles, spark: SparkSession) -> None:
    """A fork must be one of this query, or of a fork of it; a checkpoint that is no fork is judged by its offsets."""
    promotion = promotion_of(over.path, spark)
    if promotion is not None and promotion.fork_id == fork.query_id:
        raise PromotionError(
            f"{fork.path} has taken the place of {over.path} already, after epoch {promotion.epoch}.\n"
            f"Start {over.path} to go on, or fork it again."
        )
    record, seen = forked_from(fork.path, spark), {fork.path}
    first = record
    while record is not None and record.parent_id != over.query_id and record.parent not in seen:
        seen.add(record.parent)
        record = forked_from(record.parent, spark)
    if first is not None and (record is None or record.parent_id != over.query_id):
        raise PromotionError(
            f"{fork.path} is a fork of another query: of {first.parent}, not of {over.path}.\n"
            f"Fork {over.path}, or promote over={first.parent!r}."
        )


def _same_epoch(fork: CheckpointFiles, over: CheckpointFiles, spark: SparkSession, written: DeltaTable | None) -> int:
    ours = _last_epoch(fork, spark)
    theirs = _last_epoch(over, spark) if written is None else _written_epoch(over, written)
    if ours < theirs:
        raise PromotionError(
            f"The fork is behind: {fork.path} is at epoch {ours}, {over.path} at epoch {theirs}.\n"
            f"Run epochs {ours + 1} to {theirs} on the fork: ss.Checkpoint({fork.path!r}).step("
            f"build_query, epochs={theirs - ours})."
        )
    if ours > theirs:
        raise PromotionError(
            f"The fork is ahead: {fork.path} is at epoch {ours}, {over.path} at epoch {theirs}.\n"
            f"Run {over.path} until epoch {ours} is committed and stop it, or fork it again at epoch {theirs}."
        )
    return ours


def _last_epoch(checkpoint: CheckpointFiles, spark: SparkSession) -> int:
    promotion = promotion_of(checkpoint.path, spark)
    if promotion is not None and [promotion.epoch] == checkpoint.committed()[-1:] != checkpoint.begun()[-1:]:
        raise PromotionError(
            f"{checkpoint.path} has not run since a fork took its place after epoch {promotion.epoch}.\n"
            "Start it until it commits an epoch, or take that promotion back: ss.Checkpoint(…).promotion().undo()."
        )
    return stopped_query.settled_epoch(checkpoint, "promote", PromotionError)


def _written_epoch(over: CheckpointFiles, written: DeltaTable) -> int:
    """Return the epoch that a query has begun, not committed, and written to its sink."""
    committed, begun = stopped_query.newest_epoch(over), over.begun()[-1]
    newest = written.transaction_version(over.query_id)
    if begun != committed + 1 or newest != begun:
        state = "no epoch of this query" if newest is None else f"its epoch {newest}"
        raise PromotionError(
            f"The sink {written.table_uri} has {state}; {over.path} has committed epoch {committed} and begun epoch"
            f" {begun}.\nsink= is for a query that ended after the sink's commit and before its own. Start this one"
            " again, or promote without sink=."
        )
    return begun


def _planned(checkpoint: CheckpointFiles, epoch: int) -> PlannedEpoch:
    planned = checkpoint.planned(epoch)
    if planned is None:
        raise PromotionError(f"{checkpoint.path} has lost offsets/{epoch}.\nRestore the file, or fork again.")
    return planned


def _check_same_input(
    fork: CheckpointFiles, over: CheckpointFiles, epoch: int, plans: list[PlannedEpoch], spark: SparkSession
) -> None:
    ours, theirs = (_input(*pair, spark) for pair in zip((fork, over), plans, strict=True))
    if ours.keys() != theirs.keys():
        raise PromotionError(
            f"{fork.path} reads {len(ours)} sources, {over.path} {len(theirs)}, or they have other names.\n"
            "A fork can take over only with the sources of the query that it replaces."
        )
    if differing := [source for source in ours if ours[source] != theirs[source]]:
        raise PromotionError(
            f"Up to epoch {epoch}, {fork.path} has not read the same input as {over.path}: {', '.join(differing)}"
            " differs.\nInput would be read twice or missed. Fork again, and step the fork with the original's input."
        )


def _input(checkpoint: CheckpointFiles, planned: PlannedEpoch, spark: SparkSession) -> dict[str, object]:
    """Return the input that each source has delivered: the files of a file source, the offset of any other."""
    files = files_for(spark, checkpoint.path)
    read: dict[str, object] = {}
    for log, offset in zip(planned.logs, planned.offsets, strict=True):
        last = file_batch(offset)
        if is_binding(offset):
            continue
        if last is None or not files.names(f"{checkpoint.path}/{log}"):
            read[log] = _parsed(offset)
        else:
            texts = log_upto(files, f"{checkpoint.path}/{log}", last).values()
            read[log] = frozenset(entry["path"] for text in texts for entry in entries(text))
    return read


def _parsed(offset: str | None) -> object:
    """Return an offset, whose JSON may list the same in another order."""
    with contextlib.suppress(ValueError):
        return None if offset is None else json.loads(offset)
    return offset
