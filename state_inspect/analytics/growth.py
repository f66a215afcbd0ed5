"""Growth of a query's state, lag of its watermark, and stale keys: signs of leaking state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.html import joined, tag
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.snapshots.store.duckdb_sql import listed, same
from streamstate.snapshots.store.entries import Entry
from streamstate.state_inspect.analytics.watermark_lags import WatermarkLags
from streamstate.state_inspect.captured_query import HistoryPart
from streamstate.state_inspect.frames import as_html, to_pandas
from streamstate.state_inspect.temporal_index.index import Index, rows_at
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

_TIME, _SPAN, _INTEGER = "datetime64[us, UTC]", "timedelta64[us]", "Int64"
_NAMES = ("_last_changed", "_change", "_epochs", "_age")


class StaleKeys:
    """The keys of a state table that have not changed since an epoch; ``history.stale_keys`` returns it.

    Pinned to the epoch that was the newest at that time.
    """

    def __init__(
        self,
        index: Index,
        newest: IntervalTable,
        parts: Iterable[HistoryPart],
        entries: Sequence[Entry],
        *,
        name: str,
        since: int,
    ) -> None:
        self._index = index
        captured = [entry for entry in entries if entry.captured]
        self._committed = {entry.epoch: entry.committed_at for entry in captured}
        self.table = name
        """The state table."""
        self.epoch = captured[-1].epoch
        """The newest epoch at the time of the call."""
        self.since = since
        """The epoch after which none of the keys has changed."""
        self.rows = rows_at(index, newest, self.epoch) if name in captured[-1].tables else 0
        """Rows of the whole table."""
        self._table = newest
        self._starts: set[int] = set()
        self._changed = self._last_changes(parts)
        keys = [HASH, *newest.key_columns]
        self._rows = (
            f"(SELECT held.* REPLACE (changed._valid_from AS _valid_from) FROM {newest.relation} AS held"
            f" JOIN changed ON {same('held', 'changed', keys)} WHERE {held_at(self.epoch, 'held')}"
            f" AND changed._valid_from <= {since})"
        )

    def _last_changes(self, parts: Iterable[HistoryPart]) -> pa.Table:
        """Return the epoch of the last change of each key of the newest state."""
        keys = listed([HASH, *self._table.key_columns])

        def changes() -> Iterator[tuple[str, list[Any]]]:
            for part in parts:
                self._starts |= part.table.starts
                # What is valid for longer was written in an earlier part.
                written = f"_valid_from > {part.first} AND {held_at(min(part.last, self.epoch))}"
                yield f"SELECT {keys}, _valid_from FROM {part.table.relation} WHERE {written}", []

        newest = f"{self._table.relation} AS held ON {same('parts', 'held', [HASH, *self._table.key_columns])}"
        return self._index.query_parts(
            changes(),
            f"SELECT {keys}, max(_valid_from) AS _valid_from FROM parts SEMI JOIN {newest}"
            f" AND {held_at(self.epoch, 'held')} GROUP BY ALL",
        )

    def _query(self, sql: str) -> pa.Table:
        return self._index.query(sql, frames={"changed": self._changed})

    @property
    def count(self) -> int:
        """The number of keys."""
        found = self._query(f"SELECT count(*) AS n FROM {self._rows}")
        return int(found["n"][0].as_py())

    @property
    def share(self) -> float:
        """Their share of the table's rows."""
        return self.count / self.rows if self.rows else 0.0

    def page(self, offset: int = 0, limit: int = 20) -> pd.DataFrame:
        """Return a slice of the keys, the stalest first.

        Columns: the key columns, then ``_last_changed`` (the epoch), ``_change`` (``put``; ``keyframe`` if the
        changelog starts again there after a gap, so that the key may be older), ``_epochs`` and ``_age`` (how many
        epochs and how much time have passed since), then the value columns.

        Args:
            offset: the number of keys to skip.
            limit: the maximum number of keys to return.

        Raises:
            InvalidArgumentError: either is not an integer of at least 0.
        """
        whole_number(offset, "offset", least=0)
        whole_number(limit, "limit", least=0)
        keys = listed(self._table.key_columns)
        found = self._query(
            f"SELECT _valid_from, {listed(self._table.columns)} FROM {self._rows}"
            f" ORDER BY _valid_from, {keys} LIMIT {limit} OFFSET {offset}"
        )
        frame = to_pandas(found.select(self._table.columns).cast(self._schema()))
        for at, (name, values) in enumerate(zip(_NAMES, self._ages(found["_valid_from"].to_pylist()), strict=True)):
            frame.insert(len(self._table.key_columns) + at, name, values)
        return frame

    def by_epoch(self) -> pd.DataFrame:
        """Return how many keys last changed at each epoch: ``epoch``, ``committed_at``, ``rows``, ascending."""
        found = to_pandas(
            self._query(f"SELECT _valid_from AS epoch, count(*) AS rows FROM {self._rows} GROUP BY ALL ORDER BY ALL")
        )
        committed = pd.Series([self._committed.get(epoch) for epoch in found["epoch"]], dtype=_TIME)
        found.insert(1, "committed_at", committed)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return all keys, as :meth:`page` returns them."""
        return self.page(limit=max(self.rows, self.count))

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return (
            f"<StaleKeys of {self.table} since epoch {self.since}: {self.count:,} of {self.rows:,}"
            f" ({self.share:.1%}) at epoch {self.epoch}>"
        )

    def _repr_html_(self) -> str:
        summary = f"{self.count:,} of {self.rows:,} keys ({self.share:.1%}) have not changed since epoch {self.since}."
        return joined(as_html(self.page()), tag("p", summary))

    def _schema(self) -> pa.Schema:
        return pa.schema([self._table.schema.field(name).remove_metadata() for name in self._table.columns])

    def _ages(self, changed: Sequence[int]) -> list[pd.Series[Any]]:
        now = self._committed[self.epoch]
        committed = [self._committed.get(epoch) for epoch in changed]
        ages = [now - time if now is not None and time is not None else None for time in committed]
        kinds = ["keyframe" if epoch in self._starts else "put" for epoch in changed]
        return [
            pd.Series(changed, dtype="int64"),
            pd.Series(kinds, dtype=object),
            pd.Series([self.epoch - epoch for epoch in changed], dtype="int64"),
            pd.Series(ages, dtype=_SPAN),
        ]


def since_epoch(entries: Sequence[Entry], since: int | None, epochs: int | None) -> int:
    """Return the epoch since which keys must not have changed: ``since``, or so many before the newest."""
    if (since is None) == (epochs is None):
        raise InvalidArgumentError(
            "Expected either since= or epochs=: since=12 for an epoch, epochs=100 for that many before the newest."
        )
    if since is not None:
        return whole_number(since, "since", least=0)
    back = whole_number(epochs, "epochs", least=0)
    captured = [entry.epoch for entry in entries if entry.captured]
    return captured[-1 - back] if back < len(captured) else captured[0] - 1


def growth(entries: Sequence[Entry], table: str | None) -> pd.DataFrame:
    """Return one row per captured epoch and state table, all counted; see :meth:`History.growth`."""
    rows: list[list[Any]] = []
    before: dict[str, int] = {}
    gap = False
    for entry in entries:
        gap |= not entry.captured
        for name, facts in entry.tables.items():
            if table is not None and name != table:
                continue
            assert facts.rows is not None
            known = before.get(name, None if gap or entry.epoch else 0)
            delta = None if known is None else facts.rows - known
            rows.append([entry.epoch, name, entry.committed_at, facts.rows, delta, facts.changes])
            before[name] = facts.rows
    types = {"epoch": "int64", "table": "object", "committed_at": _TIME, "rows": "int64", "delta": _INTEGER}
    return _frame(rows, {**types, "changes": "int64"})


def watermark_lag(entries: Sequence[Entry], lags: WatermarkLags) -> pd.DataFrame:
    """Return one row per captured epoch; see :meth:`History.watermark_lag`."""
    rows: list[list[Any]] = []
    before: Entry | None = None
    for entry in entries:
        if entry.captured:
            lag = _between(entry.watermark, entry.committed_at)
            since = _between(before.committed_at, entry.committed_at) if before else None
            newest = lags.newest_event(entry)
            rows.append([entry.epoch, entry.committed_at, entry.watermark, lag, entry.input_rows, since, newest])
        before = entry if entry.captured else None
    types = {"epoch": "int64", "committed_at": _TIME, "watermark": _TIME, "lag": _SPAN, "input_rows": _INTEGER}
    return _frame(rows, {**types, "since_previous": _SPAN, "newest_event": _TIME})


def _between(start: Any, end: Any) -> Any:
    return None if start is None or end is None else end - start


def _frame(rows: Sequence[list[Any]], types: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: pd.Series([row[at] for row in rows], dtype=kind) for at, (name, kind) in enumerate(types.items())}
    )
