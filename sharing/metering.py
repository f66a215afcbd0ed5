"""Usage: the rows and epochs that each recipient was granted by each contract, as a Delta table of the store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa

from streamstate.sharing.contracts import Contracts
from streamstate.snapshots.store.delta import append_once, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import Handle, version_of
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import TIME, Layout
from streamstate.snapshots.store.numbered_table import as_is
from streamstate.state_inspect.frames import to_pandas

_APPLICATION = "usage"
_ROWS = pa.schema(
    [
        ("number", pa.int64()),
        ("recipient", pa.string()),
        ("contract", pa.string()),
        ("version", pa.int64()),
        ("table", pa.string()),
        ("epoch", pa.int64()),
        ("kind", pa.string()),
        ("times", pa.int64()),
        ("rows", pa.int64()),
        ("at", TIME),
    ]
)


@dataclass(frozen=True)
class Granted:
    """A file that was handed out.

    Attributes:
        recipient, contract, version, table: to whom and by what, with the version of the contract.
        epoch: the epoch.
        kind: ``rows`` of the epoch, or its ``changes``.
        rows: the rows of the file.
    """

    recipient: str
    contract: str
    version: int
    table: str
    epoch: int
    kind: str
    rows: int


class Meter:
    """Counts the files that one server hands out, and writes the counts to the store from time to time."""

    def __init__(self, layout: Layout) -> None:
        self._place = layout.sharing("usage")
        self._counts: Counter[Granted] = Counter()
        self._lock = threading.Lock()

    def count(self, granted: Granted) -> None:
        """Count a file."""
        with self._lock:
            self._counts[granted] += 1

    def write(self) -> None:
        """Write what was counted since the last time, as one commit."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            self._append(counts)
        except BaseException:
            with self._lock:
                self._counts += counts
            raise

    def _append(self, counts: Counter[Granted]) -> None:
        handle, now = Handle(self._place), datetime.now(UTC)
        open_or_create(handle, _ROWS, "streamstate: what was granted to whom")
        while True:
            number = version_of(handle.newest(), _APPLICATION) + 1
            rows = [
                {**vars(granted), "number": number, "times": times, "rows": times * granted.rows, "at": now}
                for granted, times in counts.items()
            ]
            table = pa.Table.from_pylist(rows, schema=_ROWS)
            if append_once(handle, _APPLICATION, number, partial(as_is, table)) < number:
                return


def usage(layout: Layout) -> pd.DataFrame:
    """Return what was granted, with what it costs; see :meth:`streamstate.reports.Store.usage`."""
    table = open_table(layout.sharing("usage"))
    found = _ROWS.empty_table() if table is None else TableVersion(layout.sharing("usage"), table).read("number")
    frame = to_pandas(found.select([name for name in _ROWS.names if name != "number"]))
    prices: dict[tuple[Any, Any], float | None] = {
        (contract.to, contract.name): contract.terms.price for contract in Contracts(layout).all()
    }
    price = [prices.get((row.recipient, row.contract)) or 0.0 for row in frame.itertuples()]
    return frame.assign(cost=frame["rows"] * pd.Series(price, index=frame.index, dtype="float64") / 1e6)


@dataclass(frozen=True)
class Reading:
    """What was read by a contract.

    Attributes:
        rows: the rows that were handed out, in all.
        epochs: the number of epochs that they are of.
        newest: the newest of these.
        at: when something was read last, as the server noted it.
        cost: what the rows cost.
    """

    rows: int = 0
    epochs: int = 0
    newest: int | None = None
    at: datetime | None = None
    cost: float = 0.0


def readings(layout: Layout, *, by: Sequence[str]) -> dict[tuple[Any, ...], Reading]:
    """Return what was read, by some columns of :func:`usage`, such as ``recipient`` and ``contract``."""
    return {
        key: Reading(
            int(found["rows"].sum()),
            int(found["epoch"].nunique()),
            int(found["epoch"].max()),
            found["at"].max().to_pydatetime(),
            round(float(found["cost"].sum()), 9),
        )
        for key, found in usage(layout).groupby([*by])
    }
