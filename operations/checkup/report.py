"""The report of a checkup, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streamstate.operations.checkup.state_tables import TableReading

Level = Literal["problem", "warning", "note"]


@dataclass(frozen=True)
class CheckupFinding:
    """One thing to know about a checkpoint."""

    level: Level
    """``problem``: it cannot be captured, or Spark cannot restart from it; ``warning``: something should change;
    ``note``: good to know."""
    text: str
    """What it is, and what to do, in a few sentences."""
    setting: tuple[str, str] | None = None
    """The Spark setting of the query that would change it, and its value."""
    file: str | None = None
    """The damaged file that it is about, inside the checkpoint."""


@dataclass(frozen=True)
class StoreState:
    """The captured epochs of a query in a store."""

    path: str
    """The store."""
    name: str | None
    """The query's name in it; None if it does not have the query yet."""
    newest: int | None = None
    """The newest captured epoch."""
    behind: int = 0
    """Committed epochs that it lacks and that can still be captured."""
    lost: int = 0
    """Epochs after the newest captured one that Spark has purged: they will be a gap."""


@dataclass(frozen=True)
class DoctorReport:
    """The results of examining a checkpoint: its capture and its next start; ``str()`` of it is a report."""

    checkpoint: str
    """The checkpoint."""
    query_id: str
    """The id of the query that owns it; ``unknown`` if its ``metadata`` file is damaged."""
    spark: str
    """The version of Spark that planned the newest epoch: ``4.2``, ``4.0 or 4.1``, ``before 4.0``."""
    provider: str
    """The state store provider: ``RocksDB``, ``HDFS``, or the name of another class."""
    checkpoint_format: str
    """The state store checkpoint format, ``1`` or ``2``."""
    encoding: str
    """The encoding of state rows: ``unsaferow`` or ``avro``."""
    compression: str
    """The codec of state files."""
    partitions: int | None
    """The number of state partitions."""
    first_epoch: int | None
    """The oldest epoch that can be captured; None if none can."""
    newest_epoch: int | None
    """The newest epoch that can be captured."""
    last_epoch: int | None
    """The newest committed epoch."""
    committed: int
    """How many committed epochs the checkpoint holds."""
    epochs: int
    """How many of them can be captured now."""
    epoch_seconds: float | None
    """The median time between epochs; None if it is not known."""
    tables: tuple[TableReading, ...]
    """How capture reads each state table."""
    store: StoreState | None
    """What the store has; None if none was given."""
    can_capture: bool | None
    """Whether any epoch can be captured; None if nothing is committed."""
    can_restart: bool | None
    """Whether Spark can start from the checkpoint; None if that is not known: a finding says why."""
    findings: tuple[CheckupFinding, ...]
    """What to know, problems first."""

    def has(self, level: Level) -> bool:
        """Check for a finding of a level."""
        return any(finding.level == level for finding in self.findings)

    def __str__(self) -> str:
        facts = dict(self._facts())
        width = max(map(len, facts))
        lines = [f"{name:{width}}  {text}" for name, text in facts.items()]
        return "\n".join([*lines, *self._table_lines(), *self._finding_lines()])

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "checkpoint", self.checkpoint
        yield "query", self.query_id
        yield "spark", self.spark
        state = [self.provider, f"checkpoint format {self.checkpoint_format}", self.encoding, self.compression]
        yield "state", ", ".join([*state, f"{self.partitions} partitions"] if self.partitions else state)
        pace = f", one every {self.epoch_seconds:.3g} s" if self.epoch_seconds else ""
        yield "epochs", f"{self._epochs()}{pace}"
        yield "restart", {True: "Spark can restart", False: "Spark cannot restart", None: "not known"}[self.can_restart]
        if self.store is not None:
            yield "store", f"{self.store.path}: {_stored(self.store)}"

    def _epochs(self) -> str:
        if not self.committed:
            return "none committed yet"
        if not self.epochs:
            return f"{self.committed} committed, none can be captured"
        some = f"{self.epochs} of {self.committed}" if self.epochs < self.committed else f"{self.epochs}"
        return f"{some} can be captured, {self.first_epoch} to {self.newest_epoch}"

    def _table_lines(self) -> Iterator[str]:
        if self.tables:
            yield ""
        width = max((len(table.table) for table in self.tables), default=0)
        for table in self.tables:
            why = f", because: {table.because}" if table.because else ""
            yield f"{table.table:{width}}  {table.operator}: reads {table.reads}{why}"

    def _finding_lines(self) -> Iterator[str]:
        for finding in self.findings:
            yield f"\n{finding.level}: {finding.text}"
            if finding.setting:
                yield '    spark.conf.set("{}", "{}")'.format(*finding.setting)


def _stored(store: StoreState) -> str:
    if store.name is None:
        return "does not have this query yet"
    newest = "no epoch captured yet" if store.newest is None else f"captured up to epoch {store.newest}"
    return f"{store.name}, {newest}, {store.behind} behind"
