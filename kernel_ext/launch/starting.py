"""Start a query whose every epoch is captured: :func:`start`, and the steps that it shares with ``%%stream``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.errors import NotACheckpointError, QueryError
from streamstate.launch.claiming import claim, remove_drafts
from streamstate.launch.launch import Launch, check_state, trigger_options
from streamstate.launch.recorded_input import with_recorded_input
from streamstate.launch.running import ACTIVE, RUNNING, Running
from streamstate.launch.shared_variables import chosen_variables, with_shared_variables
from streamstate.launch.sink import Sink
from streamstate.operations.availability.lease import FAILED
from streamstate.operations.rescaling.rollback import recover_rescale
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.capture.capture import open_checkpoint
from streamstate.snapshots.capture.pass_plan import CaptureInterval
from streamstate.snapshots.capture.reached_checkpoint import reached_checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.checkpoint.server_copy import refuse_copy
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.connect_server import require_server
from streamstate.snapshots.spark.kafka_broker import check_answers
from streamstate.snapshots.spark.output_modes import check_mode
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import check_name
from streamstate.snapshots.store.query_plans.describe import store_running_plan
from streamstate.snapshots.store.query_plans.plan_table import Plans
from streamstate.snapshots.store.registry import check_name_free, check_store, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.operations.policies.runtime import LoadPolicy
    from streamstate.operations.supervision.restart_policy import BackOff
    from streamstate.operations.supervision.supervise import Note
    from streamstate.snapshots.capture.pass_plan import Every
    from streamstate.snapshots.capture.recording.recorder import Recorder
    from streamstate.variables.shared_variable import SharedVariable

Say: TypeAlias = "Callable[[str], object]"

EXAMPLE = 'spark.readStream.schema("carrier string, delay int").json("flights").groupBy("carrier").avg("delay")'

STARTED: dict[str, Running] = {}
"""The queries that :func:`start` started in this process, by name."""


def _silent(_line: str) -> None:
    """Say nothing."""


def start(
    frame: DataFrame,
    name: str,
    store: str | Path,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    mode: str = "update",
    trigger: str | None = None,
    sink: str | Callable[[DataFrame, int], None] = "noop",
    sink_options: Mapping[str, str] | None = None,
    every: Every = 1,
    partitions: int | None = None,
    restart: BackOff | None = None,
    record_input: bool = False,
    shared: Sequence[str | SharedVariable] = (),
    policy: LoadPolicy | None = None,
    lease: float | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Running:
    """Start a streaming query and capture the state of each of its epochs, as ``%%stream`` does.

    A DataFrame of Spark Connect starts in its server. If only the server reaches the checkpoint, the capture reads a
    copy of it on this machine.
    Everything is checked before the query starts. A query of the same name that this function started before is
    stopped, and the new one resumes from its checkpoint.

    Args:
        frame: the streaming DataFrame.
        name: the query's name in the store and in SQL.
        store: the directory or object-store URI of the snapshots; created if it does not exist.
        checkpoint: the query's checkpoint; by default a directory beside the store.
        mode: the output mode: "update", "append" or "complete".
        trigger: an interval such as "500ms", "1s" or "5m"; "available-now"; "once"; by default as data arrives.
        sink: "noop", "memory", "console", "FORMAT:PATH", "kafka:TOPIC", or a function of an epoch's rows and its
            number, as Spark's ``foreachBatch`` takes. Kafka gets each row at least once.
        sink_options: options of Spark's writer, such as ``{"kafka.bootstrap.servers": "host:9092"}``; with them, any
            format may be the sink. They are stored nowhere.
        every: capture once this many epochs are waiting, or once this much time has passed (a ``timedelta``, or text
            such as "10s").
        partitions: the number of state partitions of a new query.
        restart: when to restart the query if it fails, and what to do if it stalls; by default it is not supervised.
        record_input: record the input of the query's sources that do not keep it for good, in the store, as
            :func:`record` does: of all but files, Delta tables, rate and recordings. The recorders start and stop with
            the query.
        shared: the shared variables that the query's operators use: names, or what :func:`shared` returned. Each
            epoch is bound to a version of each.
        policy: what must hold for the query, as :class:`Policy` says it; a controller keeps the query there. By default
            the policy that the store has for the query, if any; ``running.policy = None`` ends that one.
        lease: hold a lease on the query, with this time to live in seconds, so that a standby on any machine can take
            it over. By default none is held, unless a process that was killed has left one.
        storage_options: deltalake's options for a store in an object store.

    Returns:
        A handle with ``.status()``, ``.wait(epoch, timeout)`` and ``.stop()``.

    Raises:
        InvalidArgumentError: if an option is invalid.
        InvalidNameError: if ``name`` cannot be a directory and an SQL relation.
        NameTakenError: if the store has a different query of this name.
        NoStateError: if the query keeps no state.
        NotOwnerError: another process holds the lease on the query.
        NotACheckpointError: if ``checkpoint`` is a directory with other contents.
        QueryError: if ``frame`` is not a streaming DataFrame, or Spark refuses the query.
        UnknownVariableError: if the store has no shared variable of a name.
        SparkConnectError: if the frame is of Spark Connect, and the server does not answer, or the input is to be
            recorded, or the query uses shared variables or has a policy.
        StoreError: if the store cannot be read or written.

    Example:
        >>> delays = ss.start(frame, "delays", "store", trigger="1s")
        >>> delays.wait(epoch=61, timeout=60)
        61
    """
    path = location(store)
    layout = Layout.at(path, storage_options)
    CaptureInterval.of(every)
    if partitions is not None:
        whole_number(partitions, "partitions")
    target = Sink.parse(sink, sink_options)
    check_options(name, layout, mode=mode, trigger=trigger, sink=target)
    streaming = streaming_frame(frame, "frame")
    variables = chosen_variables(path, shared, storage_options)
    own = location(checkpoint or checkpoint_beside(path, name))
    launch = Launch(name, streaming, own, mode, target, trigger, partitions, restart)
    check_launch(launch, layout, _warn)
    launch = with_recorded_input(launch, layout, record_input=record_input)
    launch = with_shared_variables(launch, variables, path, storage_options)
    return start_launch(
        launch,
        path,
        STARTED,
        every=every,
        storage_options=storage_options,
        repaired=_warn,
        policy=policy,
        lease=lease,
    )


def _warn(line: str) -> None:
    from streamstate.snapshots.spark.session import StreamStateWarning

    warnings.warn(line, StreamStateWarning, stacklevel=4)


def check_options(name: str, layout: Layout, *, mode: str, trigger: str | None, sink: Sink) -> None:
    """Check everything that can be checked without the frame."""
    check_name(name)
    trigger_options(trigger)
    sink.check(mode)
    check_store(layout)


def check_launch(launch: Launch, layout: Layout, repaired: Say = _silent) -> None:
    """Check the frame and the checkpoint of a query that is about to start.

    ``repaired`` is called with a line if a promotion of the checkpoint was interrupted.
    """
    check_state(launch.frame)
    launch.sink.check_columns(launch.frame)
    refuse_copy(launch.checkpoint, "be the checkpoint of a query that starts")
    if not launch.on_connect:  # whose server checks the mode when the query starts
        check_mode(launch.frame, launch.mode)
        check_answers(launch.frame)
    _finish_promotion(launch, repaired)
    query_id = _query_id(launch)
    check_name_free(layout, launch.name, query_id, launch.checkpoint)


def _finish_promotion(launch: Launch, repaired: Say) -> None:
    """Complete or reverse a promotion that was interrupted, and refuse a checkpoint that a fork has replaced."""
    from streamstate.operations.promotion.switch import prepare_start

    if done := prepare_start(launch.checkpoint, launch.classic_session):
        repaired(f"An interrupted promotion of {launch.name} {done}.")


def start_launch(
    launch: Launch,
    store: str,
    known: MutableMapping[str, Running],
    *,
    every: Every,
    storage_options: Mapping[str, str] | None,
    say: Say = _silent,
    repaired: Say | None = None,
    policy: LoadPolicy | None = None,
    lease: float | None = None,
    capture_paused: bool = False,
) -> Running:
    """Start a query that was checked, replacing the one of the same name among those known.

    Args:
        launch: the query.
        store: the store to capture into.
        known: the running queries by name; the new one is added.
        every: the pace of the capture.
        storage_options: deltalake's options for the store.
        say: called with lines for the user, such as the epoch after which the query resumes.
        repaired: called with a line for each change of the checkpoint that was interrupted; by default ``say``.
        policy: what must hold for it; by default what the store has.
        lease: the time to live in seconds of the lease on the query; by default it has one if its last run here has.
        capture_paused: leave the processors to the query until the caller resumes the capture.
    """
    from streamstate.launch.load_policy import check_policy
    from streamstate.snapshots.spark.session import advise

    previous = known.get(launch.name)
    was_running = previous is not None and previous.state in RUNNING
    _check_exclusive(launch, known)
    if policy is not None:
        check_policy(policy, launch)
    _finish_promotion(launch, repaired or say)
    checkpoint = _resumed(launch)
    committed = [] if checkpoint is None else checkpoint.committed()
    launch.check_resumes(committed)
    advise(launch.frame.sparkSession)
    layout = Layout.at(store, storage_options)
    if previous is not None:
        launch.check_sources()
        same_lease = previous.launch is not None and previous.launch.fence is launch.fence
        (previous.end_run if same_lease else previous.stop)()

    def start_again(again: Launch) -> Running:
        return start_launch(again, store, known, every=every, storage_options=storage_options)

    with _owned(launch):
        if claim(launch, layout, every, lease, say):
            remove_drafts(launch.checkpoint, launch.classic_session)
        _undo_rescale(launch, checkpoint, repaired or say)
        _announce(launch, checkpoint, say, was_running=was_running)
        handle = _started(
            launch, layout, checkpoint, every=every, start_again=start_again, say=say, capture_paused=capture_paused
        )
    known.pop(launch.name, None)  # so that the newest comes last
    known[launch.name] = handle
    return _kept_to(policy, handle)


@contextmanager
def _owned(launch: Launch) -> Iterator[None]:
    """Give the lease back if the query does not start in the block."""
    try:
        yield
    except BaseException:
        if launch.fence.lease is not None:
            for active in launch.frame.sparkSession.streams.active:
                if active.name == launch.name:  # an interrupt may come after Spark has started it
                    active.stop()
        launch.fence.release(FAILED)
        raise


def _undo_rescale(launch: Launch, checkpoint: CheckpointFiles | None, repaired: Say) -> None:
    if checkpoint is not None and (undone := recover_rescale(checkpoint, launch.classic_session)) is not None:
        repaired(
            f"An interrupted rescale of {launch.name} was undone: it has {undone.partitions} partitions, as before."
        )


def _started(
    launch: Launch,
    layout: Layout,
    checkpoint: CheckpointFiles | None,
    *,
    every: Every,
    start_again: Callable[[Launch], Running],
    say: Say,
    capture_paused: bool,
) -> Running:
    """Start the query and its capture."""
    from streamstate.operations.supervision.supervise import Supervised
    from streamstate.snapshots.capture.follow import follow

    committed = [] if checkpoint is None else checkpoint.committed()
    if checkpoint is not None and committed:
        launch.fence.guard(launch.classic_session, checkpoint.query_id)
    since = _plan_since(layout, launch.name, committed)
    query = launch.start()
    try:
        launch.fence.guard(launch.classic_session, str(query.id))
        read = _resumed(launch, str(query.id)) if launch.on_connect else None
        path = launch.checkpoint if read is None else read.path
        # Registered at once, so that the store shows the query before its first capture.
        register(layout, launch.name, str(query.id), path)
        # A restarted query has a new handle, so a supervised one is followed by its checkpoint.
        followed = query if launch.restart is None else read or path
        capture = follow(
            followed,
            layout.root,
            launch.name,
            every=every,
            spark=launch.classic_session,
            storage_options=layout.options,
            records_plan=False,
            checkpoint_of_query=read or path,
            paused=capture_paused,
        )
        supervised = None
        recorders: dict[Recorder, Supervised | None] = dict.fromkeys(launch.recorders())
        if launch.restart is not None:  # when supervision ends, so does the capture
            supervised = Supervised(
                launch.start_again,
                query,
                back_off=launch.restart,
                ended=capture.end,
                checkpoint=path,
                note=_notes(layout, launch.name),
                has_standby=lambda: _has_standby(launch, layout),
            )
            for recorder in () if launch.ends else recorders:
                record_again = partial(_record_again, recorder)
                recorders[recorder] = Supervised(record_again, recorder.start(), back_off=launch.restart)
        _record_plan(launch, layout, since, say)
    except BaseException:
        query.stop()
        for recorder in launch.recorders():
            recorder.stop(launch.name)
        raise
    return Running(
        launch.name,
        layout.root,
        read or path,
        capture,
        query=query,
        launch=launch,
        every=every,
        supervised=supervised,
        recorders=recorders,
        start=start_again,
    )


def _has_standby(launch: Launch, layout: Layout) -> bool:
    """Check that a standby would take the query over if its lease was given back."""
    from streamstate.operations.availability.standby import standby_ready

    lease = launch.fence.lease
    return lease is not None and standby_ready(layout, launch.name, 2 * lease.lasts)


def _notes(layout: Layout, name: str) -> Note:
    """Return what writes down what supervision notices and decides."""
    from streamstate.snapshots.store.control_table import SUPERVISION, Control, ControlRow

    control = Control(layout, name)

    def note(event: str, epoch: int, reason: str, numbers: Mapping[str, float | str | None]) -> None:
        row = ControlRow(SUPERVISION, epoch, reason=reason, inputs={"event": event, **numbers})
        control.append(lambda _rows: row)

    return note


def _kept_to(policy: LoadPolicy | None, running: Running) -> Running:
    """Put a policy in force, if there is one; the query is stopped if it cannot be."""
    try:
        if policy is not None:
            running.policy = policy
    except BaseException:
        running.stop()
        raise
    return running


def _record_again(recorder: Recorder) -> StreamingQuery:
    """Start a recorder after a failure, if its broker answers."""
    check_answers(recorder.frame)
    return recorder.start()


def _record_plan(launch: Launch, layout: Layout, since: int, say: Say) -> None:
    """Store the plan of a query that has started; that of a server's query is not known here."""
    if launch.on_connect:
        if not Plans(layout, launch.name).recorded():
            say(f"Through Spark Connect, {launch.name} has no plan yet. Record it: history.describe(build_query).")
        return
    from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame

    store_running_plan(layout, launch.name, lambda: plan_of_frame(launch.frame, launch.mode), since)


