"""The public way to audit: :func:`audit`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.debugger.audit.certificate import check_certificate, offsets_digest, recorded_states
from streamstate.debugger.audit.plan import suspects_of
from streamstate.debugger.audit.python_code import suspects_in
from streamstate.debugger.audit.report import Audit, AuditedReplay, Divergence, with_suspects
from streamstate.debugger.beginning import from_nothing
from streamstate.debugger.changes import Changes
from streamstate.debugger.epoch_range import first_and_last
from streamstate.debugger.forking import fork
from streamstate.debugger.frame_sources import check_replayable, check_streaming, sources_of
from streamstate.debugger.own_folder import own_folder
from streamstate.debugger.stepper import BuildQuery, Stepper
from streamstate.debugger.steps import Progress, Steps
from streamstate.snapshots.capture import capturer_for
from streamstate.snapshots.checkpoint import SPREAD, Checkpoint
from streamstate.snapshots.errors import EpochGoneError, InvalidArgumentError, choices
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.state_reader import no_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.debugger.audit.suspects import Suspect
    from streamstate.state_inspect import Comparison, History

__all__ = ["audit"]

# So many epochs are run, captured in one pass, and compared, before the next.
_CHUNK = 25
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_KEYS = 100


def audit(
    build_query: BuildQuery,
    checkpoint: str | os.PathLike[str],
    *,
    epochs: range | tuple[int, int] | None = None,
    replays: int = 2,
    partitions: int | None = None,
    store: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    mode: str = "update",
    against: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Find out whether a query is deterministic: run its epochs again, and compare every state with what was recorded.

    Each replay is a fork of its own that begins with the recorded state before the first epoch, and reads what each
    epoch read. One more replay runs with another number of partitions. Every state table is compared at every epoch,
    by fingerprints first and, where those differ, key by key. The original is only read.

    Args:
        build_query: makes the streaming DataFrame, with the code that the query ran.
        checkpoint: the query's ``checkpointLocation``.
        epochs: those to replay: a range, or the first and the last; by default all that the checkpoint still has.
        replays: how many replays with the recorded number of partitions, at least 1; two tell chance from change.
        partitions: the number of partitions of the further replay; by default one more than recorded.
        store: a store that has the query, or is to have it; by default one that is thrown away.
        directory: a folder in which the replays' checkpoints and histories are kept; by default they are thrown away.
        mode: the output mode.
        against: a certificate of somebody else's audit, to be checked against what is recorded here.
        spark: the session; by default the running one, or an embedded one.
        progress: is told how far it is.

    Returns:
        What came of it, with ``.clean``, ``.first`` (epoch, table, key, column, both values, likely sources) and
        ``.certificate``.

    Raises:
        InvalidArgumentError: where an argument cannot be meant.
        NotACheckpointError, NoStateError: where there is no checkpoint, or no state in it.
        EpochGoneError: where the checkpoint does not have all these epochs, or the state before the first.
        UnknownEpochError: where the store has a gap among them.
        NotReplayableError: where a source cannot give again what it gave.
        QueryError: where the query fails in a replay.

    Example:
        >>> audit = ss.audit(build, "checkpoints/delays", epochs=(40, 60))  # doctest: +SKIP
        >>> audit.clean, audit.first  # doctest: +SKIP
    """
    from streamstate.spark_session import session

    active = spark or session()
    started = datetime.now(UTC)
    original = Checkpoint(location(os.fspath(checkpoint)), active)
    span = _span(original, epochs)
    recorded = _partitions(original, span)
    spreads = [*[recorded] * _checked(replays), _other(partitions, recorded)]
    frame = check_streaming(build_query())
    check_replayable(sources_of(frame) or ())
    with _folder(directory) as folder:
        history = _recorded(original, folder if store is None else os.fspath(store), span, active)
        states = recorded_states(history, span)
        checked = None if against is None else check_certificate(against, history)
        run = _Audit(
            build_query, original, span, folder, active, mode, history, progress, len(spreads), directory is not None
        )
        told = tuple(run.replay(number, spread, recorded) for number, spread in enumerate(spreads, 1))
        suspects = _suspects(build_query, frame)
        return Audit(
            original.path,
            original.query_id,
            mode,
            span,
            recorded,
            tuple(history.tables()),
            with_suspects(told, suspects, recorded),
            tuple(suspects),
            states,
            offsets_digest(original, span),
            _versions(active),
            started,
            datetime.now(UTC),
            checked,
        )


