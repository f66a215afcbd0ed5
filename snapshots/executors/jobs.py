"""The Spark jobs of a large capture: they leave files that wait to be committed, and what the manifest is to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from streamstate.snapshots.change_log import check_generation, key_columns
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.data_files import DataFile
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.executors import reports
from streamstate.snapshots.executors.failures import FAILURES, told
from streamstate.snapshots.executors.frames import FrameReader, StateFrame
from streamstate.snapshots.executors.live_keys import LiveKeys
from streamstate.snapshots.executors.tasks import Batches, TableTask, write_changes, write_compared, write_keyframe
from streamstate.snapshots.executors.written import require_good
from streamstate.snapshots.manifest import TableFacts
from streamstate.snapshots.operators import Shape, StateSource

# Change rows of one job: their digests, of 8 bytes each, come to the driver.
_ROWS_A_JOB = 20_000_000


@dataclass
class Written:
    """What the jobs of one pass have done."""

    files: list[DataFile] = field(default_factory=list)
    facts: dict[int, TableFacts] = field(default_factory=dict)
    by_feed: bool = True
    """Whether all of it came from the change feed."""


@dataclass(frozen=True)
class Start:
    """Where the jobs of a pass start.

    ``epoch`` is the newest captured one and ``keyframe`` the one that reading it starts from; both are None where the
    log starts from nothing. ``newest`` is the keyframe that reading the pass's epochs is to start from.
    """

    epoch: int | None
    keyframe: int | None
    newest: int | None
    generation: int | None = None
    """How many runs of retention the manifest that names ``keyframe`` has been through."""


class Jobs:
    """The jobs that capture one state table; between passes it remembers which keys live.

    Every method may be called again, and gives the same again in new files.

    Args:
        frames: reads the state.
        source: the state table.
        place: its change log.
    """

    def __init__(self, frames: FrameReader, source: StateSource, place: Place) -> None:
        self._frames = frames
        self._source = source
        self._place = place
        self._live: LiveKeys | None = None
        self._stands: int | None = None
        # Changes of one epoch; as many as a job may have, until something is known.
        self._most = _ROWS_A_JOB

    def columns(self, epoch: int) -> tuple[pa.Schema, tuple[str, ...]]:
        """The change log's columns, and which of them are the key."""
        found = self._frames.state(self._source, epoch)
        return found.log_columns(), found.columns.keys

    def keyframe(self, epoch: int, schema: pa.Schema, after: int) -> Written:
        """All live keys at an epoch, as a keyframe.

        Args:
            epoch: the epoch.
            schema: the table's columns.
            after: only rows of later epochs are written.

        Raises:
            CaptureError: where the executors cannot do the work; the message says what they lack.
            PySparkException, Py4JError: where Spark cannot read the state.
        """
        state = self._frames.state(self._source, epoch)
        if epoch <= after:
            state = StateFrame(state.columns, state.frame.limit(0))
        done = self._run(state, write_keyframe, schema, after)
        return Written(done.files, {epoch: TableFacts(sum(one.live for one in done.epochs), 0, epoch)})

    def changes(self, epochs: Sequence[int], start: Start, schema: pa.Schema, after: int) -> Written:
        """What epochs that follow each other changed.

        Args:
            epochs: the epochs.
            start: where they start.
            schema: the table's columns.
            after: as for :meth:`keyframe`; earlier epochs are looked at all the same, and told of.

        Raises:
            CaptureError, PySparkException, Py4JError: as :meth:`keyframe`.
        """
        if self._source.shape is not Shape.KEYED:
            return self._compared(epochs, start, schema, after)
        try:
            return self._fed(epochs, start, schema, after)
        except FAILURES:
            return self._compared(epochs, start, schema, after)

    def _fed(self, epochs: Sequence[int], start: Start, schema: pa.Schema, after: int) -> Written:
        """By the change feed: few epochs a job where many keys change, so that the driver's memory stays bounded."""
        written = Written()
        live = self._live_at(start, schema)
        rest = [*epochs]
        while rest:
            some = rest[: max(1, _ROWS_A_JOB // max(self._most, 1))]
            rest = rest[len(some) :]
            feed = self._frames.feed(self._source, some[0], some[-1])
            done = self._run(feed, write_changes, schema, after)
            written.files += done.files
            for epoch in some:
                theirs = [one for one in done.epochs if one.epoch == epoch]
                changes = sum(one.changes for one in theirs)
                written.facts[epoch] = TableFacts(live.advance(theirs), changes, start.newest)
            self._most = max(written.facts[epoch].changes for epoch in some)
        self._live, self._stands = live, epochs[-1]
        return written

    def _compared(self, epochs: Sequence[int], start: Start, schema: pa.Schema, after: int) -> Written:
        """By the whole states, one epoch a job."""
        written = Written(by_feed=False)
        for epoch in epochs:
            both = self._frames.both(self._source, epoch)
            done = self._run(both, partial(write_compared, epoch), schema, after)
            written.files += done.files
            live, changes = (sum(getattr(one, name) for one in done.epochs) for name in ("live", "changes"))
            written.facts[epoch] = TableFacts(live, changes, start.newest)
        return written

    def _live_at(self, start: Start, schema: pa.Schema) -> LiveKeys:
        """The live keys where a pass starts; the jobs take them with them, whatever comes of the pass."""
        known, self._live = self._live, None
        if start.epoch is None:
            return LiveKeys()
        if known is not None and self._stands == start.epoch:
            return known
        version = TableVersion(self._place, required(self._place))
        check_generation(version, start.generation)
        return LiveKeys.from_log(version, key_columns(schema), start.epoch, start.keyframe)

    def _run(
        self, state: StateFrame, work: Callable[[TableTask, Batches], Batches], schema: pa.Schema, after: int
    ) -> reports.Reports:
        task = TableTask(self._place, schema, state.keys, self._source.shape is Shape.LIST, after)
        try:
            found = reports.read(state.frame.mapInArrow(partial(work, task), reports.SPARK_SCHEMA).toArrow())
        except FAILURES as error:
            better = told(error)
            if better is None:
                raise
            raise better from error
        require_good(self._place, schema, found)
        return found
