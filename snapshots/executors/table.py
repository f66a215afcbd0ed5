"""Brings the change log of one state table forward, in the driver or, where a pass is large, by the executors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.snapshots.delta import Place, commit_once
from streamstate.snapshots.delta.data_files import DataFile
from streamstate.snapshots.delta.sweep import sweep
from streamstate.snapshots.executors.failures import FAILURES
from streamstate.snapshots.executors.frames import FrameReader, TooLargeError
from streamstate.snapshots.executors.jobs import Jobs, Start, Written
from streamstate.snapshots.executors.scale import Scale
from streamstate.snapshots.manifest import TableFacts
from streamstate.snapshots.operators import Shape, StateSource
from streamstate.snapshots.table_capture import Chain, TableCapture, told

_Work = Callable[[pa.Schema, int], Written]


class ScalingTableCapture(TableCapture):
    """A table's capture that leaves large passes to the executors."""

    def __init__(self, reader: FrameReader, source: StateSource, place: Place, application: str) -> None:
        super().__init__(reader, source, place, application)
        self.large = False
        """Whether the last pass was the executors'."""
        self._scale = Scale(reader, source)
        self._jobs = Jobs(reader, source, place)
        self._most: int | None = None

    def advance(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        """Add the epochs, which follow each other and the chain, to the change log.

        Returns what the manifest is to say of each; nothing is visible before it does.

        Raises:
            CaptureError: where the executors cannot do their part; the message says what they lack.
        """
        self.large = self._is_large(epochs, chain)
        facts = self._in_executors(epochs, chain) if self.large else self._in_driver_if_it_fits(epochs, chain)
        self._most = max(one.changes for one in facts.values())
        return facts

    def forget(self) -> None:
        """Start over from the store at the next pass, after one that failed."""
        super().forget()
        self._most = None

    def _write_keyframe(self, epoch: int, facts: TableFacts) -> None:
        """By the executors where the state is large; Spark may have purged the epoch, which the log still has."""
        if facts.rows > self._scale.rows_in_driver:
            with contextlib.suppress(*FAILURES):
                self._write_keyframe_in_executors(epoch, facts)
                return
        super()._write_keyframe(epoch, facts)

    def _write_keyframe_in_executors(self, epoch: int, facts: TableFacts) -> None:
        def write(table: DeltaTable, _stands: int) -> list[DataFile]:
            return self._jobs.keyframe(epoch, pa.schema(table.schema().to_arrow()), after=-1).files

        commit_once(self._log, self._keyframes, epoch, write)
        self._keyframe = epoch
        self.written += facts.rows

    def _is_large(self, epochs: Sequence[int], chain: Chain) -> bool:
        facts = chain.facts
        whole = chain.broken or self._source.shape is Shape.TIMERS or self.advice is not None
        if facts is None:
            expected = None
        elif whole:
            expected = facts.rows
        else:
            expected = facts.changes if self._most is None else max(self._most, facts.changes)
        return self._scale.is_large(epochs, expected, whole=whole, was=self.large)

    def _in_driver_if_it_fits(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        try:
            return super().advance(epochs, chain)
        except TooLargeError:
            super().forget()
        self.large = True
        return self._in_executors(epochs, chain)

    def _in_executors(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        """One commit of all files; a keyframe with which the log begins is a commit of its own."""
        if chain.broken:
            return self._begin(epochs, chain)
        if self._stands is None:
            self._resume(chain)
        if self._source.shape is Shape.LIST and self.advice is None:
            return self._epoch_by_epoch(epochs, chain)
        return self._by_jobs(epochs, chain)

    def _by_jobs(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        known = chain.facts
        start = Start(
            chain.epoch,
            known.keyframe if known else None,
            self._keyframe,
            known.generation if known else None,
        )
        facts = self._commit_files(
            epochs, chain, lambda columns, after: self._jobs.changes(epochs, start, columns, after)
        )
        self._stands, self._follower = epochs[-1], None
        return facts

    def _begin(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        first, rest = epochs[0], epochs[1:]
        facts = self._commit_files([first], chain, lambda columns, after: self._jobs.keyframe(first, columns, after))
        self._keyframe, self._stands, self._follower = first, first, None
        return facts | (self._in_executors(rest, Chain(first, facts[first])) if rest else {})

    def _epoch_by_epoch(self, epochs: Sequence[int], chain: Chain) -> dict[int, TableFacts]:
        """Lists: where an element stands depends on all before it, which only the driver knows, or whole states."""
        facts: dict[int, TableFacts] = {}
        for epoch in epochs:
            try:
                facts |= super().advance([epoch], chain)
            except TooLargeError:
                super().forget()
                self._resume(chain)
                facts |= self._by_jobs([epoch], chain)
            chain = Chain(epoch, facts[epoch])
        return facts

    def _commit_files(self, epochs: Sequence[int], chain: Chain, work: _Work) -> dict[int, TableFacts]:
        """Commit what executors write for some epochs, in one transaction, and sweep what tasks that died left."""
        self._create(*self._jobs.columns(epochs[-1]), epochs[0])
        said: dict[str, str] = {}
        done: list[Written] = []

        def write(table: DeltaTable, stands: int) -> list[DataFile]:
            done.append(work(pa.schema(table.schema().to_arrow()), stands))
            # What the commit says is known only now; it is read after its files were written.
            said.update(told(done[-1].facts))
            return done[-1].files

        stood = commit_once(self._log, self._application, epochs[-1], write, metadata=said)
        logged = self._facts_in_log(epochs, stood) if stood > (-1 if chain.epoch is None else chain.epoch) else {}
        if not done and len(logged) < len(epochs):
            write(self._log.newest(), epochs[-1])
        if done:
            self.written += sum(file.rows for file in done[-1].files)
            if not done[-1].by_feed and self._source.shape is not Shape.TIMERS:
                self.advice = self._reader.advice(self._source, epochs)
        sweep(self._place)
        return (done[-1].facts if done else {}) | logged
