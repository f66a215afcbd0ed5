"""A query that uses shared variables: its frame reads the source that binds epochs, and its tasks know of its run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamstate.errors import QueryError
from streamstate.snapshots.capture.recording.sources import distinct_sources, frame_of, with_sources
from streamstate.snapshots.checkpoint.bindings import FORMAT, RUN, Binding, Version, binding_in, binds
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for, local_path
from streamstate.snapshots.checkpoint.fork_record import forked_from
from streamstate.snapshots.spark.catalyst import source_name
from streamstate.snapshots.spark.python_sources import register_source
from streamstate.variables.contributions import begin_run
from streamstate.variables.declaration import LATEST
from streamstate.variables.declaring import declared_variable
from streamstate.variables.epoch_binding import (
    BRANCHES,
    CHECKPOINT,
    DECLARED,
    PARENT,
    SERVED,
    TRANSPORT,
    SharedSource,
    declared_in,
    declared_option,
)
from streamstate.variables.in_tasks import QueryRun, is_local
from streamstate.variables.shared_variable import SharedVariable
from streamstate.variables.shedding.level import is_level
from streamstate.variables.transports.addresses import transport_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.snapshots.checkpoint.logs import PlannedEpoch

_NAMES = "names"


def with_variables(
    frame: DataFrame, variables: Sequence[SharedVariable], checkpoint: str, *, level: str = ""
) -> DataFrame:
    """Return a streaming frame whose epochs are bound to versions of some variables, instead of earlier ones.

    The source that binds them comes after the query's own, which keep their places. ``level`` is the level of the
    query's shedding: also in a fork it has no branch, because it is the fork's alone.

    Raises:
        QueryError: the variables are kept in several places, or the query has run without them.
    """
    if not variables:
        return frame
    places = sorted({variable.transport for variable in variables})
    if len(places) > 1:
        raise QueryError(
            f"The variables are kept in several places: {', '.join(places)}.\nA query's variables need one transport:"
            " declare them with the same."
        )
    analyzed = frame._jdf.queryExecution().analyzed()
    own = shared_leaf(analyzed)
    leaf = own if own is not None else distinct_sources(analyzed)[-1]
    binding = _binding_source(frame_of(frame, leaf), variables, checkpoint, level, named=source_name(leaf) is not None)
    instead = binding if own is not None else frame_of(frame, leaf).union(binding)
    return with_sources(frame, [(leaf, instead)])


def shared_leaf(analyzed: Any) -> Any | None:
    """Return the source of a plan that binds its epochs; None if it has none."""
    return next((leaf for leaf in distinct_sources(analyzed) if binds(leaf)), None)


def _binding_source(
    like: DataFrame, variables: Sequence[SharedVariable], checkpoint: str, level: str, *, named: bool
) -> DataFrame:
    """Return the source that binds epochs, with the columns of another, and a name if that has one."""
    spark = like.sparkSession
    register_source(spark, SharedSource)
    branches = branches_of([variable.name for variable in variables], checkpoint, spark)
    options = {
        CHECKPOINT: checkpoint,
        BRANCHES: json.dumps({name: "" if name == level else branch for name, branch in branches.items()}),
        PARENT: _parent(checkpoint, spark),
        TRANSPORT: variables[0].transport,
        SERVED: "" if local_path(checkpoint) is not None else _served(variables[0].transport, spark, checkpoint),
        DECLARED: declared_option([variable.declaration for variable in variables]),
        _NAMES: json.dumps({variable.name: variable.declaration.key for variable in variables}),
    }
    reader = spark.readStream.format(FORMAT).schema(like.schema).options(**options)
    return (reader.name(FORMAT) if named else reader).load()


def branches_of(names: Iterable[str], checkpoint: str, spark: SparkSession) -> dict[str, str]:
    """Return the branch of each variable that a query's own epochs use: of a fork its query id, else empty.

    A variable that a fork began with is not branched: its original did not have it.
    """
    record = forked_from(checkpoint, spark)
    own = "" if record is None else CheckpointFiles(checkpoint, spark).query_id
    return {name: "" if record is None or name in record.shared else own for name in names}


def _parent(checkpoint: str, spark: SparkSession) -> str:
    record = forked_from(checkpoint, spark)
    return "" if record is None else f"{record.epoch}/{_plain(record.parent)}"


def planned_before(checkpoint: str, spark: SparkSession) -> PlannedEpoch | None:
    """Return the plan of the newest committed epoch of a query that starts; None if it begins."""
    if not files_for(spark, checkpoint).text(f"{checkpoint}/metadata"):
        return None
    return CheckpointFiles(checkpoint, spark).newest_plan()


def check_goes_on(frame: DataFrame, checkpoint: str, names: Sequence[str]) -> None:
    """Raise unless a query that has run before can continue with these variables.

    Raises:
        QueryError: Spark cannot add or remove the source that binds them.
    """
    planned = planned_before(checkpoint, frame.sparkSession)
    if planned is None:
        return
    before = binding_in(planned.offsets)
    if before is not None and not names:
        raise QueryError(
            f"The epochs of {checkpoint} are bound to shared variables: {', '.join(sorted(before.versions)) or 'none'}."
            "\nGo on with them (shared=…, --shared), or use another name."
        )
    if before is None and names and not planned.names and all(map(is_level, names)):
        raise QueryError(
            f"{checkpoint} was begun without ss.shed, and Spark cannot add the source that binds its level.\n"
            "Fork it with a level, and start the fork: ss.Checkpoint(checkpoint).fork(new_checkpoint,"
            " shared=(streamstate.shedding.declare_level(store, new_name),)), then"
            " ss.start(frame, new_name, store, checkpoint=new_checkpoint). A query with named sources can continue in"
            " place."
        )
    if before is None and names and not planned.names:
        raise QueryError(
            f"{checkpoint} was begun without shared variables, and Spark cannot add the source that binds them.\n"
            "Fork it with them, and start the fork: ss.Checkpoint(checkpoint).fork(new_checkpoint,"
            " shared=(variable,)), then"
            " ss.start(frame, new_name, store, checkpoint=new_checkpoint, shared=(variable,)). A query with named"
            " sources can continue in place."
        )


def _served(transport: str, spark: SparkSession, checkpoint: str) -> str:
    from streamstate.variables.transports.flight import served_to_executors

    parent = _parent(checkpoint, spark).partition("/")[2]
    known = [_plain(checkpoint), checkpoint, *filter(None, [parent])]
    return served_to_executors(transport_at(transport), spark, known)


@contextmanager
def bound_run(frame: DataFrame, checkpoint: str) -> Iterator[None]:
    """Within the block, a query that starts is a new run, whose tasks know of it; nothing for one without variables."""
    leaf = shared_leaf(frame._jdf.queryExecution().analyzed())
    if leaf is None:
        yield
        return
    spark = frame.sparkSession
    options = leaf.extraOptions()
    address, names = str(options.get(TRANSPORT)), json.loads(str(options.get(_NAMES)))
    transport = transport_at(address)
    query = _query_id(checkpoint, spark)
    committed = max(CheckpointFiles(checkpoint, spark).committed(), default=-1)
    run = begin_run(transport, query, committed)
    context = spark.sparkContext
    near = is_local(context)
    reached = address if near or "://" in address else _served(address, spark, checkpoint)
    bindings = "" if near and local_path(checkpoint) is not None else _served(address, spark, checkpoint)
    before = context.getLocalProperty(RUN)
    started = QueryRun(_plain(checkpoint), query, run, reached, bindings, tuple(names), tuple(names.values()))
    context.setLocalProperty(RUN, started.text())
    try:
        yield
    finally:
        context.setLocalProperty(RUN, before)  # type: ignore[arg-type]


def _plain(checkpoint: str) -> str:
    local = local_path(checkpoint)
    return checkpoint if local is None else str(local)


def _query_id(checkpoint: str, spark: SparkSession) -> str:
    """Return the id of a checkpoint's query; a new checkpoint gets one, as Spark would give it."""
    files = files_for(spark, checkpoint)
    if files.text(f"{checkpoint}/metadata") is None:
        files.write(f"{checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    return CheckpointFiles(checkpoint, spark).query_id


def newest_binding(variables: Sequence[SharedVariable]) -> Binding:
    """Return the binding to the newest versions of some variables."""
    versions: dict[str, Version | None] = {}
    for variable in variables:
        made = variable.declaration
        number = None if made.consistency == LATEST else variable.log.head()
        versions[variable.name] = Version(number) if made.access == "read-mostly" else None
    return Binding(versions, variables[0].transport, variables[0].store)


def variables_in(frame: DataFrame, binding: Binding) -> dict[str, SharedVariable]:
    """Return the variables of a binding, by name: with the frame's own functions, or as the store declares them."""
    leaf = shared_leaf(frame._jdf.queryExecution().analyzed())
    declared = [] if leaf is None else declared_in(str(leaf.extraOptions().get(DECLARED)))
    functions = {made.name: made.function for made in declared}
    return {
        name: declared_variable(binding.store, name, function=functions.get(name)) for name in sorted(binding.versions)
    }


def overridden(
    binding: Binding, values: Mapping[str, Any], variables: Mapping[str, SharedVariable], branch: str
) -> Binding:
    """Return a binding with other values for some variables, which become versions of a fork's own branch."""
    from streamstate.variables.epoch_binding import begin_branch
    from streamstate.variables.in_tasks import log_of

    versions = dict(binding.versions)
    for name, value in values.items():
        declaration = variables[name].declaration
        log = log_of(declaration, binding.at, branch)
        if log.head() < 0:
            begin_branch(log, versions.get(name))
        state = declaration.state_of(value)
        head = log.head()
        if log.state(head) != state:
            head = log.set(state, "what-if", None).number
        versions[name] = Version(head, branch)
    return Binding(versions, binding.at, binding.store)