@dataclass
class _Audit:
    """The replays of one audit."""

    build_query: BuildQuery
    original: Checkpoint
    span: range
    folder: str
    spark: SparkSession
    mode: str
    recorded: History
    progress: Progress | None
    times: int
    kept: bool

    def replay(self, number: int, partitions: int, recorded: int) -> AuditedReplay:
        """One replay, up to where it diverges."""
        began = time.monotonic()
        place = f"{self.folder}/replay-{number}"
        other = partitions != recorded
        if self.span[0] == 0:
            from_nothing(self.original.path, place, self.spark)
        else:
            wanted = partitions if other else None
            fork(self.original.path, place, at=self.span[0] - 1, partitions=wanted, spark=self.spark)
        # A plan may have taken the number from the session, so that alone has to have the other as well.
        spread = {SPREAD: str(partitions)}
        stepper = Stepper(
            self.build_query,
            place,
            self.original.path,
            self.spark,
            mode=self.mode,
            conf=spread,
            pinned=spread if other and self.span[0] == 0 else {},
        )
        changes = Changes(place, f"{self.folder}/replay-{number}-store", f"replay_{number}", self.spark)
        upto, comparison = self._run(number, stepper, changes)
        seconds = time.monotonic() - began
        told = self._told(number, partitions, upto, comparison)
        return replace(told, seconds=seconds, checkpoint=place if self.kept else None)

    def _run(self, number: int, stepper: Stepper, changes: Changes) -> tuple[int, Comparison]:
        chunk = max(1, min(_CHUNK, int(self.spark.conf.get(_RETAIN, "100") or 100) - 2))
        first = self.span[0]
        while True:
            last = min(first + chunk - 1, self.span[-1])
            Steps(stepper, changes, progress=self._telling(number, first)).run(last - first + 1)
            changes.capture()
            comparison = self.recorded.compare(changes.history, epochs=range(self.span[0], last + 1))
            if last == self.span[-1] or not comparison.same:
                return last, comparison
            first = last + 1

    def _telling(self, number: int, first: int) -> Progress:
        def tell(line: str, _share: float | None) -> None:
            if self.progress is not None:
                at = int(line.rsplit(maxsplit=1)[-1]) if line.rsplit(maxsplit=1)[-1].isdigit() else first
                done = (number - 1) * len(self.span) + at - self.span[0]
                self.progress(f"Replay {number} of {self.times}: epoch {at}", done / (self.times * len(self.span)))

        return tell

    def _told(self, number: int, partitions: int, upto: int, comparison: Comparison) -> AuditedReplay:
        first = comparison.first
        divergence, keys = None, None
        if first is not None:
            column = next(iter(first.columns), None) if first.kind == "differing" else None
            pair: tuple[Any, Any] = first.columns[column] if column is not None else (None, None)
            if column is None:
                row = {name: next(one for one in both if one is not None) for name, both in _whole(first.columns)}
                pair = (row, None) if first.kind == "only here" else (None, row)
            divergence = Divergence(
                first.epoch, first.table, first.key, column, pair[0], pair[1], first.columns, number
            )
            keys = comparison.keys(first.epoch, first.table, limit=_KEYS)
        frame, left_out = comparison.epochs(), comparison.left_out
        return AuditedReplay(number, partitions, upto, divergence, frame, keys, left_out=left_out)


def _whole(columns: Mapping[str, tuple[Any, Any]]) -> list[tuple[str, tuple[Any, Any]]]:
    return [(name, both) for name, both in columns.items() if any(one is not None for one in both)]


