"""Admission: the most rows that an epoch reads, divided among a query's sources in the units that they count."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from streamstate.snapshots.capture.spark_load import only_binds
from streamstate.snapshots.spark.read_limits import LimitedSource
from streamstate.snapshots.store.epoch_load import EpochLoad

_EPOCHS = 20
"""The epochs from which a source's share of the rows, and the rows of a file, are known."""


class Limits(Protocol):
    """The read limits of one run: :class:`streamstate.snapshots.spark.read_limits.ReadLimits`."""

    def sources(self) -> list[LimitedSource]:
        """Return the sources; none of them before Spark has planned the query."""

    def set(self, limits: Sequence[int | None]) -> bool:
        """Set the limits; True if they certainly apply to the next epoch that is planned."""


class Admission:
    """Limits what each epoch reads.

    Args:
        limits: returns the limits of the current run; None: the query does not run, or has none.
        files_read: returns how many files a source read in an epoch, given its place and Spark's report on it; None:
            it is not known.
    """

    def __init__(
        self,
        limits: Callable[[], Limits | None],
        files_read: Callable[[int, Mapping[str, Any]], int | None] = lambda _place, _source: None,
    ) -> None:
        self._limits = limits
        self._files_read = files_read
        self._possible: list[list[int | None]] = []
        self._listed: set[int] = set()
        self._reports: deque[list[Mapping[str, Any]]] = deque(maxlen=_EPOCHS)
        self.applies_from: int | None = None
        """The first epoch that the limit certainly applies to; None: none was set in this run."""
        self.applied = True
        """False if the limit could not be set yet: Spark has planned nothing, or the rows of a file are unknown."""

    @property
    def obeyed(self) -> bool:
        """True if all sources obey a limit."""
        found = self._limits()
        sources = [] if found is None else found.sources()
        return bool(sources) and all(source.unit is not None for source in sources)

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Take note of what an epoch has read."""
        sources = _reading(progress)
        if any(source.get("numInputRows") for source in sources):
            self._reports.append(sources)

    def full(self, progress: Mapping[str, Any], load: EpochLoad) -> bool:
        """Check if more may wait in a source that does not tell: the epoch read as much as a limit allowed.

        A source of files reads what is left of a list before it lists again. So an epoch that reads less proves that
        nothing waits only if the one before read less too. Ask once for each epoch, in their order.
        """
        found = self._limits()
        limited = [] if found is None else found.sources()
        sources = _reading(progress)
        if len(limited) != len(sources):
            return False
        # Before the epoch from which the newest limit certainly applies, any of those since the last such may have.
        if self.applies_from is not None and int(progress["batchId"]) >= self.applies_from:
            self._possible = self._possible[-1:]
        chosen = self._possible or [[None] * len(limited)]
        filled = {
            at
            for at, (source, report, read) in enumerate(zip(limited, sources, load.sources, strict=False))
            if read.backlog_rows is None
            for limits in chosen
            if self._filled(at, source, limits[at], report)
        }
        before, self._listed = self._listed, {at for at in filled if limited[at].unit == "files"}
        return bool(filled | before)

    def _filled(self, at: int, source: LimitedSource, limit: int | None, report: Mapping[str, Any]) -> bool:
        """Return whether an epoch read as much from a source as a limit, and the source's own, allowed."""
        bounds = [bound for bound in (limit, source.own) if bound is not None]
        rows = _rows([report])
        if not bounds or not rows:
            return False
        return ((self._files_read(at, report) or 0) if source.unit == "files" else rows) >= min(bounds)

    def limit(self, rows: int | None, committed: int) -> None:
        """Set the most rows that an epoch reads; None: what the sources' options say.

        ``committed`` is the newest committed epoch.
        """
        found = self._limits()
        self.applies_from, self.applied = None, rows is None
        if found is None or not (sources := found.sources()):
            return
        limits = [None if rows is None else self._share(rows, source, len(sources)) for source in sources]
        self.applied = rows is None or None not in limits
        if rows is None or self.applied:
            self._possible.append(limits)
            self.applies_from = committed + (1 if found.set(limits) else 2)

    def _share(self, rows: int, source: LimitedSource, count: int) -> int | None:
        """Return a source's limit, in its unit."""
        read = [each for report in self._reports for each in report]
        every, own = _rows(read), _rows(each for each in read if each.get("description") == source.name)
        share = max(1, round(rows * (own / every if every else 1 / count)))
        if source.unit != "files":
            return share
        for report in reversed(self._reports):
            for at, each in enumerate(report):
                if each.get("description") == source.name and _rows([each]) and (files := self._files_read(at, each)):
                    return max(1, math.ceil(share * files / _rows([each])))
        return None


def _reading(progress: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return Spark's reports on the sources that have rows."""
    return [source for source in progress.get("sources") or () if not only_binds(source)]


def _rows(sources: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(source.get("numInputRows") or 0) for source in sources)
