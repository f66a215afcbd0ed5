"""Keys that nobody has touched for long: state that leaks is full of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import listed
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.temporal_index.index import Index

_NAMES = ("_last_changed", "_change", "_epochs", "_age")


class Untouched:
    """The keys of a state table that are there now and have not changed since an epoch; ``history.untouched`` gives it.

    Pinned to the epoch that was the newest then.
    """

    def __init__(self, index: Index, table: IntervalTable, name: str, entries: Sequence[Entry], since: int) -> None:
        self._index = index
        self._table = table
        captured = [entry for entry in entries if entry.captured]
        self._epochs = [entry.epoch for entry in captured]
        self._committed = [entry.committed_at for entry in captured]
        self.table = name
        """The state table."""
        self.epoch = captured[-1].epoch
        """The newest epoch when it was asked for."""
        self.since = since
        """The epoch after which none of the keys has changed."""
        self.rows = captured[-1].tables[name].rows if name in captured[-1].tables else 0
        """Rows of the whole table."""
        self._where = f"{held_at(self.epoch)} AND _valid_from <= {since}"

    @property
    def count(self) -> int:
        """How many they are."""
        found = self._index.query(f"SELECT count(*) AS n FROM {self._table.relation} WHERE {self._where}")
        return int(found["n"][0].as_py())

    @property
    def share(self) -> float:
        """Their share in the table's rows."""
        return self.count / self.rows if self.rows else 0.0

    def page(self, offset: int = 0, limit: int = 20) -> pd.DataFrame:
        """Some of them, the longest untouched first.

        Columns: the key columns, then ``_last_changed`` (the epoch), ``_change`` (``put``; ``keyframe`` where the log
        starts anew there, and it is not known how long before), ``_epochs`` and ``_age`` (how many epochs and how
        much time lie between that and now), then the value columns.

        Args:
            offset: keys to pass over.
            limit: keys to give at most.

        Raises:
            InvalidArgumentError: where either is negative.
        """
        if offset < 0 or limit < 0:
            raise InvalidArgumentError(f"offset={offset} and limit={limit} cannot be meant: neither may be negative.")
        keys = listed(self._table.key_columns)
        found = self._index.query(
            f"SELECT _valid_from, {listed(self._table.columns)} FROM {self._table.relation} WHERE {self._where}"
            f" ORDER BY _valid_from, {keys} LIMIT {limit} OFFSET {offset}"
        )
        frame = to_pandas(found.select(self._table.columns).cast(self._schema()))
        for at, (name, values) in enumerate(zip(_NAMES, self._ages(found["_valid_from"].to_pylist()), strict=True)):
            frame.insert(len(self._table.key_columns) + at, name, values)
        return frame

    def by_epoch(self) -> pd.DataFrame:
        """How many of them changed last at each epoch: ``epoch``, ``committed_at``, ``rows``, ascending."""
        found = to_pandas(
            self._index.query(
                f"SELECT _valid_from AS epoch, count(*) AS rows FROM {self._table.relation} WHERE {self._where}"
                " GROUP BY ALL ORDER BY ALL"
            )
        )
        committed = pd.Series([self._committed_at(epoch) for epoch in found["epoch"]], dtype="datetime64[us, UTC]")
        found.insert(1, "committed_at", committed)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """All of them, as :meth:`page` gives them."""
        return self.page(limit=max(self.rows, self.count))

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return (
            f"<Untouched keys of {self.table} since epoch {self.since}: {self.count:,} of {self.rows:,}"
            f" ({self.share:.1%}) at epoch {self.epoch}>"
        )

    def _repr_html_(self) -> str:
        said = f"{self.count:,} of {self.rows:,} keys ({self.share:.1%}) have not changed since epoch {self.since}."
        return f"{self.page().to_html(index=False)}<p>{said}</p>"

    def _schema(self) -> pa.Schema:
        return pa.schema([self._table.schema.field(name).remove_metadata() for name in self._table.columns])

    def _ages(self, changed: Sequence[int]) -> list[pd.Series[Any]]:
        now = self._committed[-1]
        committed = [self._committed_at(epoch) for epoch in changed]
        ages = [now - one if now is not None and one is not None else None for one in committed]
        kinds = ["keyframe" if epoch in self._table.starts else "put" for epoch in changed]
        return [
            pd.Series(changed, dtype="int64"),
            pd.Series(kinds, dtype=object),
            pd.Series([self.epoch - epoch for epoch in changed], dtype="int64"),
            pd.Series(ages, dtype="timedelta64[us]"),
        ]

    def _committed_at(self, epoch: int) -> datetime | None:
        at = bisect_left(self._epochs, epoch)
        return self._committed[at] if at < len(self._epochs) and self._epochs[at] == epoch else None


def since_epoch(entries: Sequence[Entry], since: int | None, epochs: int | None) -> int:
    """The epoch after which keys are not to have changed.

    Args:
        entries: the manifest, with a captured epoch.
        since: the epoch itself.
        epochs: or how many captured epochs before the newest it is.

    Raises:
        InvalidArgumentError: where not exactly one is given, or it is no whole number, or negative.
    """
    given: list[Any] = [one for one in (since, epochs) if one is not None]
    if len(given) != 1:
        raise InvalidArgumentError("Say since when: since=12, an epoch, or epochs=100, that many before the newest.")
    if isinstance(given[0], bool) or not isinstance(given[0], int) or given[0] < 0:
        raise InvalidArgumentError(f"{given[0]!r} cannot be meant: an epoch, or a number of epochs, is a whole number.")
    if since is not None:
        return since
    captured = [entry.epoch for entry in entries if entry.captured]
    return captured[-1 - given[0]] if given[0] < len(captured) else captured[0] - 1
