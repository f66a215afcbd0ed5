"""All captured epochs of one query."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, choices, worded
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.epoch_range import epoch_list
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call
from streamstate.snapshots.checkpoint.bindings import binding_in_manifest
from streamstate.snapshots.checkpoint.epoch_reads import reads_in_manifest
from streamstate.snapshots.spark.worker.forwarding import classic_spark
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.snapshots.store.delta.maintenance import GRACE
from streamstate.snapshots.store.layout import MANIFEST
from streamstate.snapshots.store.registry import ForkPoint
from streamstate.state_inspect.advice import Advice
from streamstate.state_inspect.advice.advise import advice_on
from streamstate.state_inspect.analytics.growth import StaleKeys, growth, since_epoch, watermark_lag
from streamstate.state_inspect.analytics.skew import busy_keys
from streamstate.state_inspect.analytics.watermark_lags import WatermarkLags
from streamstate.state_inspect.branches.ancestors import same_branch
from streamstate.state_inspect.branches.branch_diff import branch_diff
from streamstate.state_inspect.branches.compared_epochs import compared_epochs
from streamstate.state_inspect.branches.comparison import Comparison
from streamstate.state_inspect.branches.fingerprints import fingerprint_frame
from streamstate.state_inspect.captured_query import CapturedQuery, QueryHistory
from streamstate.state_inspect.conditions.condition import (
    condition_in_parts,
    condition_on,
    first_epoch_met,
    spans,
    spans_per_key,
    table_of_condition,
)
from streamstate.state_inspect.conditions.file_search import first_epoch_in_files
from streamstate.state_inspect.conditions.watch import Watch, WatchEvent
from streamstate.state_inspect.control import WhyPolicy, decisions, policies, why_policy
from streamstate.state_inspect.cuts.source_positions import epoch_at_offset
from streamstate.state_inspect.differences.diff import Diff
from streamstate.state_inspect.differences.diff_sql import DiffSQL
from streamstate.state_inspect.differences.key_history import key_history
from streamstate.state_inspect.epoch_names import FromLive, aware, epoch_named
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.inputs.late import Late, dropped
from streamstate.state_inspect.inputs.late_counts import late_counts
from streamstate.state_inspect.inputs.why import Why, explained
from streamstate.state_inspect.keys.table_key import lists_options
from streamstate.state_inspect.load.load import Load
from streamstate.state_inspect.results.results import (
    RESULT,
    result_plan,
    results_shown,
    shown_columns,
    state_of,
    table_of_result,
    with_results,
)
from streamstate.state_inspect.snapshot import Snapshot, choose_table, live_snapshot, snapshot_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.sharing.contract import Contract
    from streamstate.snapshots.store.export import Epochs, ExportReport
    from streamstate.snapshots.store.retention.dropping import RetentionReport
    from streamstate.snapshots.store.retention.tidying import CompactedTable
    from streamstate.state_inspect.inputs.inputs import InputRows


class History:
    """One query's snapshots; ``store["delays"]`` returns it.

    Every call first checks for new epochs.
    """

    def __init__(self, recorded: CapturedQuery) -> None:
        self._recorded = recorded

    @property
    def name(self) -> str:
        """The query's name."""
        return self._recorded.name

    @property
    def recorded(self) -> CapturedQuery:
        """What the store holds of the query, for parts of streamstate that read it directly."""
        return self._recorded

    def epochs(self) -> pd.DataFrame:
        """The manifest: one row per epoch, captured or a gap, ascending.

        Columns: ``epoch``, ``status`` (``captured`` or ``gap``), ``run_id``, ``committed_at``, ``captured_at``,
        ``offsets`` (a JSON array with one element per source; an object by name if the sources have names),
        ``watermark``, ``input_rows``, then dicts by state table: ``rows`` (live rows; None where neither capture has
        counted them nor the table has been read, see :meth:`growth`), ``changes`` (rows of the changelog),
        ``keyframes`` (the epoch that reading starts from); then ``sources`` (JSON of the same form as ``offsets``: what
        is known of each source in addition to its offset, see docs/guides/cuts.md); ``began_at``, when Spark planned
        the epoch's batch; ``time_source``, where ``committed_at`` comes from: ``commit`` (when the commit was written)
        or ``offsets`` (when the batch was planned, because the checkpoint is a copy whose files have the times of
        copying); ``mode``, ``real-time`` if Spark ran the epoch in its real-time mode, where an epoch is an interval
        between two checkpoints, otherwise None; ``next_watermark``, the watermark that the next epoch begins with
        (1970-01-01: there is none); ``load``, JSON with the epoch's load (see :meth:`load`). Last, ``read`` and
        ``records``: what the epoch read, as ``sources`` and ``records`` of :meth:`Checkpoint.epochs`.
        """
        entries = self._recorded.with_counts(self._recorded.entries())
        per_table = {"rows": "rows", "changes": "changes", "keyframes": "keyframe"}
        plain = pa.schema([field for field in MANIFEST if field.name not in per_table])
        rows = [{name: getattr(entry, name) for name in plain.names} for entry in entries]
        frame = to_pandas(pa.Table.from_pylist(rows, schema=plain))
        for column, attribute in per_table.items():
            facts = [{table: getattr(fact, attribute) for table, fact in entry.tables.items()} for entry in entries]
            frame[column] = pd.Series(facts, dtype=object)
        reads = list(reads_in_manifest(entries))
        names: list[str] = MANIFEST.names
        return frame[names].assign(
            read=pd.Series([read.words for read in reads], dtype=object),
            records=pd.Series([read.records for read in reads], dtype="Int64"),
        )

    def bindings(self) -> pd.DataFrame:
        """Which version of each shared variable each captured epoch saw.

        Returns:
            One row per epoch and variable, ascending. The columns are ``epoch``, ``variable``, ``version`` and
            ``branch`` (the query id of the fork whose own version it is; empty for others). A version is an epoch of
            ``store["shared.<name>"]``. Variables that operators only add to, or read outside of the epoch, are left
            out.

        Example:
            >>> store["delays"].bindings()
        """
        rows = [
            (entry.epoch, name, version.number, version.branch)
            for entry in self._recorded.entries()
            if entry.captured and (binding := binding_in_manifest(entry.offsets)) is not None
            for name, version in binding.versions.items()
            if version is not None and version.number is not None
        ]
        return pd.DataFrame(rows, columns=pd.Index(["epoch", "variable", "version", "branch"]))

    def tables(self) -> list[str]:
        """Names of all state tables that any epoch has."""
        return self._recorded.tables()

    def captured(self) -> list[int]:
        """Numbers of the captured epochs, ascending."""
        return self._recorded.captured()

    def versions(self) -> list[str]:
        """Names of the histories of a pipeline's flow, the oldest version first. A full refresh starts the next one.

        A query that is not a flow has one version, itself.

        Example:
            >>> history.versions()
            ['delays']
        """
        return self._recorded.lineage.versions(self.name)

    def forks(self) -> list[ForkPoint]:
        """The forks of this query and, if it is a fork itself, its own fork point; each with the last shared epoch.

        Example:
            >>> history.forks()
            [ForkPoint(name='what_if', parent='delays', epoch=40)]
        """
        return self._recorded.lineage.forks(self.name)

    def live(self) -> Snapshot:
        """The snapshot of the newest captured epoch.

        Raises:
            UnknownEpochError: no epoch is captured yet.
        """
        return live_snapshot(self)

    @consistent_read()
    def at(self, epoch: int | str | None = None, *, timestamp: datetime | None = None, offset: Any = None) -> Snapshot:
        """The snapshot at an epoch, at a point in time, or at a source offset.

        A fork shares its first epochs with the query that it was forked from. A snapshot of such an epoch belongs to
        that query (``snapshot.query``). Times and offsets are looked up in the query's own epochs.

        Args:
            epoch: the epoch's number, or ``"live - 10"`` for ten numbers before the newest captured epoch.
            timestamp: an aware datetime, for the epoch that was the newest at that time.
            offset: a source offset as ``snapshot.offsets`` shows it (a list if there are several sources, with None for
                one that does not matter; a dict by name if they have names), such as ``{"flights": {0: 812}}`` for
                Kafka, ``{"files": 100}`` for a source that reads files, or ``{"version": 17}`` for one that reads a
                Delta table: for the newest epoch that reflects no more than that. Before a partition or a topic is
                there, nothing of it is read.

        Raises:
            UnknownEpochError: the epoch is not captured; the message names the nearest captured epochs.
            NaiveTimestampError: the timestamp has no time zone.
            InvalidArgumentError: not exactly one argument is given, the epoch is invalid, or the offset cannot be
                compared with the query's.

        Example:
            >>> history.at(12).table().head(2)
              carrier origin  count    sum  count_2   max
            0      AA    LGA     15  470.0       15  60.0
            1      DL    JFK     16  440.0       16  57.0
            >>> history.at("live - 10").epoch
            51
            >>> history.at(offset={"files": 13}).epoch
            12
        """
        if sum(argument is not None for argument in (epoch, timestamp, offset)) != 1:
            raise InvalidArgumentError("Expected exactly one of: at(12), at(timestamp=…), at(offset=…).")
        if offset is not None:
            return Snapshot(self, epoch_at_offset(self._recorded.entries(), self.name, offset))
        if timestamp is not None:
            return Snapshot(self, self._recorded.entry_at_time(aware(timestamp)))
        named = epoch_named(epoch) if isinstance(epoch, str) else epoch
        if isinstance(named, FromLive):
            return snapshot_at(self, named.epoch(self.live().epoch))
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidArgumentError(
                f"Invalid epoch {epoch!r}: expected an integer such as 12, or live-10 for the tenth epoch before the"
                f" newest{worded('; for a point in time use at(timestamp=…)', line='')}."
            )
        return snapshot_at(self, epoch)

    @consistent_read()
    def diff(
        self, a: int | str | Snapshot, b: int | str | Snapshot, table: str | None = None, *, result: bool = False
    ) -> Diff:
        """What differs in a state table, or in the query's result, from epoch ``a`` to epoch ``b``.

        Args:
            a: the epoch to compare from: a number, or ``"live - 10"``; or a snapshot of this query, of another query
                of the same store such as a fork, or of another store.
            b: the epoch to compare to, in the same ways.
            table: may be left out if there is only one; ``"result"`` is the same as ``result=True``.
            result: compare the rows that the query returns, as :meth:`Snapshot.result` does, of two epochs of one
                query.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: as :meth:`at` and :meth:`Snapshot.table`; also
                if the snapshots belong to branches with different tables, or with different key columns.
            NoResultError: as :meth:`Snapshot.result`; also if the plan changed between the two epochs.

        Example:
            >>> history.diff(10, 12)
            <Diff of op0 from epoch 10 to 12: 0 added, 0 removed, 5 changed>
            >>> history.diff(45, store["what_if"].at(45))
            <Diff of op0 from delays at epoch 45 to what_if at epoch 45: 0 added, 0 removed, 1 changed>
        """
        table, named = state_of(table)
        result = result or named
        old, new = (side if isinstance(side, Snapshot) else self.at(side) for side in (a, b))
        if not same_branch(old.history, new.history):
            if result:
                raise InvalidArgumentError("result=True compares two epochs of one query; these are of two branches.")
            return branch_diff(old, new, table, history=self)
        history: QueryHistory = self if same_branch(old.history, self) else old.history
        query = history.recorded
        tables = list(dict.fromkeys(name for snapshot in (old, new) for name in snapshot.tables()))
        epochs = [old.epoch, new.epoch]
        chosen = table_of_result(query, table, tables, new.epoch) if result else choose_table(table, tables, query.name)
        intervals = query.interval_tables(chosen, old.epoch, new.epoch)
        for snapshot in (old, new):
            query.check_kept(snapshot.epoch)
        if result:
            intervals = with_results(intervals, result_plan(query, chosen, epochs), chosen, new.epoch)
        sql = DiffSQL.between(intervals, old.epoch, new.epoch)
        title = (RESULT if table is None else f"{chosen}.{RESULT}") if result else None
        return Diff(query.index, sql, chosen, old.epoch, new.epoch, causes=query.causes(), history=history, title=title)

    @consistent_read()
    def key_history(
        self, table: str | None = None, *, ancestors: Any = False, result: Any = False, **key: Any
    ) -> pd.DataFrame:
        """Every change of one key, or of all keys with some values, ascending by epoch.

        Columns: ``epoch``, ``change`` (``put``; ``delete``, whose values are missing; ``keyframe`` if the changelog
        starts again after a gap, so that the value may be older), ``committed_at``, then the key columns that were not
        given, then the value columns, then ``cause`` (``input``, ``watermark``, ``timer``, ``ttl``; ``unknown`` if it
        cannot be known).

        Both sides of a join share a key, as do the variables of a ``transformWithState`` and its timers. If the query
        has several tables and none is named, the changes in all tables whose key has the given columns are returned.
        ``table`` is then the second column; if two tables use a column name for different types, the second column is
        named after its table, as in ``op0_seen.value``.

        Args:
            table: a state table, or ``result``; by default all tables. With ``ancestors`` or ``result``, it may be left
                out if there is only one.
            ancestors: for a fork, True to begin with the key's history in the queries that it was forked from. A last
                column, ``query``, then names each row's query. If the fork's state was edited, a row of the fork at the
                last shared epoch shows the new value.
            result: True for the columns that the query returns, as :meth:`Snapshot.result` computes them. They are
                missing while the row is not in the result.
            **key: values for key columns: for all of them, or for some, such as the user of all sessions; or
                ``key={…}``, for column names such as ``table`` or ``ancestors``. A window can be given by its start.

        Raises:
            UnknownTableError, UnknownColumnError, InvalidArgumentError: an argument is invalid. If no table has all of
                the columns, the message lists each table's key columns.
            NoResultError: as :meth:`Snapshot.result`.

        Example:
            >>> history.key_history(carrier="HA", origin="JFK")[["epoch", "change", "max", "cause"]].head(3)
               epoch change     max  cause
            0      0    put    11.0  input
            1      1    put    11.0  input
            2      2    put  1301.0  input
            >>> history.key_history(carrier="UA")  # of several keys
            >>> store["what_if"].key_history(carrier="UA", origin="EWR", ancestors=True)
        """
        return to_pandas(self.key_history_arrow(table, ancestors=ancestors, result=result, **key))

    @lists_options
    @consistent_read()
    def key_history_arrow(
        self, table: str | None = None, *, ancestors: Any = False, result: Any = False, **key: Any
    ) -> pa.Table:
        """As :meth:`key_history`, as an Arrow table."""
        table, named = state_of(table)
        if (result or named) and ancestors:
            raise InvalidArgumentError("result=True shows the query's own epochs; leave ancestors out.")
        return key_history(self._recorded, table, key, ancestors=bool(ancestors), result=bool(result or named))

    @consistent_read()
    def growth(self, table: str | None = None) -> pd.DataFrame:
        """How the state grew, epoch by epoch. Tables that capture did not count are read, and counted exactly.

        Columns: ``epoch``, ``table``, ``committed_at``, ``rows``, ``delta`` (the difference from the previous captured
        epoch; missing if that is not known), ``changes`` (changelog rows that the epoch added).

        Args:
            table: one state table; by default all of them.

        Raises:
            UnknownTableError: the table does not exist.

        Example:
            >>> store["sessions"].growth()[["epoch", "rows", "delta", "changes"]].tail(2)
                epoch  rows  delta  changes
            12     12    42      3        3
            13     13    45      3        3
        """
        chosen = None if table is None else choose_table(table, self.tables(), self.name)
        entries = self._recorded.entries()
        tables = self.tables() if chosen is None else [chosen]
        counts = {name: self._recorded.counted_rows(entries, name) for name in tables}
        return growth([entry.counted(counts) for entry in entries], chosen)

    def watermark_lag(self) -> pd.DataFrame:
        """How far each epoch's watermark lags behind its commit, from the manifest alone.

        Columns: ``epoch``, ``committed_at``, ``watermark``, ``lag`` (between the two), ``input_rows``,
        ``since_previous`` (time since the commit of the previous epoch), ``newest_event`` (the time of the newest event
        up to the epoch, where the query's plan is known and has one watermark). Unknown values are missing.

        Example:
            >>> history.watermark_lag().nlargest(3, "lag")
        """
        return watermark_lag(self._recorded.entries(), WatermarkLags(self._recorded))

    @consistent_read()
    def load(self, *, last: int | None = None) -> Load:
        """The load of each epoch: its duration, rows, backlog, state and tasks, and forecasts.

        Spark reports most of it, and capture keeps it if it runs in the query's process. Of a query that runs elsewhere
        the checkpoint tells some of it; :attr:`Load.unknown` says what is missing.

        Args:
            last: the number of the newest epochs to look at; by default all.

        Raises:
            InvalidArgumentError: ``last`` is not an integer above zero.

        Example:
            >>> load = store["delays"].load()
            >>> slow = load.to_pandas().nlargest(3, "seconds")
            >>> print(load.forecast(state=1_000_000))
            At epoch 61 the state is 5 rows, and never reaches 1,000,000 rows at this trend.
        """
        return Load.of(self._recorded, None if last is None else whole_number(last, "last"))

    @consistent_read()
    def advise(self) -> list[Advice]:
        """Return advice on the query: state that will grow, a stuck watermark, rows that wait, each with its reason.

        Each :class:`Advice` is a sentence with its evidence from the captured epochs. There is none where nothing is
        wrong. What the query's plan says is known once it has been started or described
        (:meth:`streamstate.History.describe`); without it, there is advice as far as the checkpoint and the store
        tell. State
        tables that are concerned are read.

        Example:
            >>> for advice in store["payments"].advise():
            ...     print(advice)
            op0 can never shrink, because dropDuplicates remembers every key (user, scheduled), and the query has no
                watermark.
                It grew from 6 rows at epoch 0 to 84 at epoch 13, and lost none.
        """
        return advice_on(self._recorded, lambda _: True)

    @consistent_read()
    def stale_keys(self, table: str | None = None, *, since: int | None = None, epochs: int | None = None) -> StaleKeys:
        """The stale keys: keys of the newest state that have not changed since an epoch. The state may be leaking.

        Args:
            table: may be left out if there is only one.
            since: the epoch since which a key has not changed.
            epochs: instead, how many captured epochs before the newest that is.

        Raises:
            UnknownEpochError: no epoch is captured yet.
            UnknownTableError: the table does not exist.
            InvalidArgumentError: an argument is invalid.

        Example:
            >>> stale = store["sessions"].stale_keys(epochs=3)
            >>> stale.count
            35
            >>> stale.page(limit=5)
        """
        self._recorded.live_entry()  # raises if no epoch is captured
        chosen = choose_table(table, self.tables(), self.name)
        entries = list(self._recorded.known_entries)
        long_ago = since_epoch(entries, since, epochs)
        recorded = self._recorded
        first = -1 if recorded.is_soon_read(chosen, -1) else recorded.live_entry().epoch
        newest = recorded.interval_table(chosen, first)
        return StaleKeys(recorded.index, newest, recorded.parts(chosen), entries, name=chosen, since=long_ago)

    @consistent_read()
    def heavy_keys(self, table: str | None = None, *, since: int | None = None, n: int = 10) -> pd.DataFrame:
        """The keys that were written most often. For the keys with the most rows see :meth:`StateTable.heavy_keys`.

        Columns: the key columns, ``_writes`` (epochs in which the key was written; removals do not count), and
        ``_last_written`` (the epoch).

        Args:
            table: may be left out if there is only one.
            since: count writes after this epoch; by default all captured epochs.
            n: the number of keys to return.

        Raises:
            UnknownEpochError: no epoch is captured yet.
            UnknownTableError: the table does not exist.
            InvalidArgumentError: an argument is invalid.

        Example:
            >>> history.heavy_keys(since=50, n=2)
              carrier origin  _writes  _last_written
            0      AA    LGA       11             61
            1      DL    JFK       11             61
        """
        after = -1 if since is None else whole_number(since, "since", least=0)
        self._recorded.live_entry()  # raises if no epoch is captured
        chosen = choose_table(table, self.tables(), self.name)
        names = self._recorded.columns(chosen).key_columns
        return to_pandas(busy_keys(self._recorded.parts(chosen, after), self._recorded.index, names, n))

    @lists_options
    @long_call("Nothing was changed.")
    @consistent_read()
    def first(self, predicate: str, /, *, table: str | None = None, **key: Any) -> int | None:
        """The first captured epoch at which any row, or any row of a key, met a condition; None if none ever did.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            table: may be left out if there is only one.
            **key: values for key columns, to consider only their rows; or ``key={…}``, for any column name.

        Raises:
            InvalidSQLError: the condition does not parse, or is about more than one row.
            UnknownTableError, UnknownColumnError, InvalidArgumentError: another argument is invalid.

        Example:
            >>> history.first("average_delay > 100", carrier="HA")
            2
        """
        self._recorded.live_entry()  # raises if no epoch is captured
        chosen = table_of_condition(self._recorded, predicate, table, key)
        if not key and not state_of(chosen)[1] and not self._recorded.is_soon_read(chosen, -1):
            return first_epoch_in_files(self._recorded, chosen, predicate)
        condition = condition_on(self._recorded, predicate, chosen, key)
        return first_epoch_met(condition, self._recorded.index, self._recorded.known_entries)

    @lists_options
    @long_call("Nothing was changed.")
    @consistent_read()
    def when(self, predicate: str, /, *, table: str | None = None, per_key: bool = False, **key: Any) -> pd.DataFrame:
        """The spans of epochs in which any row, or each key, met a condition.

        Columns: ``held_from``; ``held_until``, the epoch at which the condition was no longer met, missing if it still
        is; ``committed_at``, when ``held_from`` was committed; ``keys``, the most rows that met it at once. A gap ends
        a span, because the state in it is not known: ``held_until`` is then the first epoch of the gap.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            table: may be left out if there is only one.
            per_key: return the spans of each key, with the key columns first and without ``keys``.
            **key: values for key columns, to consider only their rows; or ``key={…}``, for any column name.

        Raises:
            InvalidSQLError: the condition does not parse, or is about more than one row.
            UnknownTableError, UnknownColumnError, InvalidArgumentError: another argument is invalid.

        Example:
            >>> history.when("average_delay > 100", per_key=True)
              carrier origin  held_from  held_until  ...
            0      HA    JFK          2          13  ...
        """
        self._recorded.live_entry()  # raises if no epoch is captured
        chosen = table_of_condition(self._recorded, predicate, table, key)
        parts, index = condition_in_parts(self._recorded, predicate, chosen, key), self._recorded.index
        if per_key:
            names = shown_columns(self._recorded, chosen).key_columns
            return spans_per_key(parts, index, self._recorded.known_entries, names)
        return spans(parts, index, self._recorded.known_entries)

    @lists_options
    def watch(
        self,
        predicate: str,
        callback: Callable[[WatchEvent], object],
        /,
        *,
        table: str | None = None,
        interval: float = 1.0,
        **key: Any,
    ) -> Watch:
        """Call a function for each new epoch at which rows begin to meet a condition, from the live epoch on.

        A thread checks the store; it does not need Spark. It ends with :meth:`Watch.stop`, at the end of the ``with``
        block, or at the first error, which the handle then holds.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            callback: takes a :class:`WatchEvent`; runs in the thread.
            table: may be left out if there is only one; by default the result, if it has the condition's columns.
            interval: seconds between checks.
            **key: values for key columns, to watch only their rows; or ``key={…}``, for any column name.

        Raises:
            InvalidSQLError, UnknownTableError, UnknownColumnError, UnknownEpochError, InvalidArgumentError: as
                :meth:`when` and :meth:`live`.
            NoResultError: as :meth:`Snapshot.result`.

        Example:
            >>> with history.watch("average_delay > 60", lambda event: seen.append(event.epoch)):
            ...     ss.Checkpoint("checkpoints/delays").capture("store")
        """
        self._recorded.live_entry()  # raises if no epoch is captured
        chosen = table_of_condition(self._recorded, predicate, table, key)
        return Watch(self, predicate, callback, table=chosen, interval=interval, key=key)

    @classic_spark()
    @consistent_read()
    def inputs(self, epoch: int | str, *, source: str | int | None = None) -> InputRows:
        """The rows that a source delivered in an epoch, read from it again through Spark.

        Nothing is run again and nothing is changed: the source is asked for what lies between the offsets that the
        checkpoint or, where Spark has purged them, the store has recorded. This needs the query's plan, so the query
        has to have been started or described (:meth:`streamstate.History.describe`) in this process.

        Args:
            epoch: the epoch, as in :meth:`at`.
            source: the source's name, its place in the query from 0, or its topic; it may be left out where there is
                one.

        Returns:
            A DataFrame of Spark with the source's own columns, one row per row that it delivered; ``.to_arrow()``
            fetches them.

        Raises:
            EpochGoneError: what the epoch read is no longer known.
            NoResultError: the query's plan is not known in this process.
            NotReplayableError: files that it read are gone or were changed, or the source keeps no input.
            UnknownEpochError: there is no such epoch.

        Example:
            >>> history.inputs(12).count()
            6
        """
        from streamstate.state_inspect.inputs.inputs import inputs

        return inputs(self._recorded, self.at(epoch).epoch, source)

    @classic_spark()
    @lists_options
    @long_call("Nothing was changed.")
    @consistent_read()
    def why(self, epoch: int | str, /, *, table: str | None = None, **key: Any) -> Why:
        """Why a key changed in an epoch: the input rows that fell on it, its values before and after, and the cause.

        The input is read again as by :meth:`inputs`, and the query's own plan below the stateful operator runs over it,
        so that filters, joins with static tables, expressions and late rows count as they did. For an operator above
        another one the epoch is run again as far as its input, over a copy of the checkpoint: its rows are those that
        the lower operator emitted.

        Args:
            epoch: the epoch, as in :meth:`at`.
            table: a state table, or ``result``; by default the result if it is known, otherwise the only state table.
                For a join one of its sides, and the rows of both sides are returned.
            **key: a value for each key column (for a join all but the row's number), or ``key={…}``. A session's window
                may stand for its start: ``session_window={"start": …, "end": …}``.

        Returns:
            A :class:`Why`, which a notebook shows. Of the rows 200 are shown, and all are counted.

        Raises:
            NotReplayableError: as :meth:`inputs`.
            EpochGoneError: as :meth:`inputs`, or the rows came from another stateful operator, whose state of the epoch
                before Spark has purged.
            NoResultError: as :meth:`inputs`.
            UnknownEpochError: there is no such epoch.

        Example:
            >>> history.why(12, carrier="HA", origin="JFK").rows[["carrier", "origin", "delay"]]
              carrier origin  delay
            0      HA    JFK    6.0
        """
        return explained(self._recorded, self.at, self.at(epoch).epoch, table or next(iter(self.results()), None), key)

    @consistent_read()
    def decisions(self) -> pd.DataFrame:
        """What the controller of the query's load policy decided, and from which epoch on it acted.

        Returns:
            One row per decision, ascending. The columns are ``number``, ``epoch`` (after which it was taken),
            ``acted`` (the first captured epoch that it applied to; null: none yet, or it was overtaken), ``lever``
            (``shedding``, ``admission``, ``rescale``, or ``none``: a fact was noted), ``before`` and ``after`` (the
            share of unprotected rows that is kept, the most rows of an epoch, or the partitions), ``holds``,
            ``reason``, ``needs``, ``policy`` (the number of the row that declared it) and ``at``.

        Example:
            >>> store["delays"].decisions()
        """
        return decisions(self._recorded)

    @consistent_read()
    def policies(self) -> pd.DataFrame:
        """The load policies of the query: one row per change, ascending.

        Returns:
            The columns are ``number``, ``epoch`` (after which it was declared), ``policy`` (as JSON; null: it was
            ended) and ``at``.
        """
        return policies(self._recorded)

    @consistent_read()
    def why_policy(self, epoch: int | str) -> WhyPolicy:
        """Explain what a load policy did to an epoch: which policy and levels were in force, and what set them.

        Args:
            epoch: the epoch: a number, or "live-3".

        Raises:
            UnknownEpochError: it is not captured.

        Example:
            >>> print(store["delays"].why_policy(12))
        """
        return why_policy(self._recorded, self.at(epoch).epoch)

    @classic_spark()
    @long_call("Nothing was changed.")
    @consistent_read()
    def late(self, epoch: int | str, table: str | None = None) -> Late:
        """The rows that an operator dropped in an epoch, because the watermark had passed them, read again.

        Args:
            epoch: the epoch, as in :meth:`at`.
            table: a state table of the operator; by default the operator that the sources' rows reach first.

        Returns:
            A :class:`Late`, which a notebook shows: the rows, how late each was, and the delay that would keep 99 %.
            A row counts once for each sliding window that it falls in.

        Raises:
            NotReplayableError: as :meth:`why`.
            EpochGoneError: as :meth:`inputs`.
            NoResultError: as :meth:`inputs`.
            UnknownEpochError: there is no such epoch.

        Example:
            >>> store["delays_by_hour"].late(11).longer_delay(0.999)
            datetime.timedelta(seconds=1300, microseconds=1000)
        """
        return dropped(self._recorded, self.at(epoch).epoch, table)

    @classic_spark()
    @long_call("Nothing was changed.")
    @consistent_read()
    def late_counts(
        self,
        epochs: Iterable[int] | str | None = None,
        table: str | None = None,
        *,
        progress: ProgressCallback | None = None,
    ) -> pd.DataFrame:
        """How many late rows an operator dropped at each epoch, and by how much the watermark had passed them.

        Columns: ``epoch``; ``watermark``, which rows had to be later than, missing if the operator drops none or there
        was no watermark yet;
        ``came``, the rows that came in; ``dropped``; ``groups``, as of :class:`Late`; ``longest``, how far the
        watermark was past the latest row, missing if none was dropped; ``longer_delay``, by how much longer the
        query's delays had to be to keep 99 % of the epoch's rows; ``missing``, why an epoch could not be read, such as
        a file that is gone: its numbers are then missing.

        The input of every epoch is read again, as by :meth:`late`.

        Args:
            epochs: such as ``"40..49"`` or ``range(40, 50)``; by default the newest 50.
            table: a state table of the operator; by default the operator that the sources' rows reach first.
            progress: called with a message and the share of the epochs that have been read.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: an argument is invalid.
            NotReplayableError, EpochGoneError, NoResultError: none of the epochs can be read; as :meth:`late`.

        Example:
            >>> store["delays_by_hour"].late_counts("8..11")["dropped"].to_list()
            [0, 0, 0, 1]
        """
        return late_counts(self._recorded, epochs, table, progress)

    @long_call("Nothing was changed.")
    @consistent_read()
    def fingerprints(
        self, tables: str | Sequence[str] | None = None, epochs: Iterable[int] | str | None = None
    ) -> pd.DataFrame:
        """A number for each state that is equal wherever the rows are equal, however they are partitioned.

        Columns: ``epoch``, ``table``, ``rows``, ``fingerprint`` (32 hexadecimal digits): the sum modulo 2¹²⁸ of a hash
        of each row. docs/guides/branches.md specifies how a row is encoded for its hash. One pass over all versions of
        the rows covers all epochs.

        Args:
            tables: state tables; by default all of them.
            epochs: captured epochs, such as ``"40..49"`` or ``range(40, 50)``; by default all of the query's own.
                For a fork they may begin before its own first epoch, as in :meth:`at`.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: an argument is invalid.

        Example:
            >>> history.fingerprints(epochs=[12])
               epoch table  rows                       fingerprint
            0     12   op0     5  08d1e23dd62b66d84bde61ff0fd8c428
        """
        snapshots = [
            self.at(epoch) for epoch in (self.captured() if epochs is None else epoch_list(epochs, self.captured()))
        ]
        names = list(dict.fromkeys(name for snapshot in snapshots for name in snapshot.tables()))
        given = _table_list(tables)
        chosen = names if given is None else [choose_table(name, self.tables() or names, self.name) for name in given]
        return fingerprint_frame(snapshots, chosen)

    @long_call("Nothing was changed.")
    @consistent_read()
    def compare(
        self, other: QueryHistory, epochs: Iterable[int] | str | None = None, tables: str | Sequence[str] | None = None
    ) -> Comparison:
        """Compare this query's states with another's, epoch by epoch: a fork, a replay, or the query in another store.

        Args:
            other: the other history.
            epochs: the epochs to compare, such as ``"40..49"`` or ``range(40, 50)``; by default all that both have, for
                forks from the first epoch that they do not share.
            tables: state tables; by default all that both have.

        Raises:
            UnknownEpochError: they have no epoch in common, or lack an epoch that is named.
            UnknownTableError: they have no table in common, or lack a table that is named.
            InvalidArgumentError: an argument is invalid, or a table's key columns differ.

        Example:
            >>> store["delays"].compare(store["what_if"])
            <Comparison of delays with what_if: epochs 40 to 46, table op0>
            First different: epoch 40, op0, carrier='HA', origin='JFK': max 1301.0 here, 0.0 there.
            7 of 7 epochs differ.
        """
        chosen = None if epochs is None else epoch_list(epochs, self.captured())
        return Comparison(compared_epochs(self, other, chosen, _table_list(tables)))

    def results(self) -> list[str]:
        """Names of the results whose columns differ from those of the state that they are computed from.

        A result without all columns of its key is left out, because its rows cannot be told apart. ``result`` is that
        of the query; a side of a join is ``op0_left.result``. They can be named wherever a state table can.

        Example:
            >>> history.results()
            ['result']
        """
        return results_shown(self._recorded)

    @classic_spark()
    def describe(self, build_query: Callable[[], DataFrame], *, mode: str | None = None, since: int = 0) -> None:
        """Record the plan of a query that was captured without it, so that the store can show the query's result.

        In this process, the input of its epochs can then be read, too: see :meth:`inputs`. A query that
        :func:`streamstate.start`, ``%%stream`` or :meth:`Checkpoint.follow` found running in their own process needs no
        description, unless a Spark Connect server runs it.

        Args:
            build_query: returns the streaming DataFrame of the query. It is planned, not started.
            mode: the query's output mode: "append", "update" or "complete". It may be left out if Spark accepts only
                one, if it makes no difference, or if an earlier plan of the query has been recorded.
            since: the first epoch that ran with this plan.

        Raises:
            QueryError: ``build_query`` does not return the query's streaming DataFrame: it has other operators, or its
                state other columns. Or Spark refuses it in this output mode.
            InvalidArgumentError: the output mode has to be given, or another argument is invalid.

        Example:
            >>> store["delays"].describe(build_query)
        """
        from streamstate.snapshots.store.query_plans.describe import describe

        layout = self._recorded.layout
        describe(layout.root, self.name, build_query, mode=mode, since=since, storage_options=layout.options)

    def publish(
        self,
        to: str,
        *,
        name: str | None = None,
        tables: Sequence[str] | str | None = None,
        columns: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
        where: Mapping[str, str] | str | None = None,
        result: bool | None = None,
        since: int | None = None,
        until: datetime | timedelta | str | None = None,
        freshness: float | str | timedelta | None = None,
        keep: float | str | timedelta | None = None,
        price: float | None = None,
    ) -> Contract:
        """Grant a part of the query's state to a recipient, by a contract that is in force at once.

        Publishing under the same name again changes the terms. Nothing is served before
        :func:`streamstate.sharing.serve` runs, and nothing but what the contract says.

        Args:
            to: the recipient, such as ``partner``.
            name: the contract, which is also the name of the share; by default that of the query.
            tables: the state tables to grant; by default the result, or all tables if the query has none.
            columns: the granted columns; of several tables, by table. By default all.
            where: a condition on the granted rows, over any of the columns; of several tables, by table.
            result: grant the query's result too; by default only if no table is named.
            since: the first epoch to grant; by default all that are captured.
            until: when the contract ends: a time with its zone, or a span such as ``"30d"``; by default never.
            freshness: the seconds after its commit within which an epoch is promised to be visible, or ``"5m"``.
            keep: for how long after its commit an epoch is granted, such as ``"30d"``; by default always.
            price: the price of a million rows, in a unit of your own, for :meth:`streamstate.reports.Store.usage`.

        Raises:
            InvalidArgumentError: an argument is invalid.
            UnknownNameError: there is no such table or column.
            InvalidSQLError: the condition is invalid.

        Example:
            >>> contract = store["delays"].publish("partner", where="origin = 'JFK'", freshness="5m")
            >>> contract.state
            'active'
        """
        from streamstate.sharing.contracts import publish

        return publish(
            self,
            to,
            name=name,
            tables=tables,
            columns=columns,
            where=where,
            result=result,
            since=since,
            until=until,
            freshness=freshness,
            keep=keep,
            price=price,
        )

    def retain(
        self,
        *,
        last: int | None = None,
        since: datetime | timedelta | str | None = None,
        one_in: int | None = None,
        grace: timedelta = GRACE,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> RetentionReport:
        """Drop older epochs of the query; the kept ones read exactly as before.

        An epoch is kept if ``last``, ``since`` or ``one_in`` keeps it; the newest captured one always is. The changes
        of dropped epochs are folded into the next kept one. Captures and readers, here or in other processes, are not
        disturbed: a snapshot that is held keeps its rows, and files that leave a table stay on disk for the grace
        period. A run that is killed does no harm, and the next one finishes its work. Of input that was recorded with
        the query, what neither a kept epoch nor a fork needs is dropped too.

        Args:
            last: keep this many of the newest captured epochs.
            since: keep epochs committed since then: a timezone-aware datetime, or how long ago, as a ``timedelta`` or a
                string such as "2d" or "3h".
            one_in: of the others, keep the first in each interval of this many epochs: 10 keeps 0, 10, 20 and so on.
            grace: how long files that left the tables are kept on disk for their readers, in whole hours.
            dry_run: only report what would be dropped.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: unknown).

        Returns:
            The dropped epochs and how much was freed.

        Raises:
            InvalidArgumentError: an argument is invalid, or none says what to keep.
            NaiveTimestampError: ``since`` has no time zone.
            StoreError: the store cannot be written; every epoch that it lists can still be read.

        Example:
            >>> report = store["delays"].retain(last=10, one_in=20, dry_run=True)
            >>> report.kept, len(report.dropped)
            (13, 49)
        """
        from streamstate.snapshots.store.retention.dropping import retain

        layout = self._recorded.layout
        return retain(
            layout.root,
            self.name,
            last=last,
            since=since,
            one_in=one_in,
            grace=grace,
            dry_run=dry_run,
            storage_options=layout.options,
            progress=progress,
        )

    def compact(self, *, progress: ProgressCallback | None = None) -> list[CompactedTable]:
        """Merge the small files of the query's tables, sort them by key, and delete those past their grace period.

        Every epoch reads as before. Background captures compact by themselves from time to time.

        Args:
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: unknown).

        Returns:
            Files and bytes of each table, before and after.

        Raises:
            StoreError: a table cannot be written; it is unchanged.

        Example:
            >>> [table.table for table in store["delays"].compact()]
            ['_epochs', 'op0']
        """
        from streamstate.snapshots.store.retention.tidying import compact

        layout = self._recorded.layout
        return compact(layout.root, self.name, storage_options=layout.options, progress=progress)

    def export(
        self,
        to: str | os.PathLike[str],
        *,
        table: str | None = None,
        epochs: Epochs | None = None,
        progress: ProgressCallback | None = None,
    ) -> ExportReport:
        """Write epochs of a state table as an ordinary Delta table whose versions are those epochs.

        Version i holds exactly the state at the i-th epoch: the key columns, then the value columns. The metadata of
        its commit names the epoch, its source offsets, its watermark and when it was committed. A repeated export
        continues after the last version, whether the export was killed or more epochs have been captured since.

        Args:
            to: the folder or URI of the Delta table.
            table: the state table; optional if there is only one.
            epochs: epochs and ranges of them, such as ``"3,5,10..20"`` (both ends included) or ``[3, 5, range(10,
                21)]``; by default all captured epochs.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: unknown).

        Returns:
            The epochs that the table holds now, and what was written.

        Raises:
            NotAnExportError: ``to`` holds something else, or other epochs.
            NotAStoreError: ``to`` is in or above a query's checkpoint.
            UnknownTableError, UnknownEpochError: the table or an epoch does not exist.
            StoreError: the table cannot be written; its existing versions are complete.

        Example:
            >>> store["delays"].export("exported", epochs=[3, 5, range(10, 21)]).epochs
            (3, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
            >>> DeltaTable("exported", version=1).to_pandas()  # epoch 5
        """
        from streamstate.snapshots.store.export import export

        layout = self._recorded.layout
        return export(
            layout.root,
            self.name,
            os.fspath(to),
            table=table,
            epochs=epochs,
            storage_options=layout.options,
            progress=progress,
        )

    @consistent_read()
    def __repr__(self) -> str:
        captured = self.captured()
        span = f"epochs {captured[0]} to {captured[-1]}" if captured else "no epoch captured yet"
        return f"<History of {self.name}: {span}; tables {choices(self.tables())}{self._superseded()}>"

    def _superseded(self) -> str:
        """Name the newest version of a pipeline's flow, if this is an older one."""
        newest = self.versions()[-1]
        return "" if newest == self.name else f"; the newest version of this flow is {newest}"


def _table_list(tables: str | Sequence[str] | None) -> Sequence[str] | None:
    return [tables] if isinstance(tables, str) else tables
