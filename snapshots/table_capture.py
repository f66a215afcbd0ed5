"""Brings the change log of one state table forward."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamstate.snapshots.change_log import KEYFRAME, log_schema, state_at
from streamstate.snapshots.changes import EpochChanges, FeedFollower, WholeFollower, keyframe_rows, with_positions
from streamstate.snapshots.delta import append_once, open_or_create, recent_metadata
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
    since_keyframe: int = 0
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

    def __init__(self, reader: StateReader, source: StateSource, uri: str, application: str) -> None:
        self.advice: str | None = None
        self.written = 0
        self._reader = reader
        self._source = source
        self._uri = uri
        self._application = application
        self._stands: int | None = None
        self._follower: FeedFollower | WholeFollower | None = None

    def advance(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        """Add the epochs, which follow each other and the chain, to the change log.

        Returns what the manifest is to say of each; nothing is visible before it does.
        """
        gathered = _Pass()
        rest, keyframe = list(epochs), chain.facts.keyframe if chain.facts else None
        if chain.broken:
            keyframe = rest.pop(0)
            self._start(keyframe, gathered)
        since = 0 if chain.broken else chain.since_keyframe
        for changes in self._changes(rest, chain, gathered):
            gathered.pieces.append(changes.rows)
            gathered.facts[changes.epoch] = TableFacts(changes.live, changes.rows.num_rows, keyframe)
            since += changes.rows.num_rows
        if rest and since > max(gathered.facts[rest[-1]].rows, _SMALLEST_KEYFRAME):
            self._keyframe(rest[-1], gathered)
        facts = self._commit(gathered, -1 if chain.epoch is None else chain.epoch)
        self._stands = epochs[-1]
        return facts

    def forget(self) -> None:
        """Start over from the store at the next pass, after one that failed."""
        self._stands, self._follower = None, None

    def _start(self, epoch: int, gathered: _Pass) -> None:
        """Begin the log, or begin it again after a gap, with a keyframe."""
        whole = self._reader.whole(self._source, [epoch])
        rows = keyframe_rows(whole.rows, whole.columns, KEYFRAME)
        gathered.pieces.append(rows)
        gathered.facts[epoch] = TableFacts(rows.num_rows, 0, epoch)
        state = with_positions(whole.rows, whole.columns).select([*whole.columns.keys, *whole.columns.values])
        self._follower = self._new_follower(whole.columns, state)
        self._stands = epoch

    def _keyframe(self, epoch: int, gathered: _Pass) -> None:
        whole = self._reader.whole(self._source, [epoch])
        gathered.pieces.append(keyframe_rows(whole.rows, whole.columns, KEYFRAME))
        before = gathered.facts[epoch]
        gathered.facts[epoch] = TableFacts(before.rows, before.changes, epoch)

    def _changes(self, epochs: list[int], chain: Chain, gathered: _Pass) -> Iterator[EpochChanges]:
        if not epochs:
            return
        rows, by_feed = self._read(epochs)
        columns = rows.columns
        stands = epochs[0] - 1
        if self._follower is None or self._stands != stands or isinstance(self._follower, FeedFollower) != by_feed:
            state = self._state_before(columns, chain, gathered, rows.rows.schema)
            self._follower = FeedFollower(columns, state) if by_feed else WholeFollower(columns, state)
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

    def _state_before(self, columns: Columns, chain: Chain, gathered: _Pass, schema: pa.Schema) -> pa.Table:
        """The table's rows where the pass starts, from the log (or from the keyframe that the pass itself made)."""
        names = [*columns.keys, *columns.values]
        if chain.broken:
            return gathered.pieces[0].select(names)
        if chain.epoch is None or chain.facts is None:
            return _empty(columns, schema)
        return _fitted(state_at(self._uri, columns.keys, chain.epoch, chain.facts.keyframe, names), names, schema)

    def _new_follower(self, columns: Columns, state: pa.Table) -> FeedFollower | WholeFollower:
        return (WholeFollower if self._source.shape is Shape.TIMERS else FeedFollower)(columns, state)

    def _commit(self, gathered: _Pass, base: int) -> dict[int, TableFacts]:
        rows = pa.concat_tables(gathered.pieces)
        keys = self._follower.keys if self._follower else ()
        open_or_create(self._uri, log_schema(rows.schema, keys), f"streamstate: change log of {self._source.table}")
        stood = base
        if rows.num_rows:
            stood = append_once(
                self._uri,
                self._application,
                max(gathered.facts),
                lambda stands: rows.filter(pc.greater(rows[EPOCH], stands)) if stands > base else rows,
                metadata={_FACTS: _dumped(gathered.facts)},
            )
            self.written += rows.num_rows
        # Epochs that another capture has put into the log stand as it wrote them.
        return gathered.facts | (self._facts_in_log(gathered, stood) if stood > base else {})

    def _facts_in_log(self, gathered: _Pass, stood: int) -> dict[int, TableFacts]:
        logged: dict[int, TableFacts] = {}
        for text in recent_metadata(self._uri, _FACTS):
            logged |= _loaded(text)
        return {epoch: facts for epoch, facts in logged.items() if epoch in gathered.facts and epoch <= stood}


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


def _dumped(facts: dict[int, TableFacts]) -> str:
    return json.dumps([[epoch, one.rows, one.changes, one.keyframe] for epoch, one in facts.items()])


def _loaded(text: str) -> dict[int, TableFacts]:
    return {epoch: TableFacts(*rest) for epoch, *rest in json.loads(text)}
