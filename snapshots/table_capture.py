"""Brings the change log of one state table forward."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamstate.snapshots.change_log import (
    KEYFRAME,
    Operator,
    check_generation,
    folded,
    log_schema,
    state_at,
    with_beginning,
)
from streamstate.snapshots.changes import EpochChanges, FeedFollower, WholeFollower, keyframe_rows, with_positions
from streamstate.snapshots.delta import Place, append_once, commit_once, open_or_create, open_table
from streamstate.snapshots.delta.commits import Handle, recent_metadata, version_of
from streamstate.snapshots.delta.compaction import compact
from streamstate.snapshots.delta.data_files import DataFile
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.delta.sweep import sweep
from streamstate.snapshots.keyframes import keyframe_file
from streamstate.snapshots.manifest import TableFacts
from streamstate.snapshots.operators import EPOCH, Columns, Shape, StateSource
from streamstate.snapshots.state_reader import StateReader, StateRows

# Below this many rows a keyframe saves no reader any time.
_SMALLEST_KEYFRAME = 50_000
_FACTS = "streamstate.epochs"


@dataclass(frozen=True)
class Chain:
    """Where a table's log stands before a pass.

    ``epoch`` is the newest captured one, None where the log starts from nothing (epoch 0); a chain that is
    ``broken`` (by a gap, or because early epochs are gone) has to start with a keyframe.
    """

    epoch: int | None
    facts: TableFacts | None
    broken: bool = False


@dataclass
class _Pass:
    """What a pass has gathered for one table."""

    pieces: list[pa.Table] = field(default_factory=list)
    facts: dict[int, TableFacts] = field(default_factory=dict)


class TableCapture:
    """Captures one state table, pass after pass.

    Between passes it keeps where it stands, so that the next one needs to read nothing but what changed.
    """

    def __init__(self, reader: StateReader, source: StateSource, place: Place, application: str) -> None:
        self.advice: str | None = None
        self.written = 0
        self._reader = reader
        self._source = source
        self._place = place
        self._log = Handle(place)
        self._schema: pa.Schema | None = None
        self._application = application
        self._stands: int | None = None
        self._keyframe: int | None = None
        self._follower: FeedFollower | WholeFollower | None = None

    def advance(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        """Add the epochs, which follow each other and the chain, to the change log.

        Returns what the manifest is to say of each; nothing is visible before it does.
        """
        gathered = _Pass()
        rest = list(epochs)
        if chain.broken:
            self._keyframe = rest.pop(0)
            self._start(self._keyframe, gathered)
        elif self._stands is None:
            self._resume(chain)
        for changes in self._changes(rest, chain, gathered):
            gathered.pieces.append(changes.rows)
            gathered.facts[changes.epoch] = TableFacts(changes.live, changes.rows.num_rows, self._keyframe)
        facts = self._commit(gathered, -1 if chain.epoch is None else chain.epoch)
        self._stands = epochs[-1]
        return facts

    def tidy(self, epoch: int, facts: TableFacts, changes_since: Callable[[int | None], int]) -> None:
        """Write a keyframe where the changes since the last outweigh the state, and merge small files.

        Args:
            epoch: the newest captured epoch.
            facts: what the manifest says of the table at it.
            changes_since: how many rows of the log the epochs after a keyframe added.
        """
        if self._stands == epoch and changes_since(self._keyframe) > max(facts.rows, _SMALLEST_KEYFRAME):
            self._write_keyframe(epoch, facts)
        compact(self._place, EPOCH)

    def forget(self) -> None:
        """Start over from the store at the next pass, after one that failed."""
        self._stands, self._follower, self._keyframe = None, None, None

    def _start(self, epoch: int, gathered: _Pass) -> None:
        """Begin the log, or begin it again after a gap, with a keyframe."""
        whole = self._reader.whole(self._source, [epoch])
        rows = keyframe_rows(whole.rows, whole.columns, KEYFRAME)
        gathered.pieces.append(rows)
        gathered.facts[epoch] = TableFacts(rows.num_rows, 0, epoch)
        state = with_positions(whole.rows, whole.columns).select([*whole.columns.keys, *whole.columns.values])
        self._follower = self._new_follower(whole.columns, state)
        self._stands = epoch

    def _resume(self, chain: Chain) -> None:
        """Go on with a log that another capture left: its newest keyframe, and no files of commits that failed."""
        table = open_table(self._place)
        newest = -1 if table is None else version_of(table, self._keyframes)
        known = chain.facts.keyframe if chain.facts else None
        # A keyframe of an epoch that the manifest does not have yet is written again at the next occasion.
        usable = newest > -1 and chain.epoch is not None and newest <= chain.epoch
        self._keyframe = max(newest, -1 if known is None else known) if usable else known
        sweep(self._place)

    def _write_keyframe(self, epoch: int, facts: TableFacts) -> None:
        """Write all live keys again, from the log itself: the state's reader would cost the query's machine more."""

        def write(table: DeltaTable, _stands: int) -> list[DataFile]:
            version = TableVersion(self._place, table)
            check_generation(version, facts.generation)
            return keyframe_file(version, epoch, facts.keyframe)

        commit_once(self._log, self._keyframes, epoch, write)
        self._keyframe = epoch
        self.written += facts.rows

    @property
    def _keyframes(self) -> str:
        """The transaction identifier of keyframes that are no part of an epoch's commit; its versions are epochs."""
        return f"{self._application}/keyframes"

    def _changes(self, epochs: list[int], chain: Chain, gathered: _Pass) -> Iterator[EpochChanges]:
        if not epochs:
            return
        rows, by_feed = self._read(epochs)
        columns = rows.columns
        stands = epochs[0] - 1
        if self._follower is None or self._stands != stands or isinstance(self._follower, FeedFollower) != by_feed:
            schema = rows.rows.schema
            if by_feed and not chain.broken and chain.epoch is not None and chain.facts is not None:
                self._follower = self._resumed(columns, chain.epoch, chain.facts)
            else:
                state = self._state_before(columns, chain, gathered, schema)
                self._follower = FeedFollower(columns, [state]) if by_feed else WholeFollower(columns, state)
        yield from self._follower.changes(rows, epochs)

    def _read(self, epochs: list[int]) -> tuple[StateRows, bool]:
        """The change feed of the epochs, or where Spark has none the whole state at each."""
        if self._reader.has_feed(self._source, epochs):
            try:
                changes = self._reader.changes(self._source, epochs[0], epochs[-1])
            except (PySparkException, Py4JError):  # what fails in a task reaches Arrow's collecting as the latter
                whole = self._reader.whole(self._source, epochs)
                self.advice = self._reader.advice(self._source, epochs)
                return whole, False
            self.advice = None
            return changes, True
        return self._reader.whole(self._source, epochs), False

    def _resumed(self, columns: Columns, epoch: int, facts: TableFacts) -> FeedFollower:
        """A follower that knows the keys which live at an epoch, from the log, in bounded memory."""
        version = TableVersion(self._place, self._log.newest())
        check_generation(version, facts.generation)
        kept = pa.schema([version.schema.field(name).remove_metadata() for name in columns.keys])
        with folded(version, columns.keys, epoch, facts.keyframe, columns.keys) as rows:
            return FeedFollower(columns, (pa.Table.from_batches([batch]).cast(kept) for batch in rows))

    def _state_before(self, columns: Columns, chain: Chain, gathered: _Pass, schema: pa.Schema) -> pa.Table:
        """The table's rows where the pass starts, from the log (or from the keyframe that the pass itself made)."""
        names = [*columns.keys, *columns.values]
        if chain.broken:
            return gathered.pieces[0].select(names)
        if chain.epoch is None or chain.facts is None:
            return _empty(columns, schema)
        facts = chain.facts
        found = state_at(self._place, columns.keys, chain.epoch, facts.keyframe, names, generation=facts.generation)
        return _fitted(found, names, schema)

    def _new_follower(self, columns: Columns, state: pa.Table) -> FeedFollower | WholeFollower:
        return WholeFollower(columns, state) if self._source.shape is Shape.TIMERS else FeedFollower(columns, [state])

    def _commit(self, gathered: _Pass, base: int) -> dict[int, TableFacts]:
        rows = pa.concat_tables(gathered.pieces)
        keys = self._follower.keys if self._follower else ()
        if rows.schema != self._schema:
            self._create(rows.schema, keys, min(gathered.facts))
            self._schema = rows.schema
        stood = base
        if rows.num_rows:
            stood = append_once(
                self._log,
                self._application,
                max(gathered.facts),
                lambda stands: rows.filter(pc.greater(rows[EPOCH], stands)) if stands > base else rows,
                metadata=told(gathered.facts),
            )
            self.written += rows.num_rows
        # Epochs that another capture has put into the log stand as it wrote them.
        return gathered.facts | (self._facts_in_log([*gathered.facts], stood) if stood > base else {})

    def _create(self, columns: pa.Schema, keys: Sequence[str], epoch: int) -> None:
        operator = Operator(self._source.operator, self._source.time_mode)
        schema = log_schema(columns, keys, operator)
        there = open_table(self._place)
        if there is not None:
            schema = with_beginning(schema, TableVersion(self._place, there).schema, epoch)
        open_or_create(self._place, schema, f"streamstate: change log of {self._source.table}")

    def _facts_in_log(self, epochs: Sequence[int], stood: int) -> dict[int, TableFacts]:
        logged: dict[int, TableFacts] = {}
        for text in recent_metadata(self._place, _FACTS):
            logged |= _loaded(text)
        return {epoch: facts for epoch, facts in logged.items() if epoch in epochs and epoch <= stood}


def _fitted(state: pa.Table, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Rows of the log in the columns that Spark has now: a restart may have added some, or widened their types."""
    arrays = {}
    for name in names:
        kind = schema.field(name).type if name in schema.names else state.schema.field(name).type
        arrays[name] = state[name].cast(kind) if name in state.column_names else pa.nulls(state.num_rows, kind)
    return pa.table(arrays)


def _empty(columns: Columns, schema: pa.Schema) -> pa.Table:
    fields = [
        schema.field(name) if name in schema.names else pa.field(name, pa.int64())
        for name in [*columns.keys, *columns.values]
    ]
    return pa.schema(fields).empty_table()


def told(facts: dict[int, TableFacts]) -> dict[str, str]:
    """What a commit of the log says of its epochs, for a capture that finds them there."""
    return {_FACTS: json.dumps([[epoch, one.rows, one.changes, one.keyframe] for epoch, one in facts.items()])}


def _loaded(text: str) -> dict[int, TableFacts]:
    return {epoch: TableFacts(*rest) for epoch, *rest in json.loads(text)}
