"""The rows that the sources of a query delivered in an epoch."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, NoResultError, QueryError, choices
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.source_offsets import read_topics
from streamstate.snapshots.spark.fetching import to_arrow
from streamstate.snapshots.spark.kafka_broker import reads_kafka
from streamstate.snapshots.spark.plan_building import dataset_of
from streamstate.snapshots.spark.private_classes import private_calls
from streamstate.snapshots.spark.pyspark_classes import ClassicDataFrame
from streamstate.snapshots.store.query_plans.plan_inputs import StreamSource, sources_of
from streamstate.snapshots.store.query_plans.plan_table import LivePlan, live_plan
from streamstate.snapshots.store.registry import required_query
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange, check_unchanged, epoch_ranges
from streamstate.state_inspect.inputs.known_input import KnownInput
from streamstate.state_inspect.inputs.source_batches import SourceReader
from streamstate.state_inspect.inputs.whole_input import WholeInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Frame = TypeVar("_Frame", bound="DataFrame")


class InputRows(ClassicDataFrame):
    """The rows that a source delivered in an epoch: a DataFrame of Spark with :meth:`to_arrow`.

    Attributes:
        notes: sentences about them: of records between the epoch's offsets that it did not read, and why.
    """

    notes: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """Return all rows."""
        return to_arrow(self)


def inputs(query: CapturedQuery, epoch: int, source: str | int | None) -> InputRows:
    """Return the rows that a source delivered in an epoch, as :meth:`streamstate.History.inputs`."""
    planned = required_plan(query, epoch)
    found = sources_of(planned.analyzed)
    checkpoint = captured_checkpoint(query, planned.spark)
    ranges = ranges_of(query, checkpoint, epoch, found)
    chosen = _chosen(query, found, ranges, source)
    reader = SourceReader(planned.spark, checkpoint.path, checkpoint.files)
    try:
        [(_, plan)] = delivered(query, reader, epoch, {chosen.name: chosen.leaf}, ranges, sources=len(found))
        rows = batch_rows(planned.spark, plan)
        rows.notes = tuple(reader.notes)
    except BaseException:
        reader.close()
        raise
    weakref.finalize(rows, reader.close)
    return rows


def delivered(
    query: CapturedQuery,
    reader: SourceReader,
    epoch: int,
    leaves: Mapping[str, Any],
    ranges: Mapping[str, SourceRange],
    *,
    sources: int,
    streaming: bool = False,
    located: bool = False,
) -> list[tuple[Any, Any]]:
    """Return leaves of a plan, each with a plan of what it delivered in an epoch, all of which is still there.

    Args:
        query: the query.
        reader: reads the sources.
        epoch: the epoch.
        leaves: the leaves, by the names of their sources.
        ranges: the range of each source that the epoch read.
        sources: the number of leaves that the plan has; a source may be read twice.
        streaming: whether the plans are those of a stream.
        located: whether rows of a Delta table also have its version and the file; not if ``streaming``.

    Raises:
        NotReplayableError: some of it is gone, or has changed.
    """
    recorded, entry = query.plans.at(epoch), query.known_entries.of(epoch)
    whole = WholeInput(
        f"epoch {epoch} of {query.name}",
        KnownInput.of(recorded, entry, one_source=len(ranges) == sources == 1),
        reader,
    )
    batches = []
    with private_calls(reader.spark):
        for name, leaf in leaves.items():
            read = whole.batch if reads_kafka(leaf) else partial(reader.batch, located=located and not streaming)
            batches.append((leaf, read(leaf, ranges[name], streaming=streaming)))
    reader.notes = whole.notes
    check_unchanged(query.name, epoch, reader.changed)
    return batches


def required_plan(query: CapturedQuery, epoch: int, problem: str = "") -> LivePlan:
    """Return the plan of an epoch as Spark's own objects.

    ``problem`` says in the error what cannot be done without the plan; by default, reading the input.

    Raises:
        NoResultError: the query was neither started nor described in this process, or with another plan.
    """
    recorded = query.plans.at(epoch)
    planned = live_plan(query.layout, query.name, recorded)
    if planned is None:
        other = recorded is not None and live_plan(query.layout, query.name, None) is not None
        why = "the query ran with another plan than the known one" if other else "the query's plan is not known here"
        problem = problem or f"The input of epoch {epoch} of {query.name} cannot be read"
        raise NoResultError(
            f'{problem}: {why}.\nSay what it was: streamstate.open_store(store)["{query.name}"].describe(build_query).'
        )
    return planned


def captured_checkpoint(query: CapturedQuery, spark: SparkSession) -> CheckpointFiles:
    """Return the query's checkpoint, which has to be the one that was captured."""
    branch = required_query(query.layout, query.name)
    checkpoint = CheckpointFiles(branch.checkpoint, spark)
    if checkpoint.query_id != branch.query_id:
        raise QueryError(
            f"{branch.checkpoint} holds the checkpoint of another query than {query.name}: its input is not known.\n"
            "Restore the checkpoint that was captured."
        )
    return checkpoint


def batch_rows(spark: SparkSession, plan: Any) -> InputRows:
    """Return the rows of a batch plan."""
    return InputRows(dataset_of(spark._jvm, spark._jsparkSession, plan), spark)


def kept_with(frame: _Frame, *others: object) -> _Frame:
    """Return a frame that keeps other objects alive."""
    weakref.finalize(frame, _no_longer_kept, others)
    return frame


def _no_longer_kept(_others: object) -> None:
    """Do nothing: the finalizer's arguments live as long as its object."""


def ranges_of(
    query: CapturedQuery, checkpoint: CheckpointFiles, epoch: int, sources: Sequence[StreamSource]
) -> dict[str, SourceRange]:
    """Return the range of each source that an epoch read."""
    ranges = epoch_ranges(query, checkpoint, epoch)
    if lacking := [source.name for source in sources if source.name not in ranges]:
        raise QueryError(
            f"Epoch {epoch} of {query.name} read {len(ranges)} sources, and its plan has other ones:"
            f" {choices(lacking)}.\nDescribe the query as it was started."
        )
    return ranges


def _chosen(
    query: CapturedQuery, sources: Sequence[StreamSource], ranges: Mapping[str, SourceRange], source: str | int | None
) -> StreamSource:
    """Return a source by its name, its place, or a topic that only it reads."""
    topics = {each.name: [*(read_topics(ranges[each.name].end) or ())] for each in sources}
    readers = [name for name, read in topics.items() if str(source) in read]
    name = str(source)
    if source is None and len(topics) == 1:
        name = next(iter(topics))
    elif name not in topics and len(readers) == 1:
        name = readers[0]
    if name not in topics:
        named = choices(f"{name} ({', '.join(read)})" if read else name for name, read in topics.items())
        raise InvalidArgumentError(
            f"{query.name} has several sources: pass source=, one of {named}."
            if source is None
            else f"{query.name} has no source {source!r}.\nIts sources: {named}."
        )
    return next(each for each in sources if each.name == name)