def streaming_frame(value: Any, what: str) -> DataFrame:
    """Return the value, if it is a streaming DataFrame; an error calls it ``what``, such as "The cell's value"."""
    from pyspark.sql import DataFrame

    kind = type(value).__name__
    if not (isinstance(value, DataFrame) or (is_of_connect(value) and kind == "DataFrame")):
        hint = "Remove .writeStream and .start()." if "Stream" in kind else f"For example: {EXAMPLE}"
        raise QueryError(f"{what} is not a streaming DataFrame but a value of type {kind}.\n{hint}")
    if is_of_connect(value):
        require_server(value.sparkSession)  # which Spark would otherwise ask for ten minutes
    if not value.isStreaming:
        raise QueryError(f"{what} is a batch DataFrame, not a streaming one.\nStart from spark.readStream.")
    frame: DataFrame = value
    return frame


def checkpoint_beside(store: str, name: str) -> str:
    """Return the default checkpoint of a query: beside the store, never in it."""
    folder, _, last = store.rpartition("/")
    return f"{folder}/{'checkpoints' if last == 'store' else f'{last}-checkpoints'}/{name}"


def _resumed(launch: Launch, query_id: str | None = None) -> CheckpointFiles | None:
    """Return the checkpoint that a query goes on from, as this machine reads it; None if a server has none there."""
    if launch.on_connect:
        return reached_checkpoint(launch.frame.sparkSession, launch.checkpoint, query_id)
    return open_checkpoint(launch.checkpoint, launch.classic_session)


