"""The load of a query's epochs: what ``history.load()`` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from streamstate.snapshots.calls.html import folded, joined, paragraphs
from streamstate.state_inspect.frames import as_html
from streamstate.state_inspect.load.epochs import EpochColumns, whole
from streamstate.state_inspect.load.forecast import Forecast, forecast

if TYPE_CHECKING:
    from streamstate.state_inspect.captured_query import CapturedQuery

_SHOWN = 10
_PARTITIONS = "backlog_partitions"


class Load:
    """The load of a query's captured epochs; ``history.load()`` returns it.

    It is pinned to the epochs that were captured at that time.
    """

    def __init__(self, columns: EpochColumns, name: str) -> None:
        self._columns = columns
        self.query = name
        """The query's name."""

    @classmethod
    def of(cls, recorded: CapturedQuery, last: int | None = None) -> Load:
        """Return the load of a query's newest epochs; by default of all."""
        entries = recorded.entries()
        entries = entries if last is None else entries.newest_of(last)
        columns = EpochColumns(entries, np.full(len(entries.captured), np.nan))
        if not columns.has_load.any():
            counts = [entry.rows for entry in recorded.counted_soon(entries) if entry.captured]
            columns = EpochColumns(entries, np.array([np.nan if rows is None else rows for rows in counts], float))
        return cls(columns, recorded.name)

    def to_pandas(self) -> pd.DataFrame:
        """One row per captured epoch, ascending.

        Columns: ``epoch``; ``began_at``, when Spark planned it; ``seconds``, from then to its commit; ``rows``, which
        it read; ``arrival_rate`` and ``service_rate``, rows a second that came since the epoch before was planned, and
        that the epoch processed; ``backlog_rows`` and ``backlog_bytes``, which waited in the sources beyond those that
        it read; ``catch_up_seconds``, until the backlog would be gone as fast as it shrank in the newest five epochs
        (infinite if it grew); ``latency_seconds``, from the arrival of its oldest row to its end; ``state_rows`` and
        ``state_bytes`` (memory, and RocksDB's files) of all operators; ``watermark_lag_seconds``, from the watermark to
        the newest event; ``median_task_seconds`` and ``worst_task_seconds``, of the longest stage; ``kept_rows`` and
        ``dropped_rows``, of the rows that :func:`streamstate.shed` saw. Values that are not known are missing:
        :attr:`unknown` says why.

        Example:
            >>> history.load().to_pandas()[["epoch", "state_rows"]].tail(2)
                epoch  state_rows
            60     60           5
            61     61           5
        """
        return self._columns.frame

    def sources(self) -> pd.DataFrame:
        """One row per epoch and source: ``epoch``, ``source``, ``rows``, ``backlog_rows``, ``backlog_bytes``."""
        epochs, facts = self._of_each("sources")
        plain = ("rows", "backlog_rows", "backlog_bytes")
        return pd.DataFrame(
            {"epoch": epochs, "source": _texts(facts, "name"), **{name: _integers(facts, name) for name in plain}}
        )

    def partitions(self) -> pd.DataFrame:
        """One row per epoch, source and partition of Kafka: ``epoch``, ``source``, ``partition``, ``backlog_rows``."""
        epochs, facts = self._of_each("sources")
        kind = facts.type
        names = kind.field(_PARTITIONS).type.names if kind.get_field_index(_PARTITIONS) >= 0 else []
        source, partitions = _texts(facts, "name"), facts.field(_PARTITIONS) if names else None
        parts = [
            pd.DataFrame(
                {"epoch": epochs, "source": source, "partition": name, "backlog_rows": _integers(partitions, name)}
            )
            for name in names
        ]
        empty = pd.DataFrame(
            {"epoch": epochs[:0], "source": source[:0], "partition": [], "backlog_rows": whole(epochs[:0])}
        )
        found = pd.concat(parts or [empty])
        return found[found["backlog_rows"].notna()].sort_values("epoch", kind="stable", ignore_index=True)

    def operators(self) -> pd.DataFrame:
        """One row per epoch and stateful operator.

        Columns: ``epoch``, ``operator`` (``op0``), ``name`` (Spark's), ``rows``, ``updated``, ``memory_bytes``,
        ``update_seconds`` and ``commit_seconds`` (in its state stores, summed over tasks), then the sizes that Spark
        reports of its state stores, by Spark's names, such as ``rocksdbSstFileSize``.
        """
        epochs, facts = self._of_each("operators")
        same = epochs[1:] == epochs[:-1]
        places = np.arange(len(epochs))
        first = np.maximum.accumulate(np.where(np.concatenate([[False], same]), 0, places)) if len(places) else places
        columns: dict[str, Any] = {
            "epoch": epochs,
            "operator": [f"op{number}" for number in places - first],
            "name": _texts(facts, "name"),
            **{name: _integers(facts, name) for name in ("rows", "updated", "memory_bytes")},
            **{name: _reals(facts, name) for name in ("update_seconds", "commit_seconds")},
        }
        if facts.type.get_field_index("stores") >= 0:
            stores = facts.field("stores")
            columns |= {field.name: _integers(stores, field.name) for field in stores.type}
        return pd.DataFrame(columns)

    def phases(self) -> pd.DataFrame:
        """One row per captured epoch: ``epoch``, then the seconds of each of Spark's phases, by Spark's names."""
        return pd.DataFrame({"epoch": self._columns.epochs, **self._columns.loads.maps("phases")})

    @property
    def unknown(self) -> list[str]:
        """What cannot be known of these epochs, and why, in sentences; empty if everything is."""
        return list(_unknown(self._columns))

    def forecast(
        self, *, state: str | int | None = None, backlog: int | None = None, at: int | None = None
    ) -> Forecast:
        """When the state, or the backlog, reaches a limit, if it goes on as in these epochs.

        States that keep keys usually grow slower and slower, so a law of growth is fitted, not only a line; see
        docs/guides/load.md, which also shows the errors of ten forecasts.

        Args:
            state: a size such as ``"10GB"``, which is compared with ``state_bytes``, or a number of rows.
            backlog: a number of rows.
            at: forecast from this epoch, without the later ones; by default from the newest.

        Raises:
            InvalidArgumentError: not exactly one limit is given, or too few epochs have a known level.
            UnknownEpochError: the epoch is not captured.

        Example:
            >>> print(store["sessions"].load().forecast(state=100))
            At epoch 13 the state is 45 rows, and reaches 100 rows at ...
        """
        return forecast(self._columns, state, backlog, at)

    def __len__(self) -> int:
        return len(self._columns.epochs)

    def sentences(self) -> list[str]:
        """The newest epoch, in sentences."""
        return list(_described(self.to_pandas()))

    def __repr__(self) -> str:
        return f"<Load of {self.query}: {' '.join(self.sentences())}>"

    def _repr_html_(self) -> str:
        frame = self.to_pandas().dropna(axis="columns", how="all").tail(_SHOWN)
        return joined(paragraphs(self.sentences()), as_html(frame), folded("Not known", self.unknown))

    def _of_each(self, parts: str) -> tuple[Any, pa.StructArray]:
        places, facts = self._columns.loads.of_each(parts)
        return self._columns.epochs[places], facts


