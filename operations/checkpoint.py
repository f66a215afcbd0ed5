"""A checkpoint and what can be done with it: the first of the three nouns of the interface.

A checkpoint is what Spark owns; a store with its histories (:mod:`streamstate.state_inspect`) is what streamstate owns.
The methods here are thin: each loads the function that does the work when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.default_names import default_names
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.checkpoint.server_copy import CopiedCheckpoint, origin_of
from streamstate.snapshots.spark.worker.forwarding import classic_spark
from streamstate.snapshots.store.names import name_from

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.operations.checkup.report import DoctorReport
    from streamstate.operations.code_check import CheckReport
    from streamstate.operations.fork import Fork
    from streamstate.operations.new_checkpoint.migrate import TableMapping
    from streamstate.operations.new_checkpoint.proposed_mapping import ProposedMapping
    from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
    from streamstate.operations.promotion import Promotion
    from streamstate.operations.rescaling.advice import RescaleAdvice
    from streamstate.operations.rescaling.rescale import RescaleReport
    from streamstate.replay.audit import Audit
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.replay.forks.edits import EditInput
    from streamstate.replay.replay import Replay
    from streamstate.replay.stepping.breakpoints import Until
    from streamstate.replay.stepping.fork_runner import Watermark
    from streamstate.replay.stepping.step_report import StepReport
    from streamstate.snapshots.calls.checks import BuildQuery
    from streamstate.snapshots.calls.progress_callback import ProgressCallback
    from streamstate.snapshots.capture.change_feed import Verify
    from streamstate.snapshots.capture.epoch_commit import CaptureReport
    from streamstate.snapshots.capture.follow import Capture, OnPass
    from streamstate.snapshots.capture.pass_plan import Every
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.state_inspect import Store
    from streamstate.variables.shared_variable import SharedVariable


class Checkpoint(os.PathLike[str]):
    """A query's checkpoint; it can be passed wherever a checkpoint's path can. Creating one reads nothing.

    If only a Spark Connect server reaches the checkpoint of a query, this is a copy on this machine. Creating the
    object, :meth:`doctor`, :meth:`capture` and :meth:`follow` bring it up to date.

    Args:
        where: a path, an object store's URI (``s3a://``, ``gs://``, ``abfss://``) or any URI that Spark can read; a
            running ``StreamingQuery``; or another checkpoint, such as a :class:`Fork`.
        storage_options: deltalake's options for reaching the object store of the checkpoint and of a store that it is
            captured into, such as ``{"AWS_REGION": "eu-central-1"}``. The rest comes from the environment.

    Raises:
        InvalidArgumentError: ``where`` is none of these.
        WaitTimeoutError: ``where`` is a query of Spark Connect that has planned no batch for a minute. Until its first
            batch, its checkpoint is not known.
        NoStateError: it is one that keeps no state.
        CheckpointError: neither this machine nor the server can read its checkpoint.

    Example:
        >>> delays = ss.Checkpoint("checkpoints/delays")
        >>> delays.name, delays.spark_version
        ('delays', '4.3 or later')
    """

    path: str
    """The absolute path, or the URI; of a copy, the path on this machine."""
    _storage_options: Mapping[str, str] | None = None
    _query: StreamingQuery | None = None
    _copy: CopiedCheckpoint | None = None
    _name: str | None = None

    def __init__(
        self,
        where: str | os.PathLike[str] | StreamingQuery,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(where, Checkpoint):
            known, self._query, self._copy = where._storage_options, where._query, where._copy  # noqa: SLF001 (its own)
            self._name = where._name  # noqa: SLF001 (its own)
            storage_options = known if storage_options is None else storage_options
        if isinstance(where, (str, os.PathLike)):
            found: str | os.PathLike[str] = where
        else:
            found, self._query = _checkpoint_of(where), where
        self.path = location(found)
        if isinstance(found, CopiedCheckpoint):
            self._copy = found
        self._storage_options = storage_options

    @classmethod
    def _found(cls, opened: CheckpointFiles, name: str, storage_options: Mapping[str, str] | None) -> Checkpoint:
        """Return a checkpoint that was found beside others, with the name that tells it from them."""
        found = cls(opened.path, storage_options=storage_options)
        found._opened, found._name = opened, name
        return found

    @cached_property
    def _opened(self) -> CheckpointFiles:
        from streamstate.snapshots.capture.capture import open_checkpoint

        return open_checkpoint(self._where, None, self._storage_options)

    @property
    def _files(self) -> CheckpointFiles:
        """The files as they are now."""
        self._opened.refresh(quick=True)
        return self._opened

    @property
    def _where(self) -> str | CopiedCheckpoint:
        """The path; of a copy, what keeps it up to date."""
        return self._copy or self.path

    @cached_property
    def query_id(self) -> str:
        """The id of the query that owns the checkpoint.

        Raises:
            NotACheckpointError: there is no checkpoint.
            DamagedCheckpointError: its ``metadata`` file is missing or damaged.
        """
        return self._files.query_id

    @property
    def name(self) -> str:
        """The name that a store gives the query by default.

        It is that of the running query; or the folder's, and of a pipeline's flow the table's and the flow's. If a
        store has given it to another query, it begins with the folder above: ``team_b_orders``.
        """
        return self._own_name or next(default_names(self.path))

    @property
    def _own_name(self) -> str | None:
        """The name of the running query, or the one that tells it from the others that were found with it."""
        named = self._query and self._query.name
        return name_from(named) if named else self._name

    @property
    def spark_version(self) -> str | None:
        """The Spark that planned the newest epoch: ``4.2``, ``4.0 or 4.1``, ``before 4.0``; None if it is not known.

        Checkpoints do not record the version. It follows from the settings that Spark has pinned the query to.
        """
        from streamstate.operations.checkup.examine import spark_version

        return spark_version(self._files)

    @property
    def original(self) -> Checkpoint | None:
        """The checkpoint that this one was forked from; None if it is not a fork."""
        from streamstate.snapshots.checkpoint.fork_record import read_fork

        record = read_fork(self._files.files, self.path)
        return None if record is None else Checkpoint(record.parent, storage_options=self._storage_options)

    @classic_spark(unless_local=True)
    def doctor(
        self,
        store: str | Path | None = None,
        *,
        build_query: BuildQuery | None = None,
        every: Every = 1,
        spark: SparkSession | None = None,
    ) -> DoctorReport:
        """Examine the checkpoint, and a store if one is given. Nothing is written.

        A checkpoint on the local disk needs neither Spark nor Java.

        Args:
            store: the store that it is or will be captured into.
            build_query: returns the query's streaming DataFrame. Kafka is then asked, once and for at most a few
                seconds, which epochs' records its topics still keep, and how many records the query has yet to read.
                A query that was started or described in this process with ``store`` needs no code for that.
            every: how often it is to be captured, as for :meth:`follow`.
            spark: the session for another file system; by default the running one, or an embedded one.

        Returns:
            The report, with ``.can_capture``, ``.can_restart`` and ``.findings``: a file, a reason and what to do.

        Raises:
            NotACheckpointError: there is no checkpoint.
            StoreError: the store cannot be reached or read.
            InvalidArgumentError: ``every`` is invalid.
            QueryError: ``build_query`` returns no streaming DataFrame.

        Example:
            >>> report = checkpoint.doctor("store")
            >>> report.can_capture, report.can_restart
            (True, True)
        """
        from streamstate.operations.checkup.examine import examine

        return examine(
            self._where,
            store,
            build_query=build_query,
            every=every,
            storage_options=self._storage_options,
            spark=spark,
        )

    @classic_spark(unless_local=True)
    def epochs(self, build_query: BuildQuery | None = None) -> pd.DataFrame:
        """Return the epochs in the checkpoint's logs, ascending, without Spark.

        Columns: ``epoch``; ``status`` (``committed`` or ``begun``); ``began_at``, ``committed_at``, ``watermark``;
        ``partitions`` of the state; ``offsets`` (JSON, as :meth:`History.epochs` has it); ``sources``, a dict with what
        the epoch read of each source, in words: for Kafka from which offset to which, of each partition; ``records``,
        how many of Kafka's offsets these are; ``lag``, how many records of Kafka it left unread, for the last epochs
        of a query that runs in this process. What Spark has purged is missing. Printed, the frame
        shows ``sources`` whole.

        Args:
            build_query: returns the query's streaming DataFrame. Kafka is then asked, once and for at most a few
                seconds, for the ``lag`` of the newest committed epoch of a query that runs elsewhere, or not at all.

        Raises:
            NotACheckpointError: there is no checkpoint.
            QueryError: ``build_query`` returns no streaming DataFrame, or Kafka does not answer.

        Example:
            >>> checkpoint.epochs()["sources"].iloc[-1]
            {0: '62 files'}
        """
        from streamstate.operations.checkpoint_logs import epoch_frame

        return epoch_frame(self._files, self._query, build_query)

    def operators(self) -> pd.DataFrame:
        """Return the stateful operators with their state tables at the newest committed epoch, without Spark.

        Columns: ``operator`` (its number), ``name`` (Spark's), ``table``, ``holds`` (``one row per key``, …), ``reads``
        (how a capture reads the table) and ``because`` (why it is not read from its changelog).

        Raises:
            NotACheckpointError: there is no checkpoint.
            CheckpointError: the operators' metadata is damaged, or of an unknown version.

        Example:
            >>> checkpoint.operators()[["name", "table"]]
                         name table
            0  stateStoreSave   op0
        """
        from streamstate.operations.checkpoint_logs import operator_frame

        return operator_frame(self._files)

    def capture(
        self,
        store: str | Path,
        name: str | None = None,
        *,
        verify: Verify = "first",
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> CaptureReport:
        """Bring a store up to date with the checkpoint, once.

        The query may be running, here or on another cluster, or be stopped: capture only reads its checkpoint. Every
        epoch committed since the last capture becomes a snapshot. Capturing again, or twice at the same time, changes
        nothing. Most state is decoded without Spark and Java; the report names the tables that Spark read.

        Args:
            store: the store's folder, or an object store's URI; created if it does not exist.
            name: the query's name in the store; by default the name that it already has there, or :attr:`name`.
            verify: which epochs Spark reads too, if a session is running, to compare: the ``"first"`` in the store's
                life and after a change of the state's format or of the version of Spark, a ``"sample"``, ``"all"``, or
                ``"never"``. A table that differs is captured by Spark, and named in the report.
            spark: the session to read with; by default the running one, or an embedded one if Spark is needed. With one
                of Spark Connect, the worker process reads and compares.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: unknown).

        Returns:
            The epochs captured now, the gaps, and the number of change rows written.

        Raises:
            NotACheckpointError: there is no checkpoint.
            NoStateError: the query keeps no state.
            DamagedCheckpointError: a file of the checkpoint is damaged; intact epochs before it are captured.
            InvalidNameError, NameTakenError: ``name`` cannot name a folder and an SQL relation, or is another query's.
            InvalidArgumentError: ``verify`` is not one of these.
            CaptureError: the state cannot be read.
            MissingDependencyError, JavaNotFoundError, SparkConnectError: Spark is needed and cannot be used.
            NotAStoreError, StoreError: ``store`` is at, in or above a checkpoint, or cannot be reached or written.

        Example:
            >>> checkpoint.capture("snapshots").epochs
            (0, 1, 2, ..., 61)
            >>> checkpoint.capture("snapshots").epochs  # nothing new
            ()
        """
        from streamstate.snapshots.capture.capture import capture

        return capture(
            self._where,
            store,
            name,
            fallback=self._own_name,
            verify=verify,
            spark=spark,
            storage_options=self._storage_options,
            progress=progress,
        )

    def follow(
        self,
        store: str | Path,
        name: str | None = None,
        *,
        every: Every = 1,
        verify: Verify = "first",
        spark: SparkSession | None = None,
        on_pass: OnPass | None = None,
    ) -> Capture:
        """Keep a store up to date with the checkpoint, in the background.

        The plan of a ``StreamingQuery`` of this process is recorded too, so that the store can show its result.

        The path may also be the folder of a pipeline's flow, which holds a checkpoint for each of its versions. They
        are captured one after another, under names of their own. The capture goes on with the next one once a full
        refresh has started it. From the path of one version it does the same, beginning with that one.

        Args:
            store: as for :meth:`capture`.
            name: as for :meth:`capture`.
            every: capture once this many epochs wait, or once this much time has passed (a ``timedelta``, or a string
                such as "10s" or "2m"). Each of the epochs becomes a snapshot whatever the interval.
            verify: as for :meth:`capture`.
            spark: as for :meth:`capture`.
            on_pass: called in the background after each pass, with the report of the epochs that it captured or with
                the exception that it failed with. It has to return quickly.

        Returns:
            The capture, with ``.status``, ``.wait(epoch, timeout)`` and ``.stop()``. It ends with a ``StreamingQuery``
            of this process, once all its committed epochs are captured.

        Raises:
            NotACheckpointError, InvalidNameError, NameTakenError, InvalidArgumentError: as :meth:`capture`. Later
                errors show in ``.status`` and are raised by ``.wait``.

        Example:
            >>> capture = checkpoint.follow("snapshots", "delays")
            >>> capture.wait(epoch=61, timeout=60)
            61
            >>> capture.stop()
        """
        from streamstate.snapshots.capture.follow import follow

        return follow(
            self._query or self._where,
            store,
            name,
            every=every,
            verify=verify,
            spark=spark,
            storage_options=self._storage_options,
            on_pass=on_pass,
            checkpoint_of_query=self._copy,
            fallback=self._own_name,
        )

    @classic_spark(unless_local=True)
    def fork(
        self,
        to: str | os.PathLike[str],
        *,
        at: int | None = None,
        edit: EditInput | None = None,
        partitions: int | None = None,
        shared: Sequence[SharedVariable] = (),
        verify: str = "files",
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> Fork:
        """Make a checkpoint with the state of one of this one's epochs.

        The query may be running, here or elsewhere: its checkpoint is only read. On the same local disk, state files
        are hard links, so that a fork takes almost no space. The fork is a query of its own: started with the same code
        and another sink, it runs epoch ``at + 1`` next.

        Args:
            to: where the fork goes; it must not exist yet.
            at: the last epoch that both share; by default the newest committed one.
            edit: changes to the fork's state: SQL (``UPDATE``, ``DELETE``, ``INSERT … VALUES``) over the columns of a
                state table, an :class:`Edit`, or a sequence of these, applied in order. Times without a zone are UTC.
                Supported for all operators but a limit and joins in state format 4, in RocksDB state stores.
            partitions: another number of partitions for the fork's state; only for RocksDB state stores. Operators
                that always work in a single partition (a limit, an aggregation without keys) stay as they are.
            shared: shared variables that the fork begins with and the original does not have.
            verify: how the fork is compared with the original before it is returned. ``"files"``: the same files, with
                the same contents, make up its state. ``"rows"``: Spark's state reader also finds the same rows.
            spark: the session for checkpoints that are not on the local disk, and for what Spark computes; by default
                the running one, or an embedded one.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: unknown).

        Raises:
            NotACheckpointError, NoStateError: there is no checkpoint, or the query keeps no state.
            EpochGoneError: the epoch was never committed, or Spark has purged it; the message names the nearest ones.
            InvalidArgumentError: ``partitions`` is not a positive integer, or an edit is invalid: it matches no row,
                its values do not fit, it sets a key, or it adds a row that exists.
            UnknownTableError, UnknownColumnError: an edit names a state table or a column that does not exist.
            UntrustedCheckpointError: a file of the original names, or links to, something outside the checkpoint.
            UnsupportedStateError: Spark cannot rewrite the state; the message says what it can rewrite.
            ForkError: ``to`` exists already, or the fork turned out to differ from the original.
            NotReplayableError: the log of a file source no longer says which files had been read by then.

        Example:
            >>> fork = checkpoint.fork("checkpoints/delays_12", at=12)
            >>> fork.epoch, fork.original == checkpoint
            (12, True)
            >>> zero = "UPDATE op0 SET max = 0 WHERE carrier = 'HA'"
            >>> checkpoint.fork("checkpoints/zero", at=12, edit=zero).edited_rows
            1
        """
        from streamstate.operations.fork import Fork
        from streamstate.replay.forks.make_fork import fork

        made = fork(
            self.path,
            to,
            at=at,
            partitions=partitions,
            edit=edit,
            shared=shared,
            verify=verify,
            spark=spark,
            progress=progress,
        )
        return Fork(made, storage_options=self._storage_options)

    @classic_spark()
    def step(
        self,
        build_query: BuildQuery,
        *,
        epochs: int = 1,
        until: Until = None,
        original: str | os.PathLike[str] | None = None,
        mode: str = "update",
        store: str | os.PathLike[str] | None = None,
        name: str | None = None,
        new_input: bool = False,
        sink: str = "noop",
        watermark: Watermark | None = None,
        shared: Mapping[str, Any] | None = None,
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> StepReport:
        """Run the next epoch of a fork, or the next few, one at a time, with the original's input.

        Each epoch reads what the original's epoch of the same number read, with the same batch boundaries and
        processing time. Nothing is written to the original or to its sink.

        Args:
            build_query: returns the streaming DataFrame: the original's code, or a changed version to try out.
            epochs: the maximum number of epochs to run.
            until: stop after the epoch in which this becomes true: an SQL condition on the rows that changed
                (``"max > 300"``; ``"op0_left.v > 3"`` names the table if there are several), a key that changed
                (``{"carrier": "HA"}``), or a function of the report so far. With ``"error"``, an error in the query's
                own code is reported instead of raised.
            original: the checkpoint that the fork follows; by default the one it was forked from.
            mode: the output mode.
            store: a store to capture each epoch into.
            name: the fork's name in the store; by default its folder's name.
            new_input: when the original has no further epoch, continue with the input that its sources have now.
            sink: where the fork's results go: ``"noop"`` discards them; ``"FORMAT:PATH"`` writes each epoch to a folder
                ``epoch=N`` of a folder that only this fork writes to.
            watermark: ``"own"``: computed by the fork's epochs, so that changed code may change it; ``"original"``: the
                original's. By default ``"own"`` if the query has one watermark. If it has several, ``"original"``,
                because Spark forgets the parts of a combined watermark when a query restarts.
            shared: values for shared variables, by name: ``{"limit": 45}``. All others are what the original's epochs
                saw. The values become versions of the fork's own branch.
            spark: the session; by default the running one, or an embedded one.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: not known).

        Returns:
            What was run, why it stopped, and what changed. An interrupt leaves the fork at a committed epoch.

        Raises:
            QueryError: the fork's query is running, or the query failed; the fork stays at its last committed epoch.
            NotReplayableError: the epoch's input can no longer be read; the message names the files or offsets.
            EpochGoneError: the original has purged what describes the epoch.
            ForkError: the checkpoint is not a fork and no original was given, or the query or its sink does not fit.
            InvalidArgumentError: an argument is invalid.

        Example:
            >>> fork = checkpoint.fork("checkpoints/again", at=0)
            >>> report = fork.step(build_query, epochs=5, until="max > 300")
            >>> report.stopped, report.epoch
            ('breakpoint', 2)
        """
        from streamstate.replay.stepping.step import step

        return step(
            build_query,
            self.path,
            original=original,
            epochs=epochs,
            until=until,
            mode=mode,
            store=store,
            name=name,
            new_input=new_input,
            spark=spark,
            progress=progress,
            sink=sink,
            watermark=watermark,
            shared=shared,
        )

    @classic_spark()
    def promote(
        self,
        *,
        over: str | os.PathLike[str],
        sink: str | None = None,
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> Promotion:
        """Let a fork take the place of a stopped query, after an epoch that both have committed.

        The fork's state becomes the state of the checkpoint ``over``, which keeps its query id: the sink and the
        captured history continue as the same query's. Kafka's sink, which has each row at least once, may get rows
        again, as after any restart. The old checkpoint is kept beside it, and the fork stays as it
        is. Start the query from ``over`` afterwards, with the fork's code. If the process is killed, the next
        promotion, or the next start by streamstate, completes the switch or reverses it.

        Args:
            over: the checkpoint to replace: the fork's original.
            sink: ``"delta:PATH"``, the Delta table that the query writes to, if the query ended after the sink's commit
                of an epoch and before its own. The fork, stepped to that epoch, then takes over after it.
            spark: the session to use; by default the running one, or an embedded one.
            progress: called with a message and the completed share of the work, from 0 to 1 (None: not known).

        Returns:
            How the states differ, where the old checkpoint is, and the way back.

        Raises:
            NotACheckpointError: one of the two is not a checkpoint, or has no committed epoch.
            QueryError: one of the queries is running, or another process is promoting.
            PromotionError: the fork is ahead or behind, has read other input, or is of another query; an epoch was
                begun and not committed, or ``sink`` is given and does not have it. Nothing was changed.
            InvalidArgumentError: ``sink`` is not a Delta table.

        Example:
            >>> fork = checkpoint.fork("checkpoints/zero", edit="UPDATE op0 SET max = 0 WHERE carrier = 'HA'")
            >>> promotion = fork.promote(over=checkpoint)
            >>> promotion.epoch, promotion.kept
            (61, '.../checkpoints/delays.before-promotion-61')
        """
        from streamstate.operations.promotion import promote

        return promote(
            self.path, over=over, sink=sink, storage_options=self._storage_options, spark=spark, progress=progress
        )

    @classic_spark()
    def promotion(self, *, spark: SparkSession | None = None) -> Promotion:
        """Return the newest promotion over this checkpoint, for example to undo it in another process.

        Args:
            spark: a session, needed if the checkpoint is not on the local disk.

        Raises:
            PromotionError: no fork has taken it over.

        Example:
            >>> checkpoint.fork("checkpoints/same").promote(over=checkpoint).epoch
            61
            >>> checkpoint.promotion().undo()
        """
        from streamstate.operations.promotion import Promotion

        return Promotion.of(self.path, spark)

    @classic_spark()
    def replay(
        self,
        build_query: BuildQuery,
        *,
        to: str | os.PathLike[str] | None = None,
        epochs: range | tuple[int, int] | str,
        store: str | os.PathLike[str] | None = None,
        name: str | None = None,
        conf: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        edit: EditInput | None = None,
        mode: str = "update",
        watermark: Watermark | None = None,
        shared: Mapping[str, Any] | None = None,
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> Replay:
        """Run a range of epochs again with the same input, and compare the two histories epoch by epoch.

        A replay of the same code shows whether the query is deterministic; with changed code, settings or state, it
        shows what would have happened. A replay from epoch 0 starts without any state, so the state may have another
        schema.

        Args:
            build_query: returns the streaming DataFrame, with the code to try out.
            to: where the replay's checkpoint goes; it must not exist yet. By default it goes to a temporary folder that
                lives as long as the result.
            epochs: the epochs to run again: ``"40..60"`` (both ends included; ``"40.."`` and ``"..60"`` are open), a
                range, or the first and the last epoch.
            store: where both are captured; by default a temporary store that lives as long as the result.
            name: the replay's name in the store; by default its folder's name.
            conf: Spark settings for the replay only. Those that a query's first epoch fixes can only be given for a
                replay from epoch 0.
            partitions: another number of partitions for the state; see :meth:`fork`.
            edit: changes to the state before the first epoch; see :meth:`fork`.
            mode: the output mode.
            watermark: see :meth:`step`.
            shared: values for shared variables; see :meth:`step`.
            spark: the session; by default the running one, or an embedded one.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: not known).

        Returns:
            The replay, its steps and the comparison.

        Raises:
            InvalidArgumentError: an argument is invalid.
            EpochGoneError: the original does not have all these epochs.
            QueryError, NotReplayableError, ForkError: as :meth:`step`; epochs that were run stay, and a fork on which
                nothing was run is deleted.

        Example:
            >>> replay = checkpoint.replay(build_fixed, to="checkpoints/fixed", epochs="1..3")
            >>> replay.comparison.first.epoch, replay.comparison.first.key
            (2, {'carrier': 'HA', 'origin': 'JFK'})
        """
        from streamstate.replay.replay import replay

        return replay(
            build_query,
            self.path,
            to,
            epochs=epochs,
            store=store,
            name=name,
            conf=conf,
            partitions=partitions,
            edit=edit,
            mode=mode,
            watermark=watermark,
            shared=shared,
            spark=spark,
            progress=progress,
        )

    @classic_spark()
    def debug(
        self,
        build_query: BuildQuery,
        *,
        at: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        store: str | os.PathLike[str] | None = None,
        name: str | None = None,
        mode: str = "update",
        spark: SparkSession | None = None,
    ) -> DebugSession:
        """Start a session at an epoch, to step from there, forward and back.

        Args:
            build_query: returns the streaming DataFrame: the query's code, or a changed version to try out.
            at: the epoch to begin at; by default the oldest one that can be forked.
            directory: where the session keeps its forks; by default a temporary folder that lives as long as it.
            store: where the forks are captured; by default a folder in ``directory``.
            name: the query's name in the store; by default the name that it already has there, or its folder's.
            mode: the output mode.
            spark: the session of Spark; by default the running one, or an embedded one.

        Raises:
            NotACheckpointError, EpochGoneError, ForkError: as :meth:`fork`.

        Example:
            >>> with checkpoint.debug(build_query, at=12) as session:
            ...     session.step().epoch
            13
        """
        from streamstate.replay.debugging.session import debug

        return debug(build_query, self.path, at=at, directory=directory, store=store, name=name, mode=mode, spark=spark)

    @classic_spark()
    def audit(
        self,
        build_query: BuildQuery,
        *,
        epochs: range | tuple[int, int] | str | None = None,
        replays: int = 2,
        partitions: int | None = None,
        store: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        mode: str = "update",
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> Audit:
        """Check whether the query is deterministic: run its epochs again, and compare each state with the original.

        Each replay is a separate fork that starts with the state before the first epoch, and reads what each epoch
        read. One more replay runs with another number of partitions. The checkpoint is only read.

        Args:
            build_query: returns the streaming DataFrame, with the code that the query ran.
            epochs: the epochs to run again, as for :meth:`replay`; by default all that the checkpoint still has.
            replays: the number of replays with the query's number of partitions, at least 1. With two, a random
                difference can be distinguished from a repeatable one.
            partitions: the number of partitions of the additional replay; by default one more than the query's.
            store: a store that has the query, or into which it is captured; by default a temporary one.
            directory: a folder to keep the replays' checkpoints and histories in; by default they are deleted.
            mode: the output mode.
            spark: the session; by default the running one, or an embedded one.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: not known).

        Returns:
            The result, with ``.clean`` and ``.first`` (epoch, table, key, column, both values, likely causes).

        Raises:
            InvalidArgumentError: an argument is invalid.
            NotACheckpointError, NoStateError: there is no checkpoint, or it holds no state.
            EpochGoneError: the checkpoint does not have all these epochs, or the state before the first.
            UnknownEpochError: the store has a gap among them.
            NotReplayableError: a source cannot be read again.
            QueryError: the query fails in a replay.

        Example:
            >>> audit = checkpoint.audit(build_query, epochs="40..41", replays=1)
            >>> audit.clean, audit.first
            (True, None)
        """
        from streamstate.replay.audit import audit

        return audit(
            build_query,
            self.path,
            epochs=epochs,
            replays=replays,
            partitions=partitions,
            store=store,
            directory=directory,
            mode=mode,
            spark=spark,
            progress=progress,
        )

    @classic_spark()
    def check(
        self,
        build_query: BuildQuery | DataFrame,
        *,
        mode: str = "update",
        store: Store | str | Path | None = None,
        replay: int = 0,
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> CheckReport:
        """Check before a deploy whether code starts from the checkpoint, and whether the state then means the same.

        Spark itself plans the code's next epoch, over a copy of the schemas, to show what it would refuse. What it
        accepts silently is compared too: names and order of the state's columns, sources, settings and, with a store,
        every expression that the state depends on. The checkpoint is only read, and its query may be running.

        Args:
            build_query: returns the streaming DataFrame of the new code; or the DataFrame itself, not started.
            mode: the output mode that the code will start with.
            store: the store that the query is captured into, for the plan recorded there.
            replay: how many of the newest epochs to run again in a temporary fork with the code, comparing the states.
            spark: the session; by default the running one, or an embedded one.
            progress: called with a message and the completed share of the work, from 0 to 1 (None: not known).

        Returns:
            The findings; true if the code starts and means the same.

        Raises:
            NotACheckpointError: there is no checkpoint.
            CheckpointError: it has no committed epoch.
            UnknownQueryError: the store does not have the query.
            EpochGoneError: there is no epoch to run again from.
            NotReplayableError: the input of an epoch to run again is gone.
            InvalidArgumentError: an argument is invalid.

        Example:
            >>> checkpoint.check(build_query, store="store").ok
            True
        """
        from streamstate.operations.code_check import check

        return check(build_query, self.path, mode=mode, store=store, replay=replay, spark=spark, progress=progress)

    @classic_spark()
    def propose_mapping(
        self,
        build_query: BuildQuery,
        *,
        mapping: Mapping[str, TableMapping] | None = None,
        mode: str = "update",
        store: Store | str | Path | None = None,
        rows: int = 5,
        whole: bool = False,
    ) -> ProposedMapping:
        """Propose what :meth:`migrate` would do for each state table of the changed query. Nothing is written.

        A notebook shows the old and the new columns side by side, the SQL, and a few rows before and after. Unless
        ``whole`` is set, at most 10,000 rows of each old table are read.

        Args:
            build_query: as for :meth:`migrate`.
            mapping: as for :meth:`migrate`. It is shown in place of a proposal, with its problems.
            mode: as for :meth:`migrate`.
            store: as for :meth:`migrate`.
            rows: how many new rows to show, 0 to read no state at all.
            whole: read the whole state: count its rows, look for duplicate keys in all of it, and show all old rows
                that become one new row.

        Returns:
            A proposal for each table, in a sequence. If the mapping is not obvious, its ``problem`` says why.

        Raises:
            NotACheckpointError: there is no checkpoint.
            UnknownQueryError: the store does not have the query.
            QueryError: Spark cannot run the changed query.
            UnknownTableError: the mapping names a state table that the changed query does not have.

        Example:
            >>> ss.Checkpoint("checkpoints/by_route").propose_mapping(build_by_carrier)[0].sql
            'SELECT carrier, sum(count) AS count FROM op0 GROUP BY carrier'
        """
        from streamstate.operations.new_checkpoint.propose_mapping import propose_mapping

        return propose_mapping(self.path, build_query, mapping, mode=mode, store=store, rows=rows, whole=whole)

    @classic_spark()
    def migrate(
        self,
        build_query: BuildQuery,
        *,
        to: str | os.PathLike[str],
        mapping: Mapping[str, TableMapping] | None = None,
        mode: str = "update",
        store: Store | str | Path | None = None,
        sources: Sequence[int | None] | None = None,
        progress: ProgressCallback | None = None,
    ) -> WrittenCheckpoint:
        """Make a checkpoint for a changed query from the state of the stopped one. This checkpoint is only read.

        The new checkpoint has this one's offsets and watermark: the changed query reads next what this one would have
        read next. Its state is what the mapping makes of the old state. An obvious mapping can be left out: a column
        that is added, dropped, renamed or widened, a key that loses a column, or no change at all but of the state
        store, the number of partitions, or the version of Spark. Spark writes the state, reads it back, and compares
        every row. Then it runs an epoch of the changed query from a copy of the checkpoint, without a sink.

        Args:
            build_query: returns the streaming DataFrame of the changed query. Start it with ``to`` as its checkpoint.
            to: where the new checkpoint goes; it must not exist yet. It appears there once it is complete.
            mapping: for each new state table, SQL over the old ones (``{"op0": "SELECT carrier, sum(count) AS count
                FROM op0 GROUP BY carrier"}``), or a function of the old ones' frames by name. For tables that are left
                out, :meth:`propose_mapping` shows what is done.
            mode: the changed query's output mode: "append", "update" or "complete".
            store: the store that the query is captured into. Its recorded plan says which aggregate each column belongs
                to, and what it was computed from.
            sources: if their number or order changed: for each source of the changed query, the number of the old one
                that it continues, counted from 0; None for a new source. Named sources continue by name.
            progress: called with a message and the completed share of the work, from 0 to 1.

        Raises:
            NotACheckpointError: there is no checkpoint.
            UnknownQueryError: the store does not have the query.
            QueryError: the query is running, or Spark cannot run the changed query.
            CheckpointError: the last epoch was begun and not committed.
            StateWriteError: ``to`` exists already, the mapping is not obvious, the rows are not those of the new state,
                or what Spark reads back differs.
            InvalidArgumentError: ``sources`` does not fit the queries.
            InvalidSQLError: the SQL of the mapping is invalid.
            UnsupportedStateError: Spark cannot write this kind of state.

        Example:
            >>> by_carrier = {"op0": "SELECT carrier, sum(count) AS count FROM op0 GROUP BY carrier"}
            >>> by_route = ss.Checkpoint("checkpoints/by_route")
            >>> by_route.migrate(build_by_carrier, to="checkpoints/by_carrier", mapping=by_carrier).rows
            {'op0': 4}
        """
        from streamstate.operations.new_checkpoint.migrate import migrate

        return migrate(
            self.path, build_query, os.fspath(to), mapping, mode=mode, store=store, sources=sources, progress=progress
        )

    @classic_spark()
    def rescale(
        self,
        partitions: int,
        *,
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> RescaleReport:
        """Repartition the state of the stopped query, into more or fewer partitions.

        Spark rewrites the state as one more epoch, which reads no input. Every state table is then compared with its
        previous contents, key by key. If anything fails, or you interrupt the call, the checkpoint is restored byte for
        byte; if the process is killed, the next rescale (or the next start in a notebook) restores it.

        Args:
            partitions: the new number of partitions, at least 1.
            spark: the session to use; by default the running one, or an embedded one.
            progress: called with a message and the completed share of the work, from 0 to 1 (None: not known).

        Returns:
            The new epoch, the rows of each table, their distribution before and after, and the time taken.

        Raises:
            NotACheckpointError: there is no checkpoint.
            QueryError: the query is running.
            CheckpointError: the query's last epoch was not committed.
            NoStateError: the query keeps no state.
            UnsupportedStateError: Spark cannot repartition this kind of state.
            InvalidArgumentError: ``partitions`` is invalid, or is the current number.
            RescaleError: Spark failed, or the new state differs; the checkpoint is unchanged.

        Example:
            >>> checkpoint.rescale(4).partitions
            (2, 4)
        """
        from streamstate.operations.rescaling.rescale import rescale

        return rescale(self.path, partitions, spark=spark, progress=progress)

    def rescale_advice(
        self, store: Store | str | Path, *, cores: int | None = None, rows_per_partition: int = 1_000_000
    ) -> RescaleAdvice:
        """Suggest how many partitions the query's state should have.

        Args:
            store: the store that the query is captured into.
            cores: how many tasks can run at once; by default those of the running Spark session, or of this machine.
            rows_per_partition: how many rows of state one task should hold at most.

        Returns:
            The suggested number, with reasons. The timings of a ``StreamingQuery`` of this process count too.

        Raises:
            UnknownQueryError: the store does not have the query.
            UnknownEpochError: no epoch is captured yet.
            InvalidArgumentError: ``cores`` or ``rows_per_partition`` is not an integer of at least 1.

        Example:
            >>> checkpoint.rescale_advice("store", cores=8).suggested
            2
        """
        from streamstate.operations.rescaling.advice import rescale_advice
        from streamstate.operations.stopped_query import recorded_history

        history = recorded_history(store, self.query_id, self._storage_options)
        return rescale_advice(history, query=self._query, cores=cores, rows_per_partition=rows_per_partition)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; a running query and open files belong to this one."""
        return {name: value for name, value in vars(self).items() if name not in ("_opened", "_query", "_copy")}

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        origin = origin_of(self.path)
        return f"<{type(self).__name__} {self.path}{'' if origin is None else f', a copy of {origin}'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


def _checkpoint_of(query: StreamingQuery) -> str | CopiedCheckpoint:
    """Return the checkpoint location of a query, of this process or of a Spark Connect server."""
    from streamstate.snapshots.capture.reached_checkpoint import checkpoint_of

    if not hasattr(query, "awaitTermination"):
        raise InvalidArgumentError(
            f"Invalid checkpoint {query!r}: expected a path or URI, a running StreamingQuery, or another Checkpoint."
        )
    return checkpoint_of(query)