def _span(original: Checkpoint, epochs: range | tuple[int, int] | None) -> range:
    """The epochs to replay, all committed and described by the checkpoint.

    Raises:
        InvalidArgumentError, NotACheckpointError, NoStateError, EpochGoneError: see :func:`audit`.
    """
    original.query_id  # noqa: B018 (raises where there is no checkpoint)
    committed = original.committed()
    if committed and not original.has_state():
        raise no_state(original.path)
    described = [epoch for epoch in committed if original.planned(epoch) is not None]
    can = described if described[:1] == [0] else described[1:]
    if not can:
        raise EpochGoneError(f"{original.path} has no epoch that can be replayed.\nRun its query for two epochs more.")
    if epochs is None:
        return range(can[0], can[-1] + 1)
    first, last = first_and_last(epochs)
    missing = [epoch for epoch in range(first, last + 1) if epoch not in can]
    if missing:
        raise EpochGoneError(
            f"{original.path} cannot replay {choices(map(str, missing))}: purged, or not committed yet.\n"
            f"It can replay the epochs {can[0]} to {can[-1]}."
        )
    return range(first, last + 1)


def _partitions(original: Checkpoint, span: range) -> int:
    """Over how many the state is spread, in all of the epochs."""
    spread = [epoch for epoch in span if epoch > 0 and original.repartitioned(epoch)]
    if spread:
        raise InvalidArgumentError(
            f"In epoch {spread[0]} {original.path} was only spread over other partitions, which is no epoch to audit.\n"
            f"Audit the epochs before it, or those from {spread[0] + 1} on."
        )
    return original.partitions(span[0]) or 1


def _checked(replays: object) -> int:
    if isinstance(replays, bool) or not isinstance(replays, int) or replays < 1:
        raise InvalidArgumentError(f"replays={replays!r} cannot be meant: a whole number from 1 on.")
    return replays


def _other(partitions: object, recorded: int) -> int:
    if partitions is None:
        return recorded + 1
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1 or partitions == recorded:
        raise InvalidArgumentError(
            f"partitions={partitions!r} cannot be meant: a whole number from 1 on, other than {recorded}, which the"
            " query's own state has."
        )
    return partitions


@contextmanager
def _folder(directory: str | os.PathLike[str] | None) -> Iterator[str]:
    """Where the replays go; removed afterwards where nobody asked for it."""
    if directory is None:
        with own_folder("audit") as folder:
            yield folder
        return
    place = Path(directory)
    if place.exists() and any(place.iterdir()):
        raise InvalidArgumentError(f"{place} is there and not empty.\nName a folder that is not there yet.")
    place.mkdir(parents=True, exist_ok=True)
    yield str(place.resolve())


def _recorded(original: Checkpoint, store: str, span: range, spark: SparkSession) -> History:
    """The query's own history, with all of the epochs.

    Raises:
        UnknownEpochError: where it lacks some.
    """
    from streamstate.state_inspect import open_store

    capturer = capturer_for(original.path, location(store), None, spark)
    while capturer.run().epochs:
        pass
    history = open_store(capturer.layout.root)[capturer.name]
    for epoch in span:
        history.at(epoch)  # raises in a gap
    return history


def _suspects(build_query: BuildQuery, frame: DataFrame) -> list[Suspect]:
    """All that may come out otherwise, in the plan, in its functions, and in what builds it."""
    found = suspects_of(frame)
    known = {(one.what, one.where.rsplit("(", 1)[-1]) for one in found}
    own = suspects_in(build_query, "build_query")
    return [*found, *(one for one in own if (one.what, one.where.rsplit("(", 1)[-1]) not in known)]


def _versions(spark: SparkSession) -> dict[str, str]:
    import streamstate

    java: Any = spark._jvm
    return {
        "streamstate": streamstate.__version__,
        "spark": spark.version,
        "python": platform.python_version(),
        "java": str(java.java.lang.System.getProperty("java.version")),
    }