def _texts(facts: pa.StructArray, name: str) -> Any:
    return np.array(facts.field(name).to_pylist(), object)


def _reals(facts: Any, name: str) -> Any:
    return np.array(facts.field(name).cast(pa.float64()).to_numpy(zero_copy_only=False), float)


def _integers(facts: Any, name: str) -> Any:
    return whole(_reals(facts, name))


def _described(frame: pd.DataFrame) -> Iterator[str]:
    if frame.empty:
        yield "No epoch is captured yet."
        return
    newest = frame.iloc[-1]

    def known(name: str) -> bool:
        return not pd.isna(newest[name])

    took = f" took {newest['seconds']:.3g} s" if known("seconds") else ""
    read = f" read {newest['rows']:,} rows" if known("rows") else ""
    facts = " and".join(fact for fact in (took, read) if fact) or " is captured"
    yield f"Epoch {newest['epoch']}{facts}."
    if known("arrival_rate") and known("service_rate"):
        yield f"{newest['arrival_rate']:,.0f} rows/s arrive, {newest['service_rate']:,.0f} rows/s are processed."
    if known("backlog_rows") and newest["backlog_rows"]:
        time = newest["catch_up_seconds"]
        when = (
            "" if pd.isna(time) else ", and do not get fewer" if np.isinf(time) else f", which takes {time:,.0f} s more"
        )
        yield f"{newest['backlog_rows']:,} rows wait{when}."
    if known("latency_seconds"):
        yield f"Its oldest row waited {newest['latency_seconds']:.3g} s for its end."
    if known("state_rows"):
        size = f" in {newest['state_bytes'] / 1e6:,.1f} MB" if known("state_bytes") else ""
        yield f"The state has {newest['state_rows']:,} rows{size}."
    if known("dropped_rows") and newest["dropped_rows"]:
        yield f"{newest['dropped_rows']:,} rows were dropped, {newest['kept_rows']:,} kept."


def _unknown(columns: EpochColumns) -> Iterator[str]:
    without = int((~columns.has_load).sum())
    total = len(columns.epochs)
    if without:
        of_them = "the epochs" if without == total else f"{without:,} of {total:,} epochs"
        yield (
            f"Spark's report on {of_them} was not at hand: the query ran in another process, or before its load was"
            " recorded. Backlog, phases, tasks, memory of the state and shed rows of these are not known."
        )
        known = ~columns.has_load & np.isfinite(columns.seconds)
        yield (
            f"The duration of {int(known.sum()):,} of these is the time from their planning to the writing of their"
            " commit file; where the files are copies, it is not known."
        )
        kafka = sum(read.records is not None for read in columns.reads.values())
        if kafka:
            yield f"The rows of {kafka:,} of these are differences of Kafka's offsets; marks of transactions count too."
        rows = int((~columns.has_load & np.isnan(columns.rows)).sum())
        if rows:
            yield f"How many rows {rows:,} of these read is not known: only Kafka's offsets tell."
        files = {source: words for read in columns.reads.values() for source, words in read.words.items()}
        if any("file" in words for words in files.values()):
            yield "Of sources that read files, the log has the files: history.epochs() lists how many were read."
        if without != total and np.isfinite(columns.state_rows).any():
            yield "The state's rows are those that Spark reports, so those of epochs without a report are missing."
    if without < total:
        if not np.isfinite(columns.backlog_rows).any():
            yield (
                "None of the sources tells how much waits in it: only Kafka's does. A row counts as arrived when it"
                " could be read, so where a limit makes rows wait, the latency is longer than shown."
            )
        untimed = int(np.isnan(columns.loads.numbers("tasks", "tasks")).sum()) - without
        if untimed:
            yield (
                f"The tasks of {untimed:,} epochs are not known: Spark is asked for them at most once a second, and has"
                " those of queries that run in the capture's process."
            )