def _query_id(launch: Launch) -> str | None:
    """Return the id of the query that owns the checkpoint; None if the path is free."""
    try:
        checkpoint = _resumed(launch) or CheckpointFiles(launch.checkpoint)
        return checkpoint.query_id
    except NotACheckpointError:
        local = local_path(launch.checkpoint)
        if local is not None and local.exists() and (local.is_file() or any(local.iterdir())):
            raise NotACheckpointError(
                f"{launch.checkpoint} is not empty, and it is not the checkpoint of a streaming query.\n"
                "Use a new directory, or the checkpoint of a query to resume."
            ) from None
        return None


def _plan_since(layout: Layout, name: str, committed: Sequence[int]) -> int:
    """Return the first epoch whose state is that of the code that starts now.

    That is the next one or, if the checkpoint was written for the code, as by a migration, the only one that it has.
    """
    written = len(committed) == 1 and not Plans(layout, name).recorded()
    return max(committed, default=-1) + (not written)


def _check_exclusive(launch: Launch, known: Mapping[str, Running]) -> None:
    """Refuse a name or a checkpoint that another running query uses."""
    previous = known.get(launch.name)
    previous_id = previous.query.id if previous is not None and previous.query is not None else None
    for active in launch.frame.sparkSession.streams.active:
        if active.name == launch.name and active.id != previous_id:
            raise QueryError(
                f"Spark already runs a query named {launch.name!r}, which was not started here.\n"
                "Stop it first (spark.streams.active lists it), or use another name."
            )
    for running in known.values():
        if running.name != launch.name and launch.checkpoint in _places(running) and running.state in ACTIVE:
            raise QueryError(
                f"The checkpoint {launch.checkpoint} is in use by {running.name}.\n"
                f"Stop {running.name} first, or use another checkpoint."
            )


def _places(running: Running) -> tuple[str, ...]:
    """Return the paths of a query's checkpoint: where it is read, and where it was started with."""
    return (running.checkpoint.path, *(() if running.launch is None else (running.launch.checkpoint,)))


def _announce(launch: Launch, checkpoint: CheckpointFiles | None, say: Say, *, was_running: bool) -> None:
    """Say if a query resumes instead of starting from the beginning."""
    committed = [] if checkpoint is None else checkpoint.committed()
    stopped = f"{launch.name} was stopped. " if was_running else ""
    if checkpoint is not None and committed:
        say(f"{stopped}{launch.name} resumes after epoch {committed[-1]}, from {launch.checkpoint}")
        planned = checkpoint.planned(committed[-1])
        kept = planned.conf.get("spark.sql.shuffle.partitions") if planned else None
        if launch.partitions is not None and kept not in (None, str(launch.partitions)):
            say(f"{launch.name} keeps its {kept} partitions, which are fixed by its checkpoint.")
    elif stopped:
        say(f"{stopped}{launch.name} starts from the beginning, in {launch.checkpoint}")
